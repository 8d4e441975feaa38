"""Find what may hold a suspended system that nobody can see: layers whose content cannot be looked into."""

import re
from collections.abc import Iterator, Sequence

from aligntool.audit.wording import SUSPENDED, layer_name
from aligntool.change import Plan
from aligntool.contents.signatures import FILE_SYSTEM_SIGNATURES
from aligntool.errors import Refusal
from aligntool.inventory import Disk, Layer, with_inner

_NO_CONTAINERS = frozenset((
    *(signature.kind for signature in FILE_SYSTEM_SIGNATURES),
    "ext2", "ext3", "ext4", "ext4dev", "jbd", "bcachefs", "hfs", "squashfs3", "gfs2",
    "DM_verity_hash",  # only hashes
    # Used by databases, storage servers and virtual machines, which know nothing of the partitions of this disk.
    "ceph_bluestore", "oracleasm", "VMFS_volume_member", "qcow2", "qed", "vmdk", "vdi", "vhdx", "vhd",
))  # fmt: skip
"""Contents without a block device inside, so without a swap area. An unknown kind counts as a container.

The kernel does not resume from a swap area on a volume of ZFS.
"""

_UNSEEN_VOLUMES = re.compile(r"_([tv]data|cdata|cvol|w?corig|iorig|[rm]image_\d+)(?![a-z])|/pvmove\d+$", re.ASCII)
"""Hidden volumes of LVM that show at most a part of a volume: of thin and VDO pools, caches, RAID, a running pvmove.

The endings are reserved (lvm(8), "Reserved names").
"""
_MOST_NAMED = 4


def may_hold_suspended_system(disk: Disk) -> str:
    """Return the layers on a disk that may hold a suspended system which cannot be seen, or "" if there are none.

    The default is the careful answer: a layer counts unless it is a file system or was looked into.
    """
    places = ((disk.name, disk.content), *((f"partition {part.number}", part.content) for part in disk.partitions))
    found = [f"the {name} on {place}" for place, content in places for name in _unseen_names(content)]
    more = len(found) - _MOST_NAMED
    return ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _unseen_names(content: Sequence[Layer]) -> Iterator[str]:
    names = (layer_name(layer) for layer in with_inner(content) if not _is_seen_through(layer))
    yield from dict.fromkeys(names)


def _is_seen_through(layer: Layer) -> bool:
    """Return whether a suspended system inside a layer would have been recognised."""
    if layer.kind in _NO_CONTAINERS:
        return True
    if layer.problems:
        return False
    match layer.kind:
        case "linux_raid_member":  # a member of another level may have no start of the content
            return layer.raid_level == "raid1" or (layer.raid_level in ("raid0", "linear") and layer.raid_members == 1)
        case "LVM2_member":
            return _has_whole_volumes(layer)
        case "bcache":  # the cache may have newer data
            return False
    return bool(layer.inner)


def _has_whole_volumes(group: Layer) -> bool:
    """Return whether every volume of a physical volume is of a simple kind and begins on it."""
    if group.data_unit is None:  # no metadata: the physical volume is in no group, or the metadata are on another disk
        return group.claims_size is not None
    volumes = {segment.volume for segment in group.segments}
    begun = {segment.volume for segment in group.segments if not segment.volume_offset}
    is_striped = any(segment.stripe_size for segment in group.segments)
    is_simple = volumes == begun and not is_striped
    return is_simple and not any(_UNSEEN_VOLUMES.search(volume) for volume in volumes)


# A change of such a disk needs the user's word: typed at the question, or given as an option.


def suspension_attention(disk: Disk) -> tuple[str, ...]:
    """Return the sentence for a plan that changes this disk."""
    where = may_hold_suspended_system(disk)
    if not where:
        return ()
    warning = "would go on as before the change and overwrite data: shut it down first"
    return (f"{SUSPENDED}a system that is suspended to disk inside {where} {warning}",)


def suspension_sentences(plan: Plan) -> tuple[str, ...]:
    """Return the sentences of a plan about systems that may be suspended."""
    return tuple(sentence for sentence in plan.attention if sentence.startswith(SUSPENDED))


def names_suspensions(plan: Plan, current: Plan) -> bool:
    """Return whether a saved plan has every sentence about suspended systems that a plan made now has."""
    return set(suspension_sentences(current)) <= set(suspension_sentences(plan))


def suspension_refusals(plan: Plan) -> tuple[Refusal, ...]:
    """Return why a plan is not applied without a question."""
    hint = "shut down the system that uses it, then add --not-suspended"
    return tuple(
        Refusal("may-be-suspended", plan.disk.path, f"{plan.disk.path} {sentence}", hint, lasting=False)
        for sentence in suspension_sentences(plan)
    )
