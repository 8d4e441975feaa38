"""The file system on the array: its command with every value, and the options that it is mounted with.

In: the goal, and the array's stripe. Out: words of a command, mount options, and reasons. Alone because each file
system
has its own units: mke2fs counts in blocks, mkfs.xfs in bytes and data members, btrfs and swap in nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.plan import RaidGoal
from aligntool.units import KIB, format_size

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
