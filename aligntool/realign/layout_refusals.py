"""Why a disk gets no new table: because of what is on it, or because of what is wanted.

In: the disk as it was seen, and the goal. Out: Refused with every reason at once and a hint for each, or nothing.
Alone because this is what stands between a slip of the keyboard and somebody's data.
"""

from collections.abc import Iterator

from aligntool.audit.words import layer_name, next_command, shell_word, where
from aligntool.errors import Objection, refuse
from aligntool.inventory import Disk, DiskKind, Layer, Partition
from aligntool.plan import LayoutGoal, PartWish
from aligntool.recipe.roles import ROLES, role_list
from aligntool.units import format_about, format_size

TABLE_NAMES = {"gpt": "GPT", "dos": "MBR"}
MOST_ENTRIES = {"gpt": 128, "dos": 4}  # no logical partitions: who needs more than four takes a GPT
LONGEST_NAME = 36  # UTF-16 code units, UEFI 5.3.3


def refuse_impossible(disk: Disk, goal: LayoutGoal) -> None:
    """Raises Refused for a disk that must not get a table, and for a goal that no disk could satisfy."""
    reasons = [*_about_disk(disk, wipe=goal.wipe), *_about_goal(disk, goal)]
    for number, part in enumerate(goal.parts, 1):
        reasons += [(f"partition {number}: {why}", hint) for why, hint in _about_part(part, goal.label)]
    refuse(reasons)


def refuse_unfit(disk: Disk, *, wipe: bool) -> None:
    """The same for the disk alone, asked once more just before the first write."""
    refuse(_about_disk(disk, wipe=wipe))


def holdings(disk: Disk) -> tuple[str, ...]:
    """What is on the disk, a phrase each: "partition 2, ext4 "root", 20GiB"."""
    found = [f"partition {part.number}, {_content(part)}" for part in disk.partitions]
    found += [f"{_layer(layer)} on the whole disk" for layer in disk.content]
    if disk.content_hint and not disk.content:
        found.append(f"{disk.content_hint} on the whole disk")
    if disk.table and not disk.partitions:
        found.append(f"a partition table ({disk.table.label}) without partitions")
    if disk.table is None:
        found += [
            f"what is left of a GPT, its {copy.name} copy at byte {copy.at}" for copy in disk.gpt_headers
        ]
    return tuple(found)


def _content(part: Partition) -> str:
    layers = ", ".join(_layer(layer) for layer in part.content)
    return f"{layers or part.content_hint or part.type_name or 'no known content'}, {format_about(part.extent.length)}"


def _layer(layer: Layer) -> str:
    return f'{layer_name(layer)} "{layer.label}"' if layer.label else layer_name(layer)


def _about_disk(disk: Disk, *, wipe: bool) -> Iterator[Objection]:
    if not disk.size:
        yield f"nobody says how large {disk.name} is", ""
    if disk.read_only:
        yield f"{disk.name} is read-only", ""
    if disk.kind is DiskKind.DASD:
        yield f"{disk.name} is a DASD, whose tables are made by its own tool", "fdasd"
    yield from _about_use(disk)
    if not disk.table_read or not disk.content_read:
        yield (
            f"nobody could look whether {disk.name} is empty",
            next_command(disk, "audit"),
        )
    elif not wipe and (held := holdings(disk)):
        yield from ((f"{disk.name} is not empty: {each}", _way_on(disk)) for each in held)


def _way_on(disk: Disk) -> str:
    """Return what keeps the content. A hint is pasted without a second thought: --wipe is named only for a disk on
    which nothing but an empty table was recognised.
    """
    if disk.partitions:
        return next_command(disk, "plan realign")
    if disk.content or disk.content_hint or disk.gpt_headers:
        return next_command(disk, "audit")
    return "--wipe overwrites the empty table"


def _about_use(disk: Disk) -> Iterator[Objection]:
    uses: list[tuple[Partition | None, tuple[str, ...], tuple[str, ...]]] = [
        (None, disk.mounted_at, disk.holders),
        *((part, part.mounted_at, part.holders) for part in disk.partitions),
    ]
    for part, places, holders in uses:
        for place in places:
            hint = (
                f"sudo swapoff /dev/{part.node if part else disk.name}"
                if place == "[SWAP]"
                else f"sudo umount {shell_word(place)}"
            )
            yield f"{where(disk, part)} is mounted at {place}", hint
        for holder in holders:
            yield f"{where(disk, part)} is a part of {holder}, which is running", f"aligntool audit {holder}"


def _about_goal(disk: Disk, goal: LayoutGoal) -> Iterator[Objection]:
    if goal.label not in TABLE_NAMES:
        yield f"{goal.label!r} is no table that is made here", "--label gpt, or --label dos for an MBR"
        return
    if not goal.parts:
        yield "a layout needs partitions", "--part 512MiB:esp --part rest:linux, or --recipe NAME"
    if len(goal.parts) > (most := MOST_ENTRIES[goal.label]):
        yield f"{len(goal.parts)} partitions are more than the {most} of this table", "--label gpt"
    if sum(part.size is None for part in goal.parts) > 1:
        yield "only one partition can take the rest", ""
    sector_size = disk.limits.logical_block_size or disk.sector_size
    if goal.grain <= 0 or goal.grain % sector_size:
        yield (
            f"a grain of {format_size(goal.grain)} is no multiple of the {sector_size}-byte sectors",
            "--grain 1MiB",
        )
    if goal.spare_end < 0:
        yield "the space left free cannot be negative", ""


def _about_part(part: PartWish, label: str) -> Iterator[Objection]:
    role = ROLES.get(part.role)
    if role is None:
        yield f"{part.role!r} is no role", role_list()
    elif label == "dos" and role.mbr is None:
        yield f"an MBR has no type for {role.title}", "leave it out, or --label gpt"
    if part.size is not None and part.size <= 0:
        yield "a partition needs a size", ""
    if len(part.name.encode("utf-16-le", "surrogatepass")) > 2 * LONGEST_NAME:
        yield f"its name is longer than {LONGEST_NAME} characters", ""
    if not part.name.isprintable():
        yield "its name has characters that cannot be printed", ""
