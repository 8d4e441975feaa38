"""Steps on the system: run programs, and edit its files."""

import base64
import grp
import hashlib
import os
import pwd
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from pathlib import Path

from aligntool import steps
from aligntool.audit.wording import shell_word
from aligntool.change import Plan, Said
from aligntool.commands import ByHand, by_hand, typed
from aligntool.errors import Refusal, Refused, Stopped, failing_as
from aligntool.linux.files import keep_copy, remove_file, replace_file
from aligntool.linux.installed import has_program, refuse_unusable, run_inside
from aligntool.linux.programs import (
    PACKAGES,
    ProgramResult,
    find_program,
    how_ended,
    run_or_stop,
    run_program,
)
from aligntool.linux.sysfs import Tree, mounts_now
from aligntool.raid.boot import FSTAB
from aligntool.raid.commands import command_in, command_of, purpose_of
from aligntool.steps import EditFile, FileStep, Mount, MountStep, Step, SystemStep
from aligntool.system import Installed, parse_fstab, parse_mdadm_conf, uuid_digits

# How a step on the system is traced before it begins, applied, and undone. Kinds of steps that need more have
# a section below; the others only run their command, and have nothing to undo. Commands and purposes:
# commands.py.

_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)
STATE = Path("/var/lib/aligntool")
_SHOWN = 500
_MOUNTING_S = 90.0  # as long as systemd waits for a mount
_PAUSE_S = 0.2

Trace = Mapping[str, str]
"""The state before a step began, needed to undo it: docs/crash-safety.md, "Arrays"."""
Traces = Mapping[int, Trace]  # by the index of the step


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the system's files and the records are."""

    root: Path = Path("/")
    state: Path = STATE
    installed: Installed | None = None  # the system below the root, if its own programs and mounts are meant

    def of(self, name: str) -> Path:
        """Return the path of a file of the system, below the root. Links in the path of an installed system
        lead where they would lead once it runs, never out of its folder.
        """
        if self.installed is None:
            return self.root / name.lstrip("/")
        tree = Tree(str(self.root))
        there = Path(name)
        while (found := tree.real(str(there))) is None:
            there = there.parent
        return Path(f"{self.root}{found}", Path(name).relative_to(there))

    def mounted(self, place: str) -> str:
        """Return where what the system has mounted at this place is mounted now."""
        return place if self.installed is None else f"{self.installed.root}{place}"


HERE = Paths()


def paths_of(plan: Plan) -> Paths:
    """Return the paths of the system that the plan is for."""
    return paths_below(plan.installed)


def paths_below(installed: Installed | None) -> Paths:
    return HERE if installed is None else Paths(Path(installed.root), installed=installed)


def find_system_trace(step: SystemStep, paths: Paths = HERE) -> dict[str, str]:
    """Return the current state of the system that is needed to undo the step."""
    match step:
        case steps.MakeDirectory(path):
            place = Path(paths.mounted(path))
            missing = [folder for folder in (place, *place.parents) if not folder.exists()]
            return {"made": str(missing[-1])} if missing else {}  # the topmost
        case steps.SetPartitionType():
            return {"type": _type_now(step)}
    return {"before": "there"} if _effect(step, paths)[0] else {}


def apply_system(step: SystemStep, paths: Paths = HERE) -> Iterator[Said]:
    """Run the step's command, unless it is in effect already. Raises Stopped with the output of the
    program.
    """
    # systemctl enables units also where systemd does not run, as in a chroot.
    is_absent = isinstance(step, steps.EnableUnit) and not _is_installed("systemctl", paths)
    if is_absent or (isinstance(step, steps.ReloadUnits) and not _SYSTEMD.is_dir()):
        yield Said(f"systemd is not running here, so this is skipped: {shell_words(step, paths)}")
        return
    if isinstance(step, steps.PrepareDirectory | steps.BindMount):
        _mount_again(step.mount)
    if isinstance(step, MountStep | steps.MakeDirectory):
        for why in _led_away(step.path, paths):
            raise Stopped(why)
    if _effect(step, paths)[0]:
        if isinstance(step, Mount) and (why := _other_than_fstab(step.path, paths)):
            raise Stopped(why, hint=typed("umount", paths.mounted(step.path)))
        yield Said("already done")
        return
    if isinstance(step, steps.BindMount) and is_mounted(step.path):
        text = f"something else than {step.source} is mounted at {step.path}"
        raise Stopped(text, hint=typed("umount", step.path))
    ended = _run_or_stop(step, command_of(step), paths)
    # mount(8), nofail: a missing source is no error
    if isinstance(step, MountStep) and not _effect(step, paths)[0]:
        raise Stopped(f"nothing is mounted at {paths.mounted(step.path)} after {shell_words(step, paths)}")
    if isinstance(step, steps.CheckInitramfs) and uuid_digits(step.uuid) not in uuid_digits(ended.output):
        printed = ended.output.strip()[-_SHOWN:] or "nothing"
        raise Stopped(f"{purpose_of(step)}: {step.uuid} was not found; printed: {printed}")


def _run_or_stop(step: SystemStep, words: Sequence[str], paths: Paths) -> ProgramResult:
    """Run a command that does or undoes a step, in an installed system if it is one of its own. Raises
    Stopped.
    """
    if paths.installed is None or not isinstance(step, steps.InstalledStep):
        return run_or_stop(*(command_in(step, paths.installed) if isinstance(step, Mount) else words))
    try:
        ended = run_inside(paths.installed, *words)
    except Refused as error:
        raise Stopped(str(error)) from error
    if ended.code:
        how = f"{words[0]} {how_ended(ended.code)} in {paths.root}"
        raise Stopped(f"{how}: {ended.output_tail or 'no error message'}")
    return ended


def _is_installed(program: str, paths: Paths) -> bool:
    if paths.installed is not None:
        return has_program(paths.installed, program)
    return find_program(program) is not None


def undo_system(step: SystemStep, trace: Trace, paths: Paths = HERE) -> Iterator[Said]:
    """Undo the mount, swap, unit, type or directory of a step, if the step made it."""
    in_effect, command, text = _effect(step, paths)
    if isinstance(step, steps.SetPartitionType):
        old = trace.get("type")  # restored only while the partition has the type that the step gave it
        if old and _same_type(_type_now(step), step.type_code) and not _same_type(old, step.type_code):
            run_or_stop(*command_of(replace(step, type_code=old)))
            yield Said(f"partition {step.partition} of {step.disk} has its old type again")
    elif isinstance(step, steps.MakeDirectory) and "made" in trace:
        yield from _remove_directories(step, trace, paths)
    elif isinstance(step, steps.PrepareDirectory):
        return  # it goes with its file system
    elif in_effect and "before" not in trace:
        if isinstance(step, Mount) and (why := _other_than_fstab(step.path, paths)):
            yield Said(f"{why}; it stays mounted")
        elif isinstance(step, Mount):
            run_or_stop(*command)
            yield Said(text)
        else:
            _run_or_stop(step, command, paths)
            yield Said(text)


def shell_words(step: SystemStep, paths: Paths = HERE) -> str:
    return " ".join(command_in(step, paths.installed))


def is_in_effect(step: FileStep | SystemStep, paths: Paths) -> bool:
    """Return whether the step would change nothing now; False also means unknown."""
    if not isinstance(step, FileStep):
        return _effect(step, paths)[0]
    with suppress(OSError, Refused):
        before = _read(find_file(paths, step.path))
        return before is not None and edited(before, step) == before
    return False


def _effect(step: SystemStep, paths: Paths) -> tuple[bool, tuple[str, ...], str]:
    """Return whether the step is in effect now, the command that undoes it, and the message for that."""
    match step:
        case Mount(path):
            place = paths.mounted(path)
            return is_mounted(place), ("umount", place), f"{place} is unmounted"
        case steps.PrepareDirectory():
            return _is_prepared(step), (), ""
        case steps.BindMount(path, source):
            return _is_bound(path, source), ("umount", path), f"{path} is unmounted"
        case steps.Swapon(uuid):
            return _is_swap(uuid), ("swapoff", "-U", uuid), "the swap space is no longer used"
        case steps.EnableUnit(unit):
            return _is_enabled(unit, paths), ("systemctl", "disable", unit), f"{unit} is disabled"
    return False, (), ""


# Mount, Swapon, EnableUnit


def _is_enabled(unit: str, paths: Paths) -> bool:
    words = ("systemctl", "is-enabled", unit)
    if paths.installed is None:
        return run_program(*words, only_reads=True).code == 0
    with suppress(Refused):
        return run_inside(paths.installed, *words, only_reads=True).code == 0
    return False


def is_mounted(place: str) -> bool:
    """Return whether the path is a mount point."""
    return run_program("mountpoint", "-q", place).code == 0


def _mount_again(place: str) -> None:
    """Mount what fstab has for the place, unless it is mounted: after a reboot it may not be. Raises Stopped
    if something else is mounted there.
    """
    if not is_mounted(place):
        list(apply_system(Mount(place)))
    if why := _other_than_fstab(place):
        raise Stopped(why, hint=typed("umount", place))


def _is_bound(place: str, source: str) -> bool:
    """Return whether the directory `source` is mounted at the place."""
    with suppress(OSError):
        return is_mounted(place) and Path(place).samefile(source)
    return False


def _led_away(place: str, paths: Paths) -> Iterator[str]:
    """Yield why a mount point of an installed system cannot be used from outside: a link in its path would
    lead out of the folder, and in a chroot the kernel's own folders are others.
    """
    if paths.installed is None:
        return
    root = paths.installed.root
    if Path(place).parts[1:2] in (("dev",), ("proc",), ("run",), ("sys",)):
        yield f"{place} is in a folder of the kernel, in place of which its programs see that of this machine"
    for path in (Path(place), *Path(place).parents, Path(FSTAB)):
        if os.path.islink(f"{root}{path}"):  # noqa: PTH114
            yield f"{path} is a symbolic link in {root}: use the path that it leads to"


def refuse_mount_point(step: MountStep, paths: Paths) -> Iterator[str]:
    """Yield why the mount point cannot be used, a sentence each."""
    led_away = list(_led_away(step.path, paths))
    if led_away:
        yield from led_away
        return
    place = paths.mounted(step.path)
    real = os.path.realpath(place)
    if isinstance(step, steps.BindMount) and real != place:
        # systemd.mount(5): a mount unit refuses a path with a symbolic link
        yield f"{place} leads to {real}, which has to be named instead"
        return
    unit = _mount_unit(step.path)
    if unit and os.path.lexists(paths.of(f"{_UNITS}/{unit}")):  # systemd.unit(5), UNIT FILE LOAD PATH
        yield f"{_UNITS}/{unit} is a mount unit, which at boot is used instead of the line in fstab"
    if is_mounted(place):
        yield f"something is already mounted at {place}"
    elif not (
        above := next(path for path in (Path(place), *Path(place).parents) if os.path.lexists(path))
    ).is_dir():
        yield f"{above} is not a directory"
    elif above.parts[1:2] in (("proc",), ("sys",)):
        yield f"no directory can be made in {above}"
    elif names := files_below(place):
        kinds = ("directory" if (Path(place) / name).is_dir() else "file" for name in names)
        listed = ", ".join(f"the {kind} {name}" for kind, name in zip(kinds, names, strict=True))
        yield f"{place} is not empty; a mount would hide {listed}"


def _mount_unit(place: str) -> str:
    """Return systemd's name of the mount of a place, "" if it is not known."""
    words = ("systemd-escape", "--path", "--suffix=mount", place)
    return run_program(*words, only_reads=True).output.strip()


def wait_for_mounts(places: Sequence[str]) -> bool:
    """Wait until systemd has finished the mounts of these places that are still to be made. Return whether it
    had any: at boot it mounts what fstab has while it runs other units.
    """
    mounted = {mount.place for mount in mounts_now()}
    missing = [place for place in places if place not in mounted]
    if not missing or not _SYSTEMD.is_dir():
        return False
    units = [unit for place in missing if (unit := _mount_unit(place))]
    end = time.monotonic() + _MOUNTING_S
    had_any = False
    while units and time.monotonic() < end:
        words = ("systemctl", "show", "--property=Job", "--value", *units)
        if not any(word.strip("0") for word in run_program(*words, only_reads=True).output.split()):
            break
        had_any = True
        time.sleep(_PAUSE_S)
    return had_any


def _uuid_at(place: str) -> str:
    """Return the UUID of the file system mounted there, the topmost of several; "" if unknown."""
    found = run_program("findmnt", "--noheadings", "--output", "UUID", "--mountpoint", place).output.split()
    return found[-1] if found else ""


def _other_than_fstab(place: str, paths: Paths = HERE) -> str:
    """Return a sentence if another file system is mounted than fstab has there; "" if it is that one, or
    unknown.
    """
    fstab = ("--fstab",) if paths.installed is None else ("--tab-file", str(paths.of(FSTAB)))
    source = run_program("findmnt", *fstab, "--noheadings", "--output", "SOURCE", place).output.strip()
    place = paths.mounted(place)
    mounted = _uuid_at(place)
    wanted = source.removeprefix("UUID=")
    if wanted == source or not mounted or wanted.lower() == mounted.lower():
        return ""
    return f"at {place} the file system {mounted} is mounted, but fstab has {wanted} there"


def files_below(place: str, made: Collection[str] = ()) -> list[str]:
    """Return a few names in a directory, without lost+found, which mkfs makes, and without the directories
    that the plan `made` as long as they are empty.
    """
    try:
        found = (file for file in Path(place).iterdir() if file.name != "lost+found")
        return sorted(file.name for file in found if not (file.name in made and _is_empty(file)))[:5]
    except OSError:
        return []


def _is_empty(file: Path) -> bool:
    return file.is_dir() and not file.is_symlink() and not any(file.iterdir())


def directories_made(plan: Plan) -> set[str]:
    """Return the names of the directories that the plan makes at the top of its file system."""
    found = plan.of(steps.PrepareDirectory)
    return {Path(step.path).name for step in found if step.path != step.mount}


def refuse_files(where: str, names: Sequence[str]) -> None:
    """Raise Refused if the file system that would be removed has files."""
    if names:
        hint = "to keep the array: aligntool resume\nto undo it anyway, move the files away first"
        raise Refused(f"{where} holds files: {', '.join(names)}; they would be lost", hint=hint)


def _is_swap(uuid: str) -> bool:
    active = run_program("swapon", "--show=UUID", "--noheadings", "--raw")
    return uuid.lower() in active.output.lower().split()


def is_started_by_fstab(step: Step, uuids: Collection[str], paths: Paths) -> bool:
    """Return whether a mount or swap is active whose step never began: the machine was rebooted with its line
    in fstab. Only mounts of file systems with these UUIDs count.
    """
    if isinstance(step, MountStep):
        return _uuid_at(paths.mounted(step.path)).lower() in {uuid.lower() for uuid in uuids}
    return isinstance(step, steps.Swapon) and _is_swap(step.uuid)


# SetPartitionType


def _type_now(step: steps.SetPartitionType) -> str:
    """Return the type as sfdisk takes it. Raises Stopped if sfdisk finds no such partition."""
    return run_or_stop("sfdisk", "--part-type", step.disk, str(step.partition)).output.strip()


def _same_type(one: str, other: str) -> bool:
    return one.lower().removeprefix("0x") == other.lower().removeprefix("0x")


# PrepareDirectory


def _is_prepared(step: steps.PrepareDirectory) -> bool:
    """Return whether the directory exists and has the owner, group and mode of the step."""
    path = Path(step.path)
    try:
        found = path.stat()
        owner = _id_of(step.owner, lambda name: pwd.getpwnam(name).pw_uid)
        group = _id_of(step.group, lambda name: grp.getgrnam(name).gr_gid)
    except (OSError, KeyError):
        return False
    mode = int(step.mode, 8) if step.mode else None
    has = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))
    return path.is_dir() and all(
        want in (None, one) for want, one in zip((owner, group, mode), has, strict=True)
    )


def _id_of(word: str, number_of: Callable[[str], int]) -> int | None:
    """Return the number of a user or group, None for "". Raises KeyError for a name that is not known."""
    if not word:
        return None
    return int(word) if word.isdecimal() else number_of(word)


def refuse_unknown_names(step: steps.PrepareDirectory) -> Iterator[Refusal]:
    """Yield a reason for an owner and for a group that this machine does not know."""
    known: dict[str, tuple[str, Callable[[str], object]]] = {
        "owner": (step.owner, pwd.getpwnam),
        "group": (step.group, grp.getgrnam),
    }
    for key, (word, find) in known.items():
        if word and not word.isdecimal():
            try:
                find(word)
            except KeyError:
                text = f"{word!r}, the {key} of {step.path}, is not known here"
                yield Refusal("invalid-option", key, text, f'{key} = "0", or another number')


# MakeDirectory


def _remove_directories(step: steps.MakeDirectory, trace: Trace, paths: Paths) -> Iterator[Said]:
    """Remove the directories that the step made, from the innermost outwards, while they are empty."""
    made = Path(trace["made"])
    folder = Path(paths.mounted(step.path))
    with suppress(OSError):
        while made == folder or made in folder.parents:
            folder.rmdir()
            yield Said(f"the directory {folder} is removed")
            folder = folder.parent


# CheckInitramfs, RebuildInitramfs


CONF = "/etc/mkinitcpio.conf"
HOOK = "mdadm_udev"
_HOOKS = re.compile(r"""^[ \t]*HOOKS(\+?)=(?:\(([^)]*)\)|"([^"]*)"|'([^']*)')""", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)


def refuse_hooks(step: steps.RebuildInitramfs, paths: Paths) -> Iterator[Refusal]:
    """Yield a reason if mkinitcpio would omit mdadm.conf: on Arch the user lists the hooks, in a bash file.

    mkinitcpio.conf(5): the file, then those in the directory beside it, set HOOKS or append to it. If none of
    them sets it the answer is unknown here, and CheckInitramfs finds out.
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
        text = f"{CONF} has no {HOOK} in HOOKS: the initramfs would not contain mdadm.conf"
        yield Refusal("initramfs-hooks", CONF, text, f"put {HOOK} before filesystems in HOOKS of {CONF}")


def refuse_installed(names: frozenset[str], installed: Installed) -> Iterator[Refusal]:
    """Yield why the programs of an installed system cannot be run, or a reason for each that it lacks."""
    unusable = list(refuse_unusable(installed))
    if unusable:
        yield from unusable
        return
    for name in sorted(names - {"systemctl"}):  # without systemd, nothing would read the unit
        if not has_program(installed, name):
            package = f"install the package {PACKAGES.get(name, name)} there"
            yield Refusal("not-installed", name, f"{name} is not installed in {installed.root}", package)


def missing_programs(names: Collection[str]) -> Iterator[Refusal]:
    """Yield a reason for each program that is not installed."""
    for name in sorted(names):
        if find_program(name) is None and (name != "systemctl" or _SYSTEMD.is_dir()):
            package = f"install the package {PACKAGES.get(name, name)}"
            yield Refusal("not-installed", name, f"{name} is not installed", package)


# After files are restored systemd reads them again, and boot images are rebuilt. A failure is reported and
# does not stop the undo: the array has to be removed, whatever is wrong with a boot image.


def reload_restored(index: int, plan: Plan, traces: Traces, paths: Paths = HERE) -> Iterator[Said]:
    """Have systemd read a restored file again, as it read the edited one; for consecutive edits, only once
    all are restored. Boot images come last: `rebuild_restored`.
    """
    before = plan.steps[index - 1] if index else None
    more_to_restore = isinstance(before, FileStep) and "after" in traces.get(index - 1, ())
    if "after" not in traces.get(index, ()) or more_to_restore:
        return
    later = range(index + 1, len(plan.steps))
    after_edits = dropwhile(lambda number: isinstance(plan.steps[number], FileStep), later)
    for number in takewhile(lambda number: isinstance(plan.steps[number], SystemStep), after_edits):
        step = plan.steps[number]
        if isinstance(step, steps.ReloadUnits):
            yield from _repeat(number, step, traces, paths)


def rebuild_restored(plan: Plan, traces: Traces, paths: Paths) -> Iterator[Said]:
    """Rebuild the boot images, once the array is removed: Debian's hook writes every running array into an
    image whose mdadm.conf names none.
    """
    changed = [index for index, trace in traces.items() if "after" in trace]
    for number, step in plan.numbered(steps.RebuildInitramfs):
        if any(edit < number for edit in changed):
            yield from _repeat(number, step, traces, paths)


def _repeat(index: int, step: SystemStep, traces: Traces, paths: Paths) -> Iterator[Said]:
    if index not in traces:
        return
    words = shell_words(step, paths)
    yield Said(f"{purpose_of(step)}: {words}")
    try:
        yield from apply_system(step, paths)
    except (Refused, Stopped) as error:
        yield Said(f"that failed; lines of the array may remain: run {words} again later: {error}")


# Editing and restoring the text files of the system.
#
# These files belong to the user: all other lines stay byte for byte.

LARGEST = 1 << 20  # bytes; mdadm.conf and fstab have a few thousand
_UNITS = "/etc/systemd/system"


def find_file(paths: Paths, path: str) -> Path:
    """Return the path of the file with all links resolved. Raises Refused if a link leads out of the root, or
    if it is not a regular file of a plausible size.
    """
    given = paths.of(path)
    root = paths.root.resolve()
    found = given.resolve()
    if root not in found.parents:
        raise Refused(f"{given} points outside {root}, to {found}")
    if found.exists() and not found.is_file():
        raise Refused(f"{given} is not a regular file")
    if found.exists() and found.stat().st_size > LARGEST:
        raise Refused(f"{given} is too large for a file of its kind")
    if not found.parent.is_dir():
        raise Refused(f"{found.parent} not found", hint="install the package that the file belongs to")
    return found


def text_of(path: str, paths: Paths) -> str:
    """Return the content of a system file, or "" if it cannot be read."""
    try:
        # with its carriage returns
        return find_file(paths, path).read_bytes().decode(errors="surrogateescape")
    except (OSError, Refused):
        return ""


def edited(before: bytes, step: FileStep) -> bytes:
    """Return the new content of the file: the old one with the lines inserted, or only the lines if the step
    writes it whole. Comments that contain the replaced text stay.
    """
    if isinstance(step, steps.WriteFile):
        return "".join(f"{line}\n" for line in step.lines).encode()
    wanted = [line.encode() for line in step.lines]
    lines = before.split(b"\n")
    last = lines.pop()  # empty if the file ends with a newline
    lines += [last] if last else []
    key = step.instead_of.encode()
    matches = [
        index for index, line in enumerate(lines) if key in line and not line.lstrip().startswith(b"#")
    ]
    if all(line in lines for line in wanted) and all(lines[index] in wanted for index in matches):
        return before
    first = matches[0] if matches else len(lines)
    gone = {*matches, *(index for index, line in enumerate(lines) if line in wanted)}
    front, back = (
        [lines[row] for row in part if row not in gone] for part in (range(first), range(first, len(lines)))
    )
    return b"\n".join([*front, *wanted, *back]) + b"\n"


def _has_no_reader(step: FileStep, paths: Paths) -> bool:
    """Return whether the file is a unit, on a system without systemd."""
    return step.path.startswith(f"{_UNITS}/") and not paths.of(_UNITS).is_dir()


def find_file_trace(step: FileStep, paths: Paths, *, keeps: bool = True) -> dict[str, str]:
    """Return the current content of the file, the digest of its new content, and, if it `keeps` a backup, an
    unused name for that. Raises Refused like `find_file`.
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
        if keeps:
            found["backup"] = _next_backup(file, Path(step.backup).name)
    return found


def backup_of(step: FileStep, paths: Paths, trace: Trace) -> Path | None:
    """Return the path of the backup that this step keeps of the file, or None."""
    return find_file(paths, step.path).with_name(trace["backup"]) if "backup" in trace else None


def edit_file(step: FileStep, paths: Paths, trace: Trace) -> Iterator[Said]:
    """Edit the file. `trace`: of `find_file_trace`. Raises Stopped if it cannot be written; then it is
    unchanged.
    """
    if _has_no_reader(step, paths):
        yield Said(f"{_UNITS} not found, so systemd would not read {step.path}")
        return
    file = find_file(paths, step.path)
    before = _read(file)
    after = edited(before or b"", step)
    if before == after:
        yield Said(f"{paths.mounted(step.path)} already has its lines")
        return
    if isinstance(step, EditFile) and (why := _unplanned_text(step, before or b"", after)):
        name = paths.mounted(step.path)
        raise Stopped(f"{name} was changed since the plan was made: {why}; it is left as it is")
    with failing_as(Stopped, f"{file} cannot be written"):
        if before is not None and (backup := backup_of(step, paths, trace)):
            keep_copy(file, backup)  # if it exists by now, this step wrote it before it was interrupted
            yield Said(f"its former content is kept as {backup}")
        replace_file(file, after)


def _unplanned_text(step: EditFile, before: bytes, after: bytes) -> str:
    """Return why the edit no longer fits the file, which may have been changed before a resume; "" if it
    does. mdadm starts no array that two ARRAY lines match (config.c, conf_match), and a mount point needs one
    line.
    """
    key = step.instead_of
    lines = before.split(b"\n")
    is_line = len(key.split()) > 1  # of the user, else a UUID
    if is_line and not any(key.encode() in line and not line.lstrip().startswith(b"#") for line in lines):
        return f"the line to be replaced is not there: {key}"
    counts = [Counter(_subjects(step.path, text.decode(errors="replace"))) for text in (before, after)]
    doubled = [subject for subject, count in counts[1].items() if count > max(1, counts[0][subject])]
    return f"two lines would be for {', '.join(doubled)}" if doubled else ""


def _subjects(path: str, text: str) -> Iterator[str]:
    """Yield the mount point of each line of fstab, the UUID of each ARRAY line of an mdadm.conf."""
    if path == FSTAB:
        yield from (line.place for line in parse_fstab(text) if line.place.startswith("/"))
    else:
        yield from (line.uuid for line in parse_mdadm_conf(text, path).arrays if line.uuid)


def restore_file(step: FileStep, paths: Paths, trace: Trace) -> Iterator[Said]:
    """Restore the file, unless it was changed since, and remove its backup; a changed file is left, with a
    message that lists the lines to remove.
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
            raise Stopped(f"{file} cannot be restored: {error}") from error
        yield Said(f"{paths.mounted(step.path)} is restored")
    elif now != _before(trace):  # equal if the step was interrupted before it wrote anything but the backup
        left = isinstance(step, EditFile) and any(
            line.encode() in (now or b"").splitlines() for line in step.lines
        )
        own = f"; remove by hand: {' / '.join(step.lines)}" if left else ""
        yield Said(f"{paths.mounted(step.path)} was changed since, so it is left as it is{own}")
        return  # the backup may be the only copy of its former content
    # Remove the backup only if it equals the file before this step.
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
        yield f"{step.path}: the text to be written is not UTF-8"
        return
    if _has_no_reader(step, paths):
        return
    try:
        file = find_file(paths, step.path)
    except Refused as error:
        yield str(error)
        return
    # For root, access(2) checks only for a read-only file system and the flags of chattr(1): fs/namei.c,
    # inode_permission.
    if os.statvfs(file.parent).f_flag & os.ST_RDONLY:
        how = by_hand(ByHand.READ_ONLY, "mount", shell_word(str(file.parent)))
        yield f"{file.parent} is on a file system that is mounted read-only: {how}"
    else:
        if not os.access(file.parent, os.W_OK):
            yield f"{file.parent} cannot be written"
        if file.exists() and not os.access(file, os.W_OK):
            how = by_hand(ByHand.READ_ONLY, "chattr", shell_word(str(file)))
            yield f"{file} cannot be replaced; it is immutable or read-only: {how}"
    if any(mount.place == str(file) for mount in mounts_now()):  # containers mount /etc/hosts and the like
        yield f"{file} is a mount point of its own, so it cannot be replaced: {typed('umount', str(file))}"


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


# The backups of the files that a plan changes: one of each file, as it was before the plan. Of all plans
# together the newest KEPT: fstab.before-aligntool, fstab.before-aligntool.1 ...

KEPT = 5


def _backups(file: Path, name: str) -> dict[int, Path]:
    """Return the backups of a file, by their numbers, the oldest first."""
    pattern = re.compile(rf"{re.escape(name)}(?:\.([1-9]\d{{0,8}}))?")
    found = {
        int(match[1] or 0): path for path in file.parent.iterdir() if (match := pattern.fullmatch(path.name))
    }
    return dict(sorted(found.items()))


def _next_backup(file: Path, name: str) -> str:
    """Return an unused name, with a number above those of all backups that are there."""
    number = max(_backups(file, name), default=-1) + 1
    return f"{name}.{number}" if number else name


def remove_old_backups(plan: Plan, traces: Traces, paths: Paths) -> Iterator[Said]:
    """Remove all but the newest backups of each file of which this plan kept one."""
    for index in sorted(traces):
        step = plan.steps[index]
        if not isinstance(step, FileStep) or backup_of(step, paths, traces[index]) is None:
            continue
        file = find_file(paths, step.path)
        old = list(_backups(file, Path(step.backup).name).values())[:-KEPT]
        for backup in old:
            if backup.is_symlink() or not backup.is_file():
                continue
            try:
                remove_file(backup)
                yield Said(f"{backup} is removed: the newest {KEPT} are kept")
            except OSError as error:
                yield Said(f"{backup} cannot be removed: {error.strerror}")


def has_backup(step: FileStep, plan: Plan, traces: Traces) -> bool:
    """Return whether an earlier step on the same file keeps its former content."""
    others = [(plan.steps[index], trace) for index, trace in traces.items()]
    return any(
        isinstance(other, FileStep) and other.path == step.path and "after" in trace
        for other, trace in others
    )


def backup_messages(plan: Plan, traces: Traces, paths: Paths) -> Iterator[Said]:
    """Yield where the former content of each file is kept."""
    for index, trace in sorted(traces.items()):
        step = plan.steps[index]
        if isinstance(step, FileStep) and (backup := backup_of(step, paths, trace)):
            yield Said(f"the former content of {paths.mounted(step.path)} is kept as {backup}")
