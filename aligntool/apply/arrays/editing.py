"""Lines put into a text file of the system, and taken out again.

In: an EditFile step, below the root of a system. Out: the file with the lines in it, durable, and what it was kept
beside it. Alone because these files belong to the user: everything that is not ours stays byte for byte.
"""

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from aligntool.apply.arrays.replacing import keep_copy, replace_file, sync_folder
from aligntool.apply.arrays.site import Site
from aligntool.errors import Refused, Stopped
from aligntool.plan import EditFile, FileStep, Said, WriteFile

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


def find_trace(step: FileStep, site: Site, *, keeps: bool = True) -> dict[str, str]:
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
    """A file can be one: containers mount /etc/hosts and its like. proc_pid_mountinfo(5)."""
    places = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    return any(line.split(" ")[4] == str(file) for line in places)
