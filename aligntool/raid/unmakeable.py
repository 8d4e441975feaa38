"""Why mdadm or mkfs would stop at an array, or make another one than was planned, once it is decided.

In: the goal, the members as they are placed, the array's shape, its stripe. Out: reasons, each with the next thing to
type. Alone because these need the sizes that were decided, and because both programs say so only after the tables are
written.
"""

from collections.abc import Iterator, Sequence

from aligntool.errors import Objection
from aligntool.plan import RaidGoal
from aligntool.raid.creating import Shape
from aligntool.raid.filesystems import BLOCK, Stripe
from aligntool.raid.placing import Placed, own_length
from aligntool.units import GIB, MIB, format_about, format_size

# xfs_mkfs.c, validate_supported: 300 MiB and a log of 64 MiB. With a stripe there are eight allocation groups or more,
# and the log has to lie in one of them; mkfs.xfs 6.1 makes a striped file system from 513 MiB on.
XFS_LEAST = 300 * MIB
XFS_LEAST_STRIPED = 513 * MIB
# Stripe units for its allocation groups; with fewer mkfs.xfs fails where a unit is 64 MiB or more.
XFS_UNITS = 16
XFS_WIDTH = 2 * GIB  # xfs_validate_stripe_geometry: less than that, in bytes
BTRFS_LEAST = 109 * MIB  # mkfs.btrfs, for one device: 114294784
EXT4_STRIDE = 0xFFFF  # s_raid_stride has 16 bits, and mke2fs cuts what is more


def unmakeable(goal: RaidGoal, placed: Sequence[Placed], shape: Shape, stripe: Stripe) -> Iterator[Objection]:
    yield from _about_lengths(goal, placed, shape)
    if goal.metadata == "1.0" and shape.level.word != "raid1":
        yield (
            f"metadata 1.0 lets a member be read alone, and those of a {shape.level.title} cannot be",
            "--metadata 1.2",
        )
    yield from _about_filesystem(goal, shape, stripe)


def _about_lengths(goal: RaidGoal, placed: Sequence[Placed], shape: Shape) -> Iterator[Objection]:
    """Of a RAID0 md takes whole members: there is no --size, and what is longer becomes a zone of fewer members
    (raid0.c, create_strip_zones)."""
    if any(each.entries for each in placed):
        return
    if goal.spare_room:
        what = "whole drives of a RAID0 are" if goal.whole_drives else "partitions that are there are"
        if not (goal.whole_drives and shape.level.redundant):
            yield f"no room can be left free: {what} used as they are", "leave --spare-room out"
    if shape.level.redundant or not shape.chunk:
        return
    if goal.member_size is not None:
        yield "a RAID0 has no size for its members: they are used as they are", "leave member_size out"
    lengths = {each.member.name: own_length(each) for each in placed}
    used = {name: (length - shape.offset) // shape.chunk for name, length in lengths.items()}
    if len(set(used.values())) > 1:
        told = ", ".join(f"{name} {format_about(length)}" for name, length in lengths.items())
        yield (
            f"the members of a RAID0 are used whole, and these differ in length ({told}): beyond the shortest fewer "
            "drives would share the work",
            "name partitions of one length, or drives without --whole-drives: these get such partitions",
        )


def _about_filesystem(goal: RaidGoal, shape: Shape, stripe: Stripe) -> Iterator[Objection]:
    least = _least_size(goal, stripe)
    if shape.size < least:
        yield (
            f"{goal.filesystem} needs {format_size(least)} here, and the array has {format_about(shape.size)}",
            "take larger members, or --fs ext4",
        )
    if goal.filesystem == "xfs" and (stripe.chunk or 0) * stripe.data >= XFS_WIDTH:
        yield (
            f"a stripe of {stripe.data} times {format_size(stripe.chunk or 0)} is too wide for xfs, whose widest is "
            f"below {format_size(XFS_WIDTH)}",
            "--chunk 512KiB",
        )
    if goal.filesystem == "ext4" and (stripe.chunk or 0) // (goal.block_size or BLOCK) > EXT4_STRIDE:
        yield (
            f"a chunk of {format_size(stripe.chunk or 0)} is too large for the stride of ext4",
            "--chunk 512KiB",
        )


def _least_size(goal: RaidGoal, stripe: Stripe) -> int:
    if goal.filesystem == "btrfs":
        return BTRFS_LEAST
    if goal.filesystem != "xfs":
        return 0
    return max(XFS_LEAST_STRIPED, XFS_UNITS * stripe.chunk) if stripe.chunk else XFS_LEAST
