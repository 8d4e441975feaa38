"""Why a device is not written all over.

In: the disk as it was seen, and which partition of it is meant. Out: Refused with every reason at once, or nothing.
Alone because this is what stands between a benchmark and somebody's data.
"""

from collections.abc import Iterator

from aligntool.audit.words import end_of_use, layer_name, shell_word, where
from aligntool.errors import Objection, refuse
from aligntool.inventory import Disk, Layer, Partition, Role
from aligntool.units import format_about


def refuse_destruction(disk: Disk, partition: Partition | None) -> None:
    """Of a whole disk, whatever is in any of its partitions counts as well. Raises Refused."""
    refuse([*_about_disk(disk), *_about_use(disk, partition), *_about_content(disk, partition)])


def _about_disk(disk: Disk) -> Iterator[Objection]:
    if disk.read_only:
        yield f"{disk.name} is read-only", ""
    if disk.failing:
        yield f"{disk.name} says that it fails: {disk.failing}", f"smartctl -a {shell_word(disk.path)}"


def _about_use(disk: Disk, partition: Partition | None) -> Iterator[Objection]:
    used = [(where(disk, None), disk.name, disk.mounted_at, disk.holders)]
    parts = disk.partitions if partition is None else (partition,)
    used += [(where(disk, part), part.node or disk.name, part.mounted_at, part.holders) for part in parts]
    for name, node, places, holders in used:
        for place in places:
            yield f"{name} is mounted at {place}", end_of_use(node.removeprefix("/dev/"), place)
        if partition is None or name != disk.name:
            yield from ((f"{name} is a part of {holder}, which is running", "") for holder in holders)


def _about_content(disk: Disk, partition: Partition | None) -> Iterator[Objection]:
    look = f"sudo aligntool audit {shell_word(disk.path)}"
    if partition is not None:
        if partition.role in (Role.EXTENDED, Role.MAP, Role.NESTED):
            yield f"{where(disk, partition)} is no partition of its own but {partition.role.value}", ""
        if not partition.content_read:
            yield f"nobody could look whether {where(disk, partition)} is empty", look
        yield from _held(where(disk, partition), partition.content, partition.content_hint)
        return
    if not disk.table_read or not disk.content_read:
        yield f"nobody could look whether {disk.name} is empty", look
    for part in disk.partitions:
        yield (
            f"{disk.name} is not empty: partition {part.number}, {format_about(part.extent.length)}",
            "a benchmark never erases; name an empty disk, or a folder on this one",
        )
    if disk.table and not disk.partitions:
        yield f"{disk.name} has a partition table ({disk.table.label})", ""
    yield from _held(disk.name, disk.content, disk.content_hint)


def _held(name: str, layers: tuple[Layer, ...], hint: str | None) -> Iterator[Objection]:
    found = [f'{layer_name(each)} "{each.label}"' if each.label else layer_name(each) for each in layers]
    for what in found or ([hint] if hint else []):
        yield (
            f"{name} is not empty: {what}",
            "a benchmark never erases; name something empty, or a folder on it",
        )
