"""Explanations of what a device says of itself (AT2xx)."""

from aligntool.audit.explanations.explanation import Explanation
from aligntool.audit.report import Code

DEVICE = {
    Code.STACK_CONFLICT: Explanation(
        severity="warning",
        title="The members of a stacked device contradict each other",
        means=(
            "The kernel reports alignment_offset −1 for this device: no offset on it is aligned on all "
            "members at once. fdisk, parted and LVM hide this value."
        ),
        judged=(
            "alignment_offset of the md or dm device in sysfs. An array whose members are all shifted by the "
            "same is told as AT208: the kernel says −1 there too as soon as there is a chunk."
        ),
        costs=(
            "Some requests straddle physical sectors on at least one member, whatever the partitioning above."
        ),
        do="Audit each member; move or recreate the one whose data start is off, then restart the array.",
    ),
    Code.BOGUS_OPTIMAL_IO: Explanation(
        severity="info",
        title="The optimal I/O size is not believable",
        means=(
            "The device reports an optimal I/O size that no medium has. Known values: 33553920 (65535 × "
            "512, USB bridges), 16773120 (4095 × 4096, SAS drivers), 33554432 (65536 × 512, NVMe NOWS at "
            "its maximum)."
        ),
        judged=(
            "Graded bogus when it is no multiple of the physical sector or minimum I/O size, is 65535 "
            "logical sectors, is no power of two and no multiple of 1 MiB on a single disk, or is larger "
            "than 4 MiB on a single disk. Never obeyed."
        ),
        costs=(
            "Tools that believe it (parted, and LVM and cryptsetup for some values) place partitions and "
            "data on odd offsets such as sector 65535."
        ),
        do=(
            "Give partitioning tools their alignment by hand (1 MiB). With parted: unit s, and explicit "
            "starts."
        ),
    ),
    Code.SECTOR_SIZE_HIDDEN: Explanation(
        severity="info",
        title="The drive hides its physical sector size",
        means="The drive reports 512-byte physical sectors, but this model is known to have larger ones.",
        judged=(
            "The model, and where it matters the firmware, has a row in the drive database with its "
            "source; `aligntool drives MODEL` shows it."
        ),
        costs="Every tool that believes the report accepts misaligned partitions.",
        do="Nothing to be changed on the drive; align to what the database says.",
    ),
    Code.SECTOR_SIZE_ASSUMED: Explanation(
        severity="info",
        title="The physical sector size is assumed",
        means=(
            "Nobody reports this device's physical sectors in a way that can be believed, so 4096 bytes "
            "are assumed."
        ),
        judged=(
            "Image files report nothing. Flash behind a 512-byte interface, USB bridges, virtual disks "
            "and drives over 2 TiB report 512 too often wrongly."
        ),
        costs="None; the assumption errs on the safe side.",
        do="Say otherwise with --physical-sector-size 512 if you know better.",
    ),
    Code.BOGUS_MINIMUM_IO: Explanation(
        severity="info",
        title="The minimum I/O size is not believable",
        means=(
            "The device reports a minimum I/O size that cannot be a grid: no multiple of its physical "
            "sector, or for a single disk no power of two, or more than 16 MiB."
        ),
        judged="Compared with the reported sector sizes. Never obeyed.",
        costs="Tools that believe it misplace partitions.",
        do="Give partitioning tools their alignment by hand.",
    ),
    Code.BETTER_LBA_FORMAT: Explanation(
        severity="info",
        title="The drive offers a faster sector format",
        means=(
            "The NVMe namespace is formatted with an LBA format that its own Identify data rate as slower "
            "than another one on offer, typically 512 against 4096 bytes."
        ),
        judged=(
            "Relative Performance (RP) of the LBA format in use against the others without metadata (NVMe "
            "base specification, Identify Namespace)."
        ),
        costs="The drive's maker says so; how much depends on the drive.",
        do="With an empty drive: nvme format --lbaf=N. It erases everything on the namespace.",
    ),
    Code.LARGE_UNIT: Explanation(
        severity="info",
        title="The drive works in units larger than 4 KiB",
        means="Every 4 KiB write makes the drive rewrite a whole indirection unit, even when aligned.",
        judged="Unit reported by NVMe (NPWG) or known from the database, compared with 4 KiB.",
        costs="Write amplification of unit / request: 4 for 4 KiB writes on a 16 KiB unit, 16 on 64 KiB.",
        do="Use file-system blocks or database pages as large as the unit where the software allows it.",
    ),
    Code.SHIFTED_GRID: Explanation(
        severity="info",
        title="The physical sectors do not start at byte 0",
        means=(
            "The drive reports an alignment offset, as 512e drives with an XP jumper do: sector 63 is "
            "right on it and sector 2048 is wrong. Or it is an array on members whose data start off their "
            "sectors, such as partitions at sector 63."
        ),
        judged=(
            "alignment_offset in sysfs, from READ CAPACITY(16) or IDENTIFY word 209. For an md array: the "
            "members' partition starts and data offsets, where all agree and the kernel says −1 or nothing."
        ),
        costs="None when partitions follow it.",
        do=(
            "Partition with tools that honour it (fdisk, parted), or take the jumper off before partitioning. "
            "An array: move its members."
        ),
    ),
    Code.SECTOR_SIZE_DISPUTED: Explanation(
        severity="info",
        title="The drive and the adapter before it disagree on the physical sector",
        means=(
            "The drive's own IDENTIFY data give another physical sector size than the kernel reports; the "
            "bridge or controller between them hides it."
        ),
        judged="IDENTIFY DEVICE word 106 against queue/physical_block_size. The larger is used.",
        costs="As for AT203.",
        do="Align to the larger size.",
    ),
    Code.TABLE_TELLS_SECTOR_SIZE: Explanation(
        severity="info",
        title="The sector size comes from the partition table",
        means=(
            "An image file has no sector size of its own. Its partition table can only be read with the "
            "size named here."
        ),
        judged="A valid GPT header lies at byte 4096, or the MBR's numbers fit the image only so.",
        costs="None. Attached with another sector size (losetup without -b), its partitions are not seen.",
        do="losetup --sector-size with this size when attaching the image.",
    ),
}
