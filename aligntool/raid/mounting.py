"""fstab and crypttab of an array that is there: by UUID, and with nofail where the system can start without it.

In: an array and the system's tables. Out: edits of those files, and commands. Alone because here a field is changed in
a line that somebody wrote, and everything else in it stays as it is: fstab(5), crypttab(5), systemd.mount(5).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from aligntool.audit.coming_back import (
    SYSTEM_PLACES,
    above,
    base_node,
    fstab_lines,
    nodes_of,
    places_on,
)
from aligntool.audit.numbered import uuid_behind
from aligntool.audit.words import shell_word
from aligntool.errors import Objection
from aligntool.inventory import Disk, Inventory, TableLine
from aligntool.inventory import System as Files
from aligntool.plan import EditFile, RunCommand
from aligntool.raid.filesystems import PATIENCE, default_options, waits_as_asked
from aligntool.raid.systems import BACKUP

FSTAB, CRYPTTAB = "/etc/fstab", "/etc/crypttab"
FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "vfat", "exfat", "ntfs")
_PLACE = re.compile(r"/[^\s\\#]*")


@dataclass(frozen=True, slots=True)
class PlaceWish:
    """Where it is to be mounted from now on; None: nothing is changed."""

    place: str | None = None


def table_steps(disk: Disk, inventory: Inventory, files: Files) -> Iterator[EditFile]:
    for line in fstab_lines(disk, inventory, files):
        new = _mended(line, disk, inventory)
        if new != line.text:
            yield EditFile(FSTAB, (new,), line.text, FSTAB + BACKUP)
    for line in _crypt_lines(disk, inventory, files):
        uuid = uuid_behind(line.spec, disk)
        yield EditFile(CRYPTTAB, (_with_field(line.text, 1, f"UUID={uuid}"),), line.text, CRYPTTAB + BACKUP)


def _crypt_lines(disk: Disk, inventory: Inventory, files: Files) -> tuple[TableLine, ...]:
    return tuple(line for line in files.crypttab if base_node(line.spec) in nodes_of(disk, inventory))


def _mended(line: TableLine, disk: Disk, inventory: Inventory) -> str:
    text = line.text
    if _is_by_node(line, disk, inventory):
        text = _with_field(text, 0, f"UUID={uuid_behind(line.spec, disk)}")
    if _lacks_nofail(line):
        waits = line.kind == "swap" or waits_as_asked(line.options)
        more = ("nofail",) if waits else ("nofail", PATIENCE)
        text = _with_field(text, 3, ",".join((*(line.options or ("defaults",)), *more)))
    return text


def _is_by_node(line: TableLine, disk: Disk, inventory: Inventory) -> bool:
    return base_node(line.spec) in nodes_of(disk, inventory)


def _lacks_nofail(line: TableLine) -> bool:
    """The root is never without; what else the system may need is left as its owner wrote it."""
    if {"nofail", "noauto"} & set(line.options):
        return False
    return line.kind == "swap" or not SYSTEM_PLACES.fullmatch(line.place)


def _with_field(text: str, number: int, value: str) -> str:
    """The line with another word in that field; blanks and everything else as they were."""
    pieces = re.split(r"(\s+)", text)
    at = [index for index, piece in enumerate(pieces) if piece and not piece.isspace()]
    if number < len(at):
        pieces[at[number]] = value
        return "".join(pieces)
    return f"{text.rstrip()} {value} 0 0"


def refuse_mount(disk: Disk, inventory: Inventory, wish: PlaceWish, files: Files) -> Iterator[Objection]:
    """Why the tables cannot be mended, or not as it is wanted."""
    named = [line for line in fstab_lines(disk, inventory, files) if _is_by_node(line, disk, inventory)]
    for line in (*named, *_crypt_lines(disk, inventory, files)):
        if uuid_behind(line.spec, disk) is None:
            yield (
                f"nobody can tell which UUID lies on {line.spec}, which {line.place} is from",
                f"blkid {line.spec}",
            )
    if wish.place is None:
        return
    layer = disk.content[0] if len(disk.content) == 1 else None
    if not _PLACE.fullmatch(wish.place) or wish.place == "/":
        yield f"{wish.place!r} is no place to mount at that fstab could hold", "--mount /srv/data"
    if layer is None or not layer.uuid or layer.kind not in FILE_SYSTEMS:
        if disk.content_read:
            what = layer.kind if layer else "no one file system"
            yield f"{disk.path} holds {what}, which cannot be mounted as it is", f"blkid -p {disk.path}"
        else:
            yield f"nobody could look what lies on {disk.path}", f"sudo blkid -p {disk.path}"
    for line in files.fstab:
        mine = line in fstab_lines(disk, inventory, files)
        if line.place == wish.place and not mine:
            free = other_place(wish.place, lambda place: _is_taken(place, inventory, files))
            yield f"fstab mounts {line.spec} at {wish.place} already", f"--mount {shell_word(free)}"
        elif mine and line.place != wish.place:
            yield f"fstab mounts it at {line.place} already", "leave --mount out"


def other_place(place: str, taken: Callable[[str], bool]) -> str:
    """One that is free: /srv/data-2 for /srv/data. What is not for mounting (hier(7)) gives its name to one in /srv."""
    plain = place.rstrip("/")
    if not plain.startswith(("/srv/", "/mnt/", "/media/")):
        plain = f"/srv/{plain.rpartition('/')[2] or 'data'}"
        if not taken(plain):
            return plain
    return next(each for number in count(2) if not taken(each := f"{plain}-{number}"))


def _is_taken(place: str, inventory: Inventory, files: Files) -> bool:
    mounted = [each for disk in inventory.disks for each in places_on(disk, inventory)]
    return place in mounted or any(line.place == place for line in files.fstab)


def mount_steps(
    disk: Disk, inventory: Inventory, wish: PlaceWish, files: Files
) -> Iterator[EditFile | RunCommand]:
    """A new line, and the mount itself where it is not there yet."""
    if wish.place is None or not disk.content:
        return
    layer, there = disk.content[0], places_on(disk, inventory)
    if not any(line.place == wish.place for line in fstab_lines(disk, inventory, files)):
        check = 2 if layer.kind.startswith("ext") else 0  # XFS and btrfs are not checked at boot: fsck.xfs(8)
        options = ",".join((*(default_options(layer.kind) or ("defaults",)), "nofail", PATIENCE))
        line = f"UUID={layer.uuid} {wish.place} {layer.kind} {options} 0 {check}"
        yield EditFile(FSTAB, (line,), f"UUID={layer.uuid}", FSTAB + BACKUP)
        yield RunCommand("let systemd read fstab again", ("systemctl", "daemon-reload"))
    if wish.place not in there:
        yield RunCommand("make the place to mount at", ("mkdir", "-p", wish.place))
        yield RunCommand("mount it as fstab says", ("mount", wish.place))


def mount_words(disk: Disk, inventory: Inventory, wish: PlaceWish, files: Files) -> Iterator[str]:
    for line in fstab_lines(disk, inventory, files):
        said = "is named by its UUID from now on" if _is_by_node(line, disk, inventory) else "stays as it is"
        extra = ", and may be missing when the system starts (nofail)" if _lacks_nofail(line) else ""
        yield f"fstab: {line.place if line.kind != 'swap' else 'swap'} {said}{extra}"
    if not fstab_lines(disk, inventory, files) and wish.place is None:
        stacked = [one.name for one in above(disk, inventory) if one.name != disk.name]
        carries = f"; it carries {', '.join(stacked)}" if stacked else "; --mount DIR adds a line"
        yield f"fstab mounts nothing of it{carries}"
