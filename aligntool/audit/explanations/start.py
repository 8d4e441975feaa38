"""Explanations of where a partition starts (AT1xx)."""

from aligntool.audit.explanations.explanation import Explanation
from aligntool.audit.report import Code

START = {
    Code.OFF_PHYSICAL: Explanation(
        severity="error",
        title="Partition starts off the physical sectors",
        means=(
            "The partition does not begin where a physical sector of the drive begins, so every block of "
            "its file system lies across two sectors."
        ),
        judged=(
            "(start − alignment_offset) must be a multiple of the larger of the physical sector and the "
            "minimum I/O size. The sector size is taken from the user, the device, the drive database or, "
            "where nobody says, assumed to be 4096 bytes: for image files, flash, USB and virtual disks "
            "and drives over 2 TiB. A rotating ATA or SCSI drive up to 2 TiB that reports 512 bytes is "
            "believed. A FAT or exFAT "
            "whose clusters begin on the boundary all the same, as SD cards leave the factory, is a warning."
        ),
        costs=(
            "A 4 KiB write that straddles two 4 KiB sectors makes the drive read 8 KiB and write 8 KiB: "
            "half the writes a second. With larger units u the rate falls to 1/(1 + 4096/u): 4/5 at 16 "
            "KiB, 8/9 at 32 KiB, 16/17 at 64 KiB. A straddling read touches one more sector."
        ),
        do=(
            "Move the partition to a multiple of 1 MiB: aligntool plan realign DISK shows how, aligntool "
            "realign DISK does it and keeps what is on it. Back up first all the same. If the start is odd "
            "because of the tool that made it, do not use that tool's defaults again."
        ),
    ),
    Code.OFF_PAGE: Explanation(
        severity="warning",
        title="Partition starts off the NAND page or the drive's internal unit",
        means=(
            "The start is a multiple of the sector size, but flash is written in larger pages and some "
            "drives map their space in larger units (indirection units of 16 or 64 KiB)."
        ),
        judged=(
            "The start must be a multiple of the page or unit given by --page-size, reported by NVMe "
            "Identify (NPWG, NPWA), known from the drive database, or assumed for the class (16 KiB page "
            "for 3D NAND)."
        ),
        costs=(
            "Requests as large as a unit always touch two. A 4 KiB write straddles a unit of u bytes only "
            "when it lies across the boundary; drives with a large write cache hide much of it. Writes "
            "smaller than the unit cost u/r times their size in flash wear, aligned or not."
        ),
        do=(
            "Move the partition to a multiple of 1 MiB when there is time for it: aligntool plan realign "
            "DISK shows how. On its own it is rarely worth the hours of a large move."
        ),
    ),
    Code.OFF_ALLOCATION_UNIT: Explanation(
        severity="warning",
        title="Partition starts off the card's allocation unit",
        means=(
            "SD cards, eMMC and USB sticks manage their flash in allocation units of typically 4 MiB, and "
            "have little memory to soften a write across two of them."
        ),
        judged=(
            "The start must be a multiple of the unit: a warning where an SD card states it (AU_SIZE of the SD Status "
            "register, preferred_erase_size), the database knows it or it was measured; a note where it is assumed, as "
            "4 MiB or as what the kernel derives from the capacity."
        ),
        costs=(
            "Writes near the boundary make the card copy two units instead of one; on cheap cards that is "
            "felt as stalls."
        ),
        do=(
            "Make the first partition start at 4 MiB (sector 8192) or 8 MiB when the card is next "
            "written, and keep the others on multiples of it."
        ),
    ),
    Code.OFF_CHUNK: Explanation(
        severity="warning",
        title="Partition starts off the RAID chunk",
        means=(
            "The partition lies on an array, and does not begin where a chunk begins. The members' "
            "sectors are not crossed (that would be AT101), but the chunks are."
        ),
        judged=(
            "(start − alignment_offset) must be a multiple of the array's chunk (md chunk_size, or the "
            "minimum I/O size that a striped device, a RAID controller or a virtual disk reports). The kernel and "
            "fdisk call this misaligned "
            "as well."
        ),
        costs=(
            "Requests that would fit one chunk touch two members; the stripe settings of a file system "
            "inside no longer match the stripes on disk."
        ),
        do=(
            "Start the partition at a multiple of the chunk, better of the whole stripe; for an array "
            "used by one file system, use the array without a partition table."
        ),
    ),
    Code.OFF_OPTIMAL_IO: Explanation(
        severity="info",
        title="Partition starts off the optimal I/O size",
        means=(
            "The device prefers requests of a certain size and the partition does not begin on a multiple "
            "of it."
        ),
        judged=(
            "Only a plausible optimal_io_size is compared; bogus ones are named by AT202 and ignored. "
            "Never an error: the size is a hint for throughput."
        ),
        costs="Little: large sequential requests may be split once more.",
        do="Nothing, unless the array or drive is to be laid out anew.",
    ),
    Code.OFF_GRAIN: Explanation(
        severity="info",
        title="Partition does not start on a whole MiB",
        means=(
            "Every grid that is known for this device is met, but the start is no multiple of 1 MiB, the "
            "boundary that all current tools use and that satisfies every page and unit known."
        ),
        judged="start − alignment_offset is compared with 1 MiB (or --grain).",
        costs="Nothing today. After cloning to a drive with larger units it may.",
        do="Nothing; choose 1 MiB when partitioning anew.",
    ),
    Code.END_UNALIGNED: Explanation(
        severity="info",
        title="Partition does not end on a physical sector",
        means="The last physical sector of the partition is shared with what follows.",
        judged=(
            "The end must be a multiple of the physical sector, counted like the start. The end of the "
            "disk itself is left out."
        ),
        costs=(
            "Nothing for performance. LUKS with 4096-byte sectors needs a size that is a multiple of 4096."
        ),
        do=(
            "Nothing. Do not shrink a partition for it: md 0.90/1.0, NTFS and ZFS keep data in the last "
            "sectors."
        ),
    ),
    Code.OFF_ERASE_BLOCK: Explanation(
        severity="info",
        title="Partition starts off the erase block",
        means="The database knows the erase block of this drive, and the partition does not start on one.",
        judged=(
            "For information only on SSDs: since about 2016 erase blocks are rarely powers of two and the "
            "drive's mapping hides them; no partition offset can align to them."
        ),
        costs="None that was measured on SSDs with a mapping in 4 KiB units.",
        do="Nothing.",
    ),
    Code.UNKNOWN_ALIGNMENT: Explanation(
        severity="warning",
        title="Alignment cannot be judged",
        means=(
            "Something that the verdict needs is missing or contradictory: the device's grid, or where "
            "the data really lie."
        ),
        judged=(
            "The device reports alignment_offset −1 (see AT201), or the partition belongs to a database "
            "or an array that was not read."
        ),
        costs="Unknown. aligntool says so rather than calling it aligned.",
        do="Look at the members of the stacked device one by one: aligntool audit on each.",
    ),
    Code.NOT_JUDGED: Explanation(
        severity="info",
        title="Alignment does not matter here",
        means=(
            "This partition is off the grid, but nothing writes to it in normal use: a boot partition that "
            "firmware or a boot loader reads (BIOS boot, PReP, FreeBSD boot), a reserved one (Microsoft, Solaris), "
            "a part of a hybrid ISO image, a placeholder of a few sectors, or the table's own entry."
        ),
        judged=(
            "By its type, by its size below 4 KiB, or because it lies in an ISO image that was written over the whole "
            "medium. Containers of logical partitions are not even mentioned."
        ),
        costs="Nothing.",
        do=("Leave it. Moving a BIOS boot partition breaks GRUB, which stores the sector of its own image."),
    ),
}
