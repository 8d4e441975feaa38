"""Command lines and steps that make arrays and file systems."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.change import RaidGoal
from aligntool.raid.chunks import Level, capacity
from aligntool.raid.members import METADATA, Placed
from aligntool.steps import DataArea, MakeArray
from aligntool.units import GIB, KIB, MIB, align_down, format_size

# `mdadm --create`, with every value in it, so that neither its defaults nor its questions decide.
#
# In: the goal and the members as they are placed. Out: the words of the command, and how large the array
# becomes. Alone because mdadm's defaults differ between its versions: before 4.4 a bitmap came by itself on
# members over 100 GiB, since then it asks, and a script without a terminal gets none (mdadm.c, "To optimize
# recovery speed").

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


# The file system on the array: its command with every value, and the options that it is mounted with.
#
# In: the goal, and the array's stripe. Out: words of a command, mount options, and reasons. Alone because
# each file system has its own units: mke2fs counts in blocks, mkfs.xfs in bytes and data members, btrfs and
# swap in nothing.

XFS_LOG_UNIT = (
    256 * KIB
)  # the largest; mkfs.xfs falls back to 32KiB above it (xfs_mkfs.c, calc_stripe_factors)
XFS_LOG_FALLBACK = 32 * KIB
BLOCK = 4096
XFS_INODE = 512  # mkfs.xfs's own with checksums
# How long a mount waits for its device. mdadm-last-resort@.timer starts an array without the members that are missing
# 30 s after the first one was seen, and the mount began to wait before that; with nofail nothing waits for the mount.
PATIENCE = "x-systemd.device-timeout=2min"
XFS_LABEL, EXT_LABEL = 12, 16  # longest names, in bytes


@dataclass(frozen=True, slots=True)
class Stripe:
    """Of the array below. `chunk` None: it has none."""

    chunk: int | None
    data: int
    parity: bool
    flash: bool


def make_command(goal: RaidGoal, stripe: Stripe, device: str) -> tuple[str, ...]:
    """How the file system is made; () for none. mkfs.xfs(8), mke2fs(8), mkfs.btrfs(8), mkswap(8).

    Forced: an array on drives that held one before begins at the same byte, so what was on that one shows through, and
    mkfs would refuse or ask. The array is new; what its members held was judged before.
    """
    uuid = goal.filesystem_uuid
    match goal.filesystem:
        case "xfs":
            return ("mkfs.xfs", "-f", *_xfs(goal, stripe), device)
        case "ext4":
            return ("mkfs.ext4", "-F", *_ext4(goal, stripe), device)
        case "btrfs":
            return ("mkfs.btrfs", "-f", "-d", "single", "-m", "dup", "-U", uuid, "-L", goal.name, device)
        case "swap":
            return ("mkswap", "-U", uuid, "-L", goal.name[:EXT_LABEL], device)
    return ()


def _xfs(goal: RaidGoal, stripe: Stripe) -> Iterator[str]:
    yield from ("-m", f"uuid={goal.filesystem_uuid}", "-L", goal.name[:XFS_LABEL])
    yield from ("-b", f"size={goal.block_size or BLOCK}", "-i", f"size={goal.inode_size or XFS_INODE}")
    log = [f"size={goal.log_size}"] if goal.log_size else []
    if stripe.chunk:
        yield from ("-d", f"su={stripe.chunk},sw={stripe.data}")
        log.append(f"su={log_unit(stripe.chunk)}")
    else:  # else mkfs.xfs takes what md passes on from its members, which are no stripes
        yield from ("-d", "noalign")
    if log:
        yield from ("-l", ",".join(log))


def log_unit(chunk: int) -> int:
    """What XFS pads its log writes to."""
    return chunk if chunk <= XFS_LOG_UNIT else XFS_LOG_FALLBACK


def _ext4(goal: RaidGoal, stripe: Stripe) -> Iterator[str]:
    block = goal.block_size or BLOCK
    yield from ("-U", goal.filesystem_uuid, "-L", goal.name[:EXT_LABEL], "-b", str(block))
    if goal.inode_size:
        yield from ("-I", str(goal.inode_size))
    chunk = stripe.chunk or 0
    width = chunk * stripe.data // block if has_width(stripe) else 0
    # Both are said: for what is not, mke2fs takes what the device reports, before 1.47.3 the width on flash as well.
    yield from ("-E", f"stride={chunk // block},stripe_width={width}")


def has_width(stripe: Stripe) -> bool:
    """A stripe width makes ext4 collect whole stripes, which saves reads on parity and seeks on disks that turn; on
    flash without parity it only makes its allocator slower (mke2fs.c, "set_raid_stripe").
    """
    return stripe.parity or not stripe.flash


def default_options(filesystem: str) -> tuple[str, ...]:
    """What aligntool recommends; `nofail` comes on top for an array that the system can start without."""
    return ("noatime",) if filesystem in ("xfs", "ext4", "btrfs") else ()


def waits_as_asked(options: Sequence[str]) -> bool:
    """Somebody said already how long it is waited for: systemd.mount(5)."""
    return any(each.startswith("x-systemd.device-timeout=") for each in options)


def fstab_line(goal: RaidGoal, place: str, options: tuple[str, ...]) -> str:
    """By UUID, never by /dev/mdN, which changes from boot to boot."""
    if goal.filesystem == "swap":
        return f"UUID={goal.filesystem_uuid} none swap sw,nofail 0 0"
    check = 2 if goal.filesystem == "ext4" else 0  # XFS and btrfs are not checked at boot: fsck.xfs(8)
    return f"UUID={goal.filesystem_uuid} {place} {goal.filesystem} {','.join(options)} 0 {check}"


def filesystem_notes(goal: RaidGoal, stripe: Stripe) -> Iterator[str]:
    """Why the geometry is what it is, a sentence each."""
    chunk = stripe.chunk
    match goal.filesystem:
        case "xfs" if chunk:
            yield (
                f"XFS: stripe unit {format_size(chunk)} (the chunk), stripe width {stripe.data} units (the data "
                "members)"
            )
            if log_unit(chunk) != chunk:
                yield (
                    f"XFS: log stripe unit {format_size(log_unit(chunk))}, because its largest is "
                    f"{format_size(XFS_LOG_UNIT)}, less than the chunk"
                )
        case "xfs":
            yield (
                "XFS: no stripe unit (noalign), because a RAID1 has no chunk; mkfs.xfs would take the sizes that the "
                "drives report for theirs"
            )
        case "ext4" if chunk:
            width = (
                "and a stripe width"
                if has_width(stripe)
                else "and no stripe width, which slows its allocator on flash"
            )
            yield f"ext4: a stride of one chunk {width}"
        case "ext4":
            yield "ext4: no stride, because a RAID1 has no chunk"
        case "btrfs":
            yield (
                "btrfs takes no stripe settings; on md it finds damage by its checksums but cannot heal data from "
                "a copy"
            )
    if goal.block_size and goal.block_size > 4 * KIB:
        yield (
            f"a block of {format_size(goal.block_size)} is larger than the memory pages of most machines, which "
            "refuse to mount it"
        )
