"""Steps on the system: files, backups, commands, initramfs."""

import base64
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path

from aligntool.change import Plan, Said
from aligntool.errors import Refused, Stopped
from aligntool.linux.files import keep_copy, replace_file, sync_folder
from aligntool.linux.process import PACKAGES, find_program, run_or_stop, run_program
from aligntool.linux.sysfs import mounts_now
from aligntool.raid.record import Record, Site
from aligntool.steps import EditFile, FileStep, RunCommand, Step, WriteFile

# Commands of the system, run and taken back: mounts, swap, boot images, what systemd knows.
#
# In: a RunCommand step. Out: what it printed is checked, or Stopped. Alone because most commands may simply
# be run again, and a few need to know whether their work is done, and how it is undone.

REBUILDERS = ("update-initramfs", "dracut", "mkinitcpio")
_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)
_SHOWN = 500


def find_command_trace(step: RunCommand) -> dict[str, str]:
    """The topmost folder that `mkdir -p` will make; a partition's type; whether the mount or swap was there before."""
    if step.command[:2] == ("mkdir", "-p"):
        place = Path(step.command[2])
        missing = [each for each in (place, *place.parents) if not each.exists()]
        return {"made": str(missing[-1])} if missing else {}
    if _sets_type(step):
        return {"type": _type_now(step)}
    return {"before": "there"} if _is_done(step) else {}


def run_command(step: RunCommand) -> Iterator[Said]:
    """Raises Stopped with what it said."""
    if step.command[0] == "systemctl" and not _SYSTEMD.is_dir():
        yield Said("systemd does not run here, so there is nothing to tell it")
        return
    if _is_done(step):
        if step.command[0] == "mount" and (why := _other_than_said(step.command[1])):
            raise Stopped(why, hint=f"sudo umount {step.command[1]}, then aligntool resume")
        yield Said("done already")
        return
    said = run_or_stop(*step.command)
    if step.expects and step.expects not in said.output:
        raise Stopped(
            f"{' '.join(step.command)} did not print {step.expects}: {said.output.strip()[-_SHOWN:] or 'nothing'}"
        )


def undo_command(step: RunCommand, trace: Mapping[str, str]) -> Iterator[Said]:
    """Mounts, swap and folders that were made go away, types come back; what else was run has nothing to undo."""
    match step.command:
        case ("mount", place) if "before" not in trace and is_mounted(place):
            if why := _other_than_said(place):
                yield Said(f"{why}; it is left there")
                return
            run_or_stop("umount", place)
            yield Said(f"{place} is not mounted any more")
        case ("swapon", "-U", uuid) if "before" not in trace and _is_swap(uuid):
            run_or_stop("swapoff", "-U", uuid)
            yield Said("the swap is switched off")
        case ("systemctl", "enable", unit) if "before" not in trace and _is_enabled(unit):
            run_or_stop("systemctl", "disable", unit)
            yield Said(f"{unit} is not enabled any more")
        case ("sfdisk", *words, path, number, given) if _sets_type(step) and trace.get("type"):
            if _same_type(_type_now(step), given) and not _same_type(trace["type"], given):
                run_or_stop("sfdisk", *words, path, number, trace["type"])
                yield Said(f"partition {number} of {path} has its old type again")
        case ("mkdir", "-p", place) if "made" in trace:
            yield from _remove_folders(Path(place), Path(trace["made"]))


def builds_images(step: RunCommand) -> bool:
    """Of the system's files, for the next start."""
    return step.command[0] in REBUILDERS and not step.expects


def tells_systemd(step: RunCommand) -> bool:
    """That its files are others now; a unit that is enabled is no such thing."""
    return step.command[0] == "systemctl" and step.command[1] != "enable" and not step.expects


def rebuilds(step: RunCommand) -> bool:
    """It carries the system's files to where they count, so it is run again once they are put back."""
    return builds_images(step) or tells_systemd(step)


def is_mounted(place: str) -> bool:
    """Something is mounted at exactly this place."""
    return run_program("mountpoint", "-q", place).code == 0


def started_by_itself(step: RunCommand, uuids: Collection[str]) -> bool:
    """A mount or swap that was never asked for is there all the same: fstab has it, and the machine was started anew.
    Only of a file system with one of these UUIDs.
    """
    match step.command:
        case ("mount", place):
            return _uuid_at(place).lower() in {uuid.lower() for uuid in uuids}
        case ("swapon", "-U", uuid):
            return _is_swap(uuid)
    return False


def _uuid_at(place: str) -> str:
    """Of the file system that is mounted there, the last one where there are several; "": of none, or nobody knows."""
    found = run_program("findmnt", "--noheadings", "--output", "UUID", "--mountpoint", place).output.split()
    return found[-1] if found else ""


def _other_than_said(place: str) -> str:
    """A sentence where something else is mounted there than fstab says; "" where it is that, or nobody knows."""
    said = run_program("findmnt", "--fstab", "--noheadings", "--output", "SOURCE", place).output.strip()
    there, wanted = _uuid_at(place), said.removeprefix("UUID=")
    if wanted == said or not there or wanted.lower() == there.lower():
        return ""
    return f"at {place} the file system {there} is mounted, and fstab has {wanted} there"


def files_below(place: str) -> list[str]:
    """What lies in a folder but what mkfs makes itself; a few names are enough."""
    try:
        return sorted(each.name for each in Path(place).iterdir() if each.name != "lost+found")[:5]
    except OSError:
        return []


def missing_programs(steps: list[tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """(program, package) for each that is not installed, also where a script names it."""
    words = {command[0] for command in steps}
    for command in steps:
        if command[0] in ("sh", "bash") and command[1] == "-c":
            words |= {name for name in PACKAGES if name in command[2].replace(";", " ").split()}
    if not _SYSTEMD.is_dir():
        words.discard("systemctl")
    for word in sorted(words):
        if find_program(word) is None:
            yield word, PACKAGES.get(word, word)


def _is_done(step: RunCommand) -> bool:
    match step.command:
        case ("mount", place):
            return is_mounted(place)
        case ("swapon", "-U", uuid):
            return _is_swap(uuid)
        case ("systemctl", "enable", unit):
            return _is_enabled(unit)
    return False


def _is_enabled(unit: str) -> bool:
    return _SYSTEMD.is_dir() and run_program("systemctl", "is-enabled", unit).code == 0


def _sets_type(step: RunCommand) -> bool:
    return step.command[0] == "sfdisk" and "--part-type" in step.command


def _type_now(step: RunCommand) -> str:
    """As sfdisk takes it back. Raises Stopped where it finds no such partition."""
    *_, path, number, _ = step.command
    return run_or_stop("sfdisk", "--part-type", path, number).output.strip()


def _same_type(one: str, other: str) -> bool:
    return one.lower().removeprefix("0x") == other.lower().removeprefix("0x")


def _is_swap(uuid: str) -> bool:
    said = run_program("swapon", "--show=UUID", "--noheadings", "--raw")
    return uuid.lower() in said.output.lower().split()


def _remove_folders(place: Path, made: Path) -> Iterator[Said]:
    """From the inside out, as long as they are empty."""
    while made == place or made in place.parents:
        try:
            place.rmdir()
        except OSError:
            return
        yield Said(f"the folder {place} is gone")
        place = place.parent


def refuse_taken_place(step: RunCommand) -> Iterator[str]:
    """Why nothing should be mounted there, a sentence each."""
    if step.command[0] != "mount" or len(step.command) != 2:
        return
    place = step.command[1]
    if is_mounted(place):
        yield f"something is mounted at {place} already"
    elif Path(place).exists() and not Path(place).is_dir():
        yield f"{place} is no folder"
    elif files_below(place):
        yield f"{place} is not empty; a mount would hide {', '.join(files_below(place))}"


# Files that were put back, carried to where they count: what systemd knows, boot images.
#
# In: a plan and its record. Out: commands that are run once more. Alone because it is never a reason to stop:
# the array must go, whatever is wrong with a boot image.


def carry_back(index: int, plan: Plan, record: Record) -> Iterator[Said]:
    """A file that was put back is told to systemd, as the edited one was; of several that were edited in a row, once
    all are back. Boot images come last: `build_images_back`.
    """
    before = plan.steps[index - 1] if index else None
    in_a_row = isinstance(before, EditFile | WriteFile) and "after" in record.trace(index - 1)
    if "after" not in record.trace(index) or in_a_row:
        return
    later = range(index + 1, len(plan.steps))
    behind = dropwhile(lambda at: isinstance(plan.steps[at], EditFile | WriteFile), later)
    for at in takewhile(lambda at: isinstance(plan.steps[at], RunCommand), behind):
        step = plan.steps[at]
        if isinstance(step, RunCommand) and tells_systemd(step):
            yield from _again(at, step, record)


def build_images_back(plan: Plan, record: Record) -> Iterator[Said]:
    """Once the array is gone: Debian's hook writes every array that runs into an image whose mdadm.conf names none."""
    changed = [at for at in record.traces if "after" in record.trace(at)]
    for at, step in enumerate(plan.steps):
        if isinstance(step, RunCommand) and builds_images(step) and any(each < at for each in changed):
            yield from _again(at, step, record)


def _again(at: int, step: RunCommand, record: Record) -> Iterator[Said]:
    if at not in record.traces:
        return
    typed = " ".join(step.command)
    yield Said(f"{step.purpose}: {typed}")
    try:
        yield from run_command(step)
    except (Refused, Stopped) as error:
        yield Said(
            f"that failed, so it may still have lines of the array; type it again later: {typed}: {error}"
        )


# Lines put into a text file of the system, and taken out again.
#
# In: an EditFile step, below the root of a system. Out: the file with the lines in it, durable, and what it
# was kept beside it. Alone because these files belong to the user: everything that is not ours stays byte for
# byte.

LARGEST = 1 << 20  # bytes; mdadm.conf and fstab have a few thousand
_UNITS = "/etc/systemd/system"
MOST_BACKUPS = 10_000


def find_file(site: Site, path: str) -> Path:
    """The file itself, behind all links. Raises Refused: a link leads out of the root, or it is no regular file."""
    given, root = site.path(path), site.root.resolve()
    found = given.resolve()
    if root not in found.parents:
        raise Refused(f"{given} leads out of {root}, to {found}")
    if found.exists() and not found.is_file():
        raise Refused(f"{given} is no regular file")
    if found.exists() and found.stat().st_size > LARGEST:
        raise Refused(f"{given} is larger than any file of its kind")
    if not found.parent.is_dir():
        raise Refused(f"{found.parent} is not there", hint="install the package that the file belongs to")
    return found


def edited(before: bytes, step: FileStep) -> bytes:
    """The file with the lines in it; of a file that is written as a whole nothing else. A comment that names the same
    thing stays a comment.
    """
    if isinstance(step, WriteFile):
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
    front, back = (
        [lines[at] for at in part if at not in gone] for part in (range(first), range(first, len(lines)))
    )
    return b"\n".join([*front, *wanted, *back]) + b"\n"


def _has_no_reader(step: FileStep, site: Site) -> bool:
    """A unit, on a system that has no systemd."""
    return step.path.startswith(f"{_UNITS}/") and not site.path(_UNITS).is_dir()


def find_file_trace(step: FileStep, site: Site, *, keeps: bool = True) -> dict[str, str]:
    """The whole file as it is now, a digest of what it will be, and, if it `keeps` one, the name of a copy that is not
    there yet. Raises Refused like `find_file`.
    """
    if _has_no_reader(step, site):
        return {}
    file = find_file(site, step.path)
    before = _read(file)
    after = edited(before or b"", step)
    if before == after:
        return {}
    found = {"after": hashlib.sha256(after).hexdigest()}
    if before is not None:
        found["before"] = base64.b64encode(before).decode()
        if keeps:
            found["backup"] = _free_name(file.with_name(Path(step.backup).name))
    return found


def _free_name(backup: Path) -> str:
    """Those of earlier runs stay: fstab.before-aligntool, fstab.before-aligntool.1 ..."""
    names = (backup.name, *(f"{backup.name}.{number}" for number in range(1, MOST_BACKUPS)))
    free = (name for name in names if not os.path.lexists(backup.with_name(name)))
    return next(free, f"{backup.name}.{MOST_BACKUPS}")


def backup_of(step: FileStep, site: Site, trace: Mapping[str, str]) -> Path | None:
    """Return the copy that this work keeps of what the file was, or None."""
    return find_file(site, step.path).with_name(trace["backup"]) if "backup" in trace else None


def edit_file(step: FileStep, site: Site, trace: Mapping[str, str]) -> Iterator[Said]:
    """`trace`: as `find_trace` found it. Raises Stopped where the file cannot be written; then it is as it was."""
    if _has_no_reader(step, site):
        yield Said(f"{_UNITS} is not there, so no systemd would read {step.path}")
        return
    file = find_file(site, step.path)
    before = _read(file)
    after = edited(before or b"", step)
    if before == after:
        yield Said(f"{step.path} has its lines already")
        return
    try:
        if before is not None and (backup := backup_of(step, site, trace)):
            keep_copy(file, backup)  # one that is there by now is of this very step, which was cut short
            yield Said(f"what it was is kept as {backup}")
        replace_file(file, after)
    except OSError as error:
        raise Stopped(f"{file} cannot be written: {error.strerror}") from error


def restore_file(step: FileStep, site: Site, trace: Mapping[str, str]) -> Iterator[Said]:
    """What it was, if it is still as it was left, and then without the copy; else the user is told which lines to take
    out.
    """
    if "after" not in trace:
        return  # the lines were there before
    file = find_file(site, step.path)
    now = _read(file)
    if now is not None and hashlib.sha256(now).hexdigest() == trace["after"]:
        _put_back(file, trace)
        yield Said(f"{step.path} is as it was")
    elif now is not None and now == _before(trace):
        pass  # the step was cut short before it wrote anything but the copy
    elif now is not None and any(line.encode() in now.split(b"\n") for line in step.lines):
        yield Said(
            f"{step.path} was changed since, and is left as it is"
            + (f"; take out by hand: {' / '.join(step.lines)}" if isinstance(step, EditFile) else "")
        )
        return
    _remove_copy(step, site, trace)


def _before(trace: Mapping[str, str]) -> bytes | None:
    return base64.b64decode(trace["before"], validate=True) if "before" in trace else None


def _remove_copy(step: FileStep, site: Site, trace: Mapping[str, str]) -> None:
    """Only one that is what the file was before this work."""
    backup = backup_of(step, site, trace)
    if backup is None or _read(backup) != _before(trace):
        return
    try:
        backup.unlink()
        sync_folder(backup.parent)
    except OSError as error:
        raise Stopped(f"{backup} cannot be removed: {error.strerror}") from error


def _put_back(file: Path, trace: Mapping[str, str]) -> None:
    try:
        if "before" in trace:
            replace_file(file, base64.b64decode(trace["before"], validate=True))
        else:
            file.unlink()
            sync_folder(file.parent)
    except (OSError, ValueError) as error:
        raise Stopped(f"{file} cannot be put back: {error}") from error


def refuse_unwritable(step: FileStep, site: Site) -> Iterator[str]:
    """Why the file could not be replaced later, a sentence each."""
    try:
        "".join((*step.lines, step.instead_of if isinstance(step, EditFile) else "")).encode()
    except UnicodeEncodeError:  # from words of the command line that are no UTF-8
        yield f"{step.path}: what would be written into it is no UTF-8"
        return
    if _has_no_reader(step, site):
        return
    try:
        file = find_file(site, step.path)
    except Refused as error:
        yield str(error)
        return
    if not os.access(file.parent, os.W_OK):
        yield f"{file.parent} cannot be written"
    # Of root this asks for the read-only file system, and for the flag of chattr(1): fs/namei.c, inode_permission.
    if file.exists() and not os.access(file, os.W_OK):
        yield f"{file} may not be replaced by anybody: sudo chattr -i {file}"
    if _is_mount_point(file):
        yield f"{file} is a mount point of its own, so it cannot be replaced: umount {file}"


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _is_mount_point(file: Path) -> bool:
    """A file can be one: containers mount /etc/hosts and its like."""
    return any(mount.place == str(file) for mount in mounts_now())


# The copies that a work keeps of the files that it changes: one of each file, as it was before the work.


def is_kept(step: FileStep, record: Record) -> bool:
    """What the file was before this work is kept by an earlier step of it."""
    others = [(record.plan.steps[at], trace) for at, trace in record.traces.items()]
    return any(
        isinstance(other, EditFile | WriteFile) and other.path == step.path and "after" in trace
        for other, trace in others
    )


def kept_words(record: Record, site: Site) -> Iterator[Said]:
    """Where to find what each file was before, once all is done."""
    for at, trace in sorted(record.traces.items()):
        step = record.plan.steps[at]
        if isinstance(step, EditFile | WriteFile) and (backup := backup_of(step, site, trace)):
            yield Said(f"what {step.path} was before is kept as {backup}")


# Whether mkinitcpio would put mdadm.conf into the initramfs at all.
#
# In: the steps of a plan, and a site. Out: a reason where it would not. Alone because it is Arch's own:
# everywhere else the package of mdadm sees to it, and here the user does, in a file of bash.

CONF = "/etc/mkinitcpio.conf"
HOOK = "mdadm_udev"
_HOOKS = re.compile(r"""^[ \t]*HOOKS(\+?)=(?:\(([^)]*)\)|"([^"]*)"|'([^']*)')""", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)


def about_hooks(steps: Sequence[Step], site: Site) -> Iterator[tuple[str, str]]:
    """mkinitcpio.conf(5): the file, then those of the folder beside it, in which HOOKS is set or added to. Where none
    of them sets it nobody can tell, and the look into the image does.
    """
    if not any(isinstance(step, RunCommand) and step.command[0] == "mkinitcpio" for step in steps):
        return
    hooks: list[str] | None = None
    for file in (site.path(CONF), *sorted(site.path(f"{CONF}.d").glob("*.conf"))):
        try:
            text = _COMMENT.sub("", file.read_text(errors="replace"))
        except OSError:
            continue
        for added, *words in _HOOKS.findall(text):
            hooks = [*(hooks or [] if added else []), *"".join(words).split()]
    if hooks is not None and HOOK not in hooks:
        yield (
            f"{CONF} has no {HOOK} in HOOKS: the initramfs would know nothing of the array",
            f"put {HOOK} before filesystems in HOOKS of {CONF}",
        )
