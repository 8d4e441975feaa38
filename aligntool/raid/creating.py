"""`mdadm --create`, with every value in it, so that neither its defaults nor its questions decide.

In: the goal and the members as they are placed. Out: the words of the command, and how large the array becomes. Alone
because mdadm's defaults differ between its versions: before 4.4 a bitmap came by itself on members over 100 GiB, since
then it asks, and a script without a terminal gets none (mdadm.c, "To optimize recovery speed").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.plan import DataArea, MakeArray, RaidGoal
from aligntool.raid.levels import Level, capacity
from aligntool.raid.placing import METADATA, Placed
from aligntool.units import GIB, KIB, MIB, align_down, format_size

ANY_CHUNK = 64 * KIB  # what the size of a RAID1 is rounded to
BITMAP_CHUNK = 64 * MIB  # mdadm's own
PARITY_BITMAP_CHUNK = GIB
BITMAP_HEADER = 256  # bytes: sizeof(bitmap_super_t)
# super1.c, choose_bm_space: on members from that size on, so much; on smaller ones the last.
BITMAP_ROOMS = ((200 * GIB + 64 * KIB, 128 * KIB), (8 * GIB + 8 * KIB, 64 * KIB))
BITMAP_ROOM = 4 * KIB


@dataclass(frozen=True, slots=True)
class Shape:
    """An array, decided. Sizes in bytes."""

    device: str
    level: Level
    layout: str
    chunk: int | None
    bitmap: str
    offset: int
    each: int  # what every member gives
    size: int  # of the array


def shape_of(
    goal: RaidGoal, level: Level, layout: str, chunk: int | None, placed: Sequence[Placed], offset: int
) -> Shape:
    """`each` is what is left of the smallest member, in whole chunks."""
    length = min(member.extent.length for member in placed) - (offset or METADATA)
    each = align_down(length, chunk or ANY_CHUNK)
    bitmap = goal.bitmap or ("internal" if level.redundant else "none")
    size = capacity(level, len(placed), layout, each)
    return Shape(f"/dev/md/{goal.name}", level, layout, chunk, bitmap, offset, each, size)


def create_command(goal: RaidGoal, shape: Shape, placed: Sequence[Placed]) -> tuple[str, ...]:
    """mdadm(8). `--homehost=any`: the array is at home on every machine, whatever name the initramfs knows it by."""
    level = shape.level
    words = ["mdadm", "--create", shape.device, "--run", f"--level={level.word.removeprefix('raid')}"]
    words += [f"--raid-devices={len(placed)}"]
    words += [f"--chunk={shape.chunk // KIB}K"] if shape.chunk else []
    words += [f"--layout={shape.layout}"] if shape.layout else []
    words += [f"--metadata={goal.metadata}"]
    words += [f"--data-offset={shape.offset // KIB}K"] if shape.offset else []
    if level.redundant:  # of a RAID0 mdadm takes all there is, and wants to hear of none of these
        words += [f"--size={shape.each // KIB}K", f"--bitmap={shape.bitmap}"]
        if shape.bitmap == "internal":
            words += [f"--bitmap-chunk={bitmap_chunk(shape) // MIB}M", "--consistency-policy=bitmap"]
        else:
            words += ["--consistency-policy=resync"]
    words += [f"--name={goal.name}", "--homehost=any", f"--uuid={goal.array_uuid}"]
    return (*words, *(member.device for member in placed))


def make_array(goal: RaidGoal, shape: Shape, members: tuple[str, ...], command: tuple[str, ...]) -> MakeArray:
    """Return the step that runs the command; what is wiped and what is checked afterwards is read from its fields."""
    data = DataArea(shape.offset, shape.each if shape.level.redundant else None)
    return MakeArray(shape.device, goal.array_uuid, members, command, shape.level.word, shape.chunk, data)


def bitmap_chunk(shape: Shape) -> int:
    """What one bit stands for; no more than a member gives, and no less than mdadm has room for."""
    wanted = PARITY_BITMAP_CHUNK if shape.level.parity else BITMAP_CHUNK
    while wanted > shape.each and wanted > MIB:
        wanted //= 2
    return max(wanted, least_bitmap_chunk(shape))


def least_bitmap_chunk(shape: Shape) -> int:
    """What mdadm stops below, with "Given bitmap chunk size not supported" (super1.c, add_internal_bitmap1).

    The bits of a RAID10 cover the array, of the others a member (Create.c).
    """
    room = next((room for size, room in BITMAP_ROOMS if shape.each >= size), BITMAP_ROOM)
    most = (room - BITMAP_HEADER) * 8
    chunk, bits = 4 * KIB, (shape.size if shape.level.word == "raid10" else shape.each) // (4 * KIB) + 1
    while bits > most:
        chunk, bits = chunk * 2, (bits + 1) // 2
    return chunk


def consistency_notes(shape: Shape) -> Iterator[str]:
    """What keeps the members alike after a crash, and what that costs."""
    yield _bitmap_note(shape)
    if shape.level.word == "raid5":
        yield (
            "no partial parity log: it would close the write hole (a crash while a member is missing can damage "
            "data that nobody was writing), costs up to 30 to 40 % of writes and excludes a bitmap (published: the "
            "kernel's raid5-ppl.rst)"
        )
    if shape.level.redundant:
        yield "no --assume-clean: nothing proves that the members hold zeros, so the first resynchronisation runs"


def _bitmap_note(shape: Shape) -> str:
    """Why there is a bitmap, or none, and what it costs."""
    if not shape.level.redundant:
        return f"no bitmap: {shape.level.title} has nothing to resynchronise"
    if shape.bitmap == "none":
        return (
            "no bitmap: after a crash the whole array is resynchronised, and until then a second failure can lose "
            "data"
        )
    each = format_size(bitmap_chunk(shape))
    if shape.level.parity:
        return (
            f"an internal bitmap, one bit for each {each}: after a crash only what was being written is "
            "resynchronised; with mdadm's 64MiB a bit, small writes to five NVMe drives fell to less than a "
            "hundredth, with 1GiB to half (published, one tester; --bitmap none is the fastest)"
        )
    return (
        f"an internal bitmap, one bit for each {each}: after a crash only what was being written is resynchronised; "
        "it cost 7 % of small writes to a RAID1 (published, one tester)"
    )
