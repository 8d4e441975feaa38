"""Members of md arrays that are drives without a partition table.

In: a disk. Out: findings. Alone because the danger comes from outside: firmware that takes a drive for one whose GPT is
damaged "repairs" it, and what it overwrites is the array's superblock, 4 KiB into the drive.
"""

from collections.abc import Iterator

from aligntool.audit.codes import Code
from aligntool.audit.report import Finding, Severity
from aligntool.audit.words import as_root
from aligntool.inventory import Disk, DiskKind, Layer

_NONE_TO_SPARE = ("raid0", "linear")  # nothing is kept twice: mdadm(8), --add and --re-add
_VIRTUAL = (DiskKind.LOOP, DiskKind.MD, DiskKind.DM, DiskKind.BCACHE, DiskKind.MEMORY, DiskKind.NETWORK)


def whole_member_findings(disk: Disk) -> Iterator[Finding]:
    """Firmware sees drives only: a volume or a loop device that is a member as a whole is told nothing of."""
    layer = next((layer for layer in disk.content if layer.kind == "linux_raid_member"), None)
    if layer is None or disk.kind in _VIRTUAL or not _is_whole(disk, layer):
        return
    stale = [copy for copy in disk.gpt_headers if layer.data_start or copy.name == "backup"]
    if stale and not (layer.data_start == 0 and disk.table):
        where = " and ".join(f"the {copy.name} header at byte {copy.at}" for copy in stale)
        fixed = layer.raid_level in _NONE_TO_SPARE
        remedy = (
            f"no member can be taken out of a {layer.raid_level}: copy its data away, and make the array anew"
        )
        look = as_root(disk, f"wipefs --no-act {disk.path}")
        yield Finding(
            Code.MEMBER_WITH_GPT, Severity.ERROR,
            f"{disk.name}: is a member of an md array as a whole, and {where} of a GPT is still on it",
            disk=disk.name, layer="md",
            evidence=(
                "published: such firmware wiped bytes 4096 to 16384 at every start, and the superblock of metadata "
                "1.2 with them",
                *([remedy] if fixed else []),
            ),
            next=f"aligntool explain {Code.MEMBER_WITH_GPT}" if fixed else look,
        )  # fmt: skip
        return
    if disk.kind is DiskKind.IMAGE:
        return  # it may as well be that of a partition
    yield Finding(
        Code.WHOLE_DRIVE_MEMBER, Severity.INFO,
        f"{disk.name}: is a member of an md array as a whole, without a partition table of its own",
        disk=disk.name, layer="md", next=f"aligntool explain {Code.WHOLE_DRIVE_MEMBER}",
    )  # fmt: skip


def _is_whole(disk: Disk, layer: Layer) -> bool:
    """With the data at byte 0 the table that is seen is the array's own, and its partitions too."""
    return layer.extent.start == 0
