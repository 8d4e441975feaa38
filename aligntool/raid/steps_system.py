"""Steps on the system: programs that it runs, and lines in its files."""

import base64
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, dropwhile, takewhile
from pathlib import Path

from aligntool import steps
from aligntool.change import Plan, Said
from aligntool.errors import Refusal, Refused, Stopped, failing_as
from aligntool.linux.files import keep_copy, remove_file, replace_file
from aligntool.linux.process import PACKAGES, find_program, run_or_stop, run_program
from aligntool.linux.sysfs import mounts_now
from aligntool.raid.commands import command_of, purpose_of
from aligntool.steps import EditFile, FileStep, Mount, Step, SystemStep

# What a step on the system found before it began, how it is applied, and how it is undone. A section below for each
# kind; what is not handled in one is run and has nothing to undo. Commands and titles: commands.py.

_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)
STATE = Path("/var/lib/aligntool")
_SHOWN = 500

Trace = Mapping[str, str]
"""What a step found before it began, for undoing it: docs/crash-safety.md, "Arrays"."""
Traces = Mapping[int, Trace]  # by the index of the step


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the system's files and the records are."""

    root: Path = Path("/")
    state: Path = STATE

    def of(self, name: str) -> Path:
        """Return the path of a file of the system, below the root."""
        return self.root / name.lstrip("/")


def find_system_trace(step: SystemStep) -> dict[str, str]:
    """Return what undoing the step needs to know of the system as it is now."""
    match step:
        case steps.MakeDirectory(path):
            missing = [each for each in (Path(path), *Path(path).parents) if not each.exists()]
            return {"made": str(missing[-1])} if missing else {}  # the topmost
        case steps.SetPartitionType():
            return {"type": _type_now(step)}
    return {"before": "there"} if _effect(step)[0] else {}


def apply_system(step: SystemStep) -> Iterator[Said]:
    """Raise Stopped with what the program printed."""
    if isinstance(step, steps.ReloadUnits | steps.EnableUnit) and not _SYSTEMD.is_dir():
        yield Said(f"systemd is not running here, so this is skipped: {shell_words(step)}")
        return
    if _effect(step)[0]:
        if isinstance(step, Mount) and (why := _other_than_fstab(step.path)):
            raise Stopped(why, hint=f"sudo umount {step.path}, then aligntool resume")
        yield Said("done already")
        return
    ended = run_or_stop(*command_of(step))
    if isinstance(step, steps.CheckInitramfs) and step.uuid not in ended.output:
        printed = ended.output.strip()[-_SHOWN:] or "nothing"
        raise Stopped(f"{purpose_of(step)}: {step.uuid} was not found; printed: {printed}")


def undo_system(step: SystemStep, trace: Trace) -> Iterator[Said]:
    """Undo mounts, swap, units, types and directories, where the step made them."""
    in_effect, command, text = _effect(step)
    if isinstance(step, steps.SetPartitionType):
        old = trace.get("type")  # only while the partition has the type that the step gave it
        if old and _same_type(_type_now(step), step.type_code) and not _same_type(old, step.type_code):
            run_or_stop(*command_of(replace(step, type_code=old)))
            yield Said(f"partition {step.partition} of {step.disk} has its old type again")
    elif isinstance(step, steps.MakeDirectory) and "made" in trace:
        yield from _remove_directories(step, trace)
    elif in_effect and "before" not in trace:
        if isinstance(step, Mount) and (why := _other_than_fstab(step.path)):
            yield Said(f"{why}; it stays mounted")
        else:
            run_or_stop(*command)
            yield Said(text)


def shell_words(step: SystemStep) -> str:
    return " ".join(command_of(step))


def _effect(step: SystemStep) -> tuple[bool, tuple[str, ...], str]:
    """Return whether the step is in effect now, the command that ends that, and what is said then."""
    match step:
        case Mount(path):
            return is_mounted(path), ("umount", path), f"{path} is unmounted"
        case steps.Swapon(uuid):
            return _is_swap(uuid), ("swapoff", "-U", uuid), "the swap space is not used any more"
        case steps.EnableUnit(unit):
            enabled = _SYSTEMD.is_dir() and run_program("systemctl", "is-enabled", unit).code == 0
            return enabled, ("systemctl", "disable", unit), f"{unit} is disabled"
    return False, (), ""


# Mount, Swapon, EnableUnit


def is_mounted(place: str) -> bool:
    """Something is mounted at exactly this place."""
    return run_program("mountpoint", "-q", place).code == 0


def refuse_mount_point(step: Mount) -> Iterator[str]:
    """Yield why nothing should be mounted there, a sentence each."""
    place = step.path
    if is_mounted(place):
        yield f"something is mounted at {place} already"
    elif Path(place).exists() and not Path(place).is_dir():
        yield f"{place} is not a directory"
    elif names := files_below(place):
        yield f"{place} is not empty; a mount would hide {', '.join(names)}"


def _uuid_at(place: str) -> str:
    """Return the UUID of the file system mounted there, the last one of several; "" if unknown."""
    found = run_program("findmnt", "--noheadings", "--output", "UUID", "--mountpoint", place).output.split()
    return found[-1] if found else ""


def _other_than_fstab(place: str) -> str:
    """Return a sentence where another file system is mounted than fstab has; "" where it is that one, or unknown."""
    source = run_program("findmnt", "--fstab", "--noheadings", "--output", "SOURCE", place).output.strip()
    mounted, wanted = _uuid_at(place), source.removeprefix("UUID=")
    if wanted == source or not mounted or wanted.lower() == mounted.lower():
        return ""
    return f"at {place} the file system {mounted} is mounted, and fstab has {wanted} there"


def files_below(place: str) -> list[str]:
    """Return a few names in a directory, without what mkfs makes itself."""
    try:
        return sorted(each.name for each in Path(place).iterdir() if each.name != "lost+found")[:5]
    except OSError:
        return []


def refuse_files(where: str, names: Sequence[str]) -> None:
    """Raise Refused where files lie on what would be removed."""
    if names:
        hint = "aligntool resume keeps the array; to take it back all the same, move the files away first"
        raise Refused(f"files lie on {where}: {', '.join(names)}; they would be lost", hint=hint)


def _is_swap(uuid: str) -> bool:
    shown = run_program("swapon", "--show=UUID", "--noheadings", "--raw")
    return uuid.lower() in shown.output.lower().split()


def is_started_by_fstab(step: Step, uuids: Collection[str]) -> bool:
    """A mount or swap whose step never began is active: fstab has its line, and the machine was started meanwhile.
    Only of a file system with one of these UUIDs.
    """
    if isinstance(step, Mount):
        return _uuid_at(step.path).lower() in {uuid.lower() for uuid in uuids}
    return isinstance(step, steps.Swapon) and _is_swap(step.uuid)


# SetPartitionType


def _type_now(step: steps.SetPartitionType) -> str:
    """As sfdisk takes it. Raise Stopped where it finds no such partition."""
    return run_or_stop("sfdisk", "--part-type", step.disk, str(step.partition)).output.strip()


def _same_type(one: str, other: str) -> bool:
    return one.lower().removeprefix("0x") == other.lower().removeprefix("0x")


# MakeDirectory


def _remove_directories(step: steps.MakeDirectory, trace: Trace) -> Iterator[Said]:
    """From the inside out, as long as they are empty."""
    place, made = Path(step.path), Path(trace["made"])
    with suppress(OSError):
        while made == place or made in place.parents:
            place.rmdir()
            yield Said(f"the directory {place} is removed")
            place = place.parent


# CheckInitramfs, RebuildInitramfs


CONF = "/etc/mkinitcpio.conf"
HOOK = "mdadm_udev"
_HOOKS = re.compile(r"""^[ \t]*HOOKS(\+?)=(?:\(([^)]*)\)|"([^"]*)"|'([^']*)')""", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)


def refuse_hooks(step: steps.RebuildInitramfs, paths: Paths) -> Iterator[Refusal]:
    """Yield a reason where mkinitcpio would leave mdadm.conf out: on Arch the user names the hooks, in a file of bash.

    mkinitcpio.conf(5): the file, then those of the directory beside it, in which HOOKS is set or added to. Where none
    of them sets it the answer is unknown here, and CheckInitramfs finds out.
    """
    if step.maker != "mkinitcpio":
        return
    hooks: list[str] | None = None
    for file in (paths.of(CONF), *sorted(paths.of(f"{CONF}.d").glob("*.conf"))):
        try:
            text = _COMMENT.sub("", file.read_text(errors="replace"))
        except OSError:
            continue
        for added, *words in _HOOKS.findall(text):
            hooks = [*(hooks or [] if added else []), *"".join(words).split()]
    if hooks is not None and HOOK not in hooks:
        text = f"{CONF} has no {HOOK} in HOOKS: the initramfs would know nothing of the array"
        yield Refusal("initramfs-hooks", CONF, text, f"put {HOOK} before filesystems in HOOKS of {CONF}")


def missing_programs(names: Collection[str]) -> Iterator[Refusal]:
    """Yield a reason for each that is not installed."""
    for name in sorted(names):
        if find_program(name) is None and (name != "systemctl" or _SYSTEMD.is_dir()):
            package = f"install the package {PACKAGES.get(name, name)}"
            yield Refusal("not-installed", name, f"{name} is not installed", package)


# What follows restored files: systemd reads them again, boot images are rebuilt. A failure is reported and stops
# nothing: the array has to be removed, whatever is wrong with a boot image.


def reload_restored(index: int, plan: Plan, traces: Traces) -> Iterator[Said]:
    """Have systemd read a restored file again, as it read the edited one; of several edited in a row, once all are
    restored. Boot images come last: `rebuild_restored`.
    """
    before = plan.steps[index - 1] if index else None
    in_a_row = isinstance(before, FileStep) and "after" in traces.get(index - 1, ())
    if "after" not in traces.get(index, ()) or in_a_row:
        return
    later = range(index + 1, len(plan.steps))
    behind = dropwhile(lambda at: isinstance(plan.steps[at], FileStep), later)
    for at in takewhile(lambda at: isinstance(plan.steps[at], SystemStep), behind):
        step = plan.steps[at]
        if isinstance(step, steps.ReloadUnits):
            yield from _again(at, step, traces)


def rebuild_restored(plan: Plan, traces: Traces) -> Iterator[Said]:
    """Once the array is gone: Debian's hook writes every running array into an image whose mdadm.conf names none."""
    changed = [at for at, trace in traces.items() if "after" in trace]
    for at, step in enumerate(plan.steps):
        if isinstance(step, steps.RebuildInitramfs) and any(each < at for each in changed):
            yield from _again(at, step, traces)


def _again(at: int, step: SystemStep, traces: Traces) -> Iterator[Said]:
    if at not in traces:
        return
    yield Said(f"{purpose_of(step)}: {shell_words(step)}")
    try:
        yield from apply_system(step)
    except (Refused, Stopped) as error:
        yield Said(f"that failed; it may still have lines of the array: run {shell_words(step)} again later: {error}")


# Lines put into a text file of the system, and taken out again.
#
# These files belong to the user: everything that is not ours stays byte for byte.

LARGEST = 1 << 20  # bytes; mdadm.conf and fstab have a few thousand
_UNITS = "/etc/systemd/system"


def find_file(paths: Paths, path: str) -> Path:
    """Return the path of the file itself, behind all links. Raises Refused: a link leads out of the root, or it is not
    a regular file.
    """
    given, root = paths.of(path), paths.root.resolve()
    found = given.resolve()
    if root not in found.parents:
        raise Refused(f"{given} leads out of {root}, to {found}")
    if found.exists() and not found.is_file():
        raise Refused(f"{given} is not a regular file")
    if found.exists() and found.stat().st_size > LARGEST:
        raise Refused(f"{given} is larger than any file of its kind")
    if not found.parent.is_dir():
        raise Refused(f"{found.parent} is not there", hint="install the package that the file belongs to")
    return found


def edited(before: bytes, step: FileStep) -> bytes:
    """Return the file with the lines in it; of a file that is written as a whole nothing else. A comment that names the
    same thing stays a comment.
    """
    if isinstance(step, steps.WriteFile):
        return "".join(f"{line}\n" for line in step.lines).encode()
    wanted = [line.encode() for line in step.lines]
    lines = before.split(b"\n")
    last = lines.pop()  # empty where the file ends as it should
    lines += [last] if last else []
    key = step.instead_of.encode()
    places = [at for at, line in enumerate(lines) if key in line and not line.lstrip().startswith(b"#")]
    if all(each in lines for each in wanted) and all(lines[at] in wanted for at in places):
        return before
    first = places[0] if places else len(lines)
    gone = {*places, *(at for at, line in enumerate(lines) if wanted == [line])}
    front, back = ([lines[at] for at in part if at not in gone] for part in (range(first), range(first, len(lines))))
    return b"\n".join([*front, *wanted, *back]) + b"\n"


def _has_no_reader(step: FileStep, paths: Paths) -> bool:
    """A unit, on a system that has no systemd."""
    return step.path.startswith(f"{_UNITS}/") and not paths.of(_UNITS).is_dir()


def find_file_trace(step: FileStep, paths: Paths, *, keeps: bool = True) -> dict[str, str]:
    """The whole file as it is now, a digest of what it will be, and, if it `keeps` one, the name of a copy that is not
    there yet. Raises Refused like `find_file`.
    """
    if _has_no_reader(step, paths):
        return {}
    file = find_file(paths, step.path)
    before = _read(file)
    after = edited(before or b"", step)
    if before == after:
        return {}
    found = {"after": hashlib.sha256(after).hexdigest()}
    if before is not None:
        found["before"] = base64.b64encode(before).decode()
        if keeps:  # those of earlier runs stay: fstab.before-aligntool, fstab.before-aligntool.1 ...
            name = Path(step.backup).name
            names = (f"{name}.{number}" if number else name for number in count())
            found["backup"] = next(each for each in names if not os.path.lexists(file.with_name(each)))
    return found


def backup_of(step: FileStep, paths: Paths, trace: Trace) -> Path | None:
    """Return the copy that this work keeps of what the file was, or None."""
    return find_file(paths, step.path).with_name(trace["backup"]) if "backup" in trace else None


def edit_file(step: FileStep, paths: Paths, trace: Trace) -> Iterator[Said]:
    """`trace`: as `find_trace` found it. Raises Stopped where the file cannot be written; then it is as it was."""
    if _has_no_reader(step, paths):
        yield Said(f"{_UNITS} is not there, so no systemd would read {step.path}")
        return
    file = find_file(paths, step.path)
    before = _read(file)
    after = edited(before or b"", step)
    if before == after:
        yield Said(f"{step.path} has its lines already")
        return
    with failing_as(Stopped, f"{file} cannot be written"):
        if before is not None and (backup := backup_of(step, paths, trace)):
            keep_copy(file, backup)  # one that is there by now is of this very step, which was cut short
            yield Said(f"what it was is kept as {backup}")
        replace_file(file, after)


def restore_file(step: FileStep, paths: Paths, trace: Trace) -> Iterator[Said]:
    """What it was, if it is still as it was left, and then without the copy; else the user is told which lines to take
    out.
    """
    if "after" not in trace:
        return  # the lines were there before
    file = find_file(paths, step.path)
    now = _read(file)
    if now is not None and hashlib.sha256(now).hexdigest() == trace["after"]:
        try:
            before = _before(trace)
            remove_file(file) if before is None else replace_file(file, before)
        except (OSError, ValueError) as error:
            raise Stopped(f"{file} cannot be put back: {error}") from error
        yield Said(f"{step.path} is as it was")
    elif now is not None and now == _before(trace):
        pass  # the step was cut short before it wrote anything but the copy
    elif now is not None and any(line.encode() in now.split(b"\n") for line in step.lines):
        own = f"; take out by hand: {' / '.join(step.lines)}" if isinstance(step, EditFile) else ""
        yield Said(f"{step.path} was changed since, and is left as it is{own}")
        return
    # The copy, only one that is what the file was before this work.
    backup = backup_of(step, paths, trace)
    if backup is not None and _read(backup) == _before(trace):
        with failing_as(Stopped, f"{backup} cannot be removed"):
            remove_file(backup)


def _before(trace: Trace) -> bytes | None:
    return base64.b64decode(trace["before"], validate=True) if "before" in trace else None


def refuse_unwritable(step: FileStep, paths: Paths) -> Iterator[str]:
    """Yield why the file could not be replaced later, a sentence each."""
    try:
        "".join((*step.lines, step.instead_of if isinstance(step, EditFile) else "")).encode()
    except UnicodeEncodeError:  # from words of the command line that are not UTF-8
        yield f"{step.path}: what would be written into it is not UTF-8"
        return
    if _has_no_reader(step, paths):
        return
    try:
        file = find_file(paths, step.path)
    except Refused as error:
        yield str(error)
        return
    if not os.access(file.parent, os.W_OK):
        yield f"{file.parent} cannot be written"
    # Of root this asks for the read-only file system, and for the flag of chattr(1): fs/namei.c, inode_permission.
    if file.exists() and not os.access(file, os.W_OK):
        yield f"{file} cannot be replaced, it is immutable or read-only: sudo chattr -i {file}"
    if any(mount.place == str(file) for mount in mounts_now()):  # containers mount /etc/hosts and its like
        yield f"{file} is a mount point of its own, so it cannot be replaced: umount {file}"


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


# The copies that a work keeps of the files that it changes: one of each file, as it was before the work.


def is_kept(step: FileStep, plan: Plan, traces: Traces) -> bool:
    """Return whether the former content of the file is kept by an earlier step of it."""
    others = [(plan.steps[at], trace) for at, trace in traces.items()]
    return any(isinstance(other, FileStep) and other.path == step.path and "after" in trace for other, trace in others)


def kept_words(plan: Plan, traces: Traces, paths: Paths) -> Iterator[Said]:
    """Yield where the former content of each file is kept."""
    for at, trace in sorted(traces.items()):
        step = plan.steps[at]
        if isinstance(step, FileStep) and (backup := backup_of(step, paths, trace)):
            yield Said(f"what {step.path} was before is kept as {backup}")
