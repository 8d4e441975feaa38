"""Explanations of partition tables (AT3xx)."""

from aligntool.audit.explanations.explanation import Explanation
from aligntool.audit.report import Code

TABLE = {
    Code.GPT_PRIMARY_DAMAGED: Explanation(
        severity="error",
        title="The primary GPT is damaged",
        means=(
            "The partition table at the start of the disk fails its checks; what is shown comes from the "
            "backup, or is what could still be read."
        ),
        judged=(
            "Signature, header CRC32, entries CRC32 and the header's own numbers (UEFI specification, "
            "section 5.3)."
        ),
        costs="One more damage and the partitions are lost; some firmware does not boot.",
        do=(
            "With a whole backup and a whole protective MBR (neither AT302 nor AT310): sgdisk --backup=FILE DISK "
            "saves what the backup lists, and sgdisk -e DISK writes the primary anew from it. With AT310, sgdisk stops "
            "at “Invalid partition data”: type gdisk DISK, answer 1 (use the current GPT), then r, b, c and y, compare "
            "what p prints, and type w only if it is right; 2 and o make an empty table. After an interrupted "
            "aligntool, type aligntool status DISK before anything else."
        ),
    ),
    Code.GPT_BACKUP_DAMAGED: Explanation(
        severity="warning",
        title="The backup GPT is damaged or missing",
        means="The second copy of the table, at the end of the disk, fails its checks or is not there.",
        judged="Same checks as for the primary.",
        costs="Nothing now; there is no second chance when the first copy is damaged.",
        do=(
            "sgdisk --backup=FILE DISK, then sgdisk -e DISK, which writes it anew from the primary. With AT310, write "
            "the protective MBR first. With AT318, sgdisk aborts until the partition in its place is shorter."
        ),
    ),
    Code.OTHER_SECTOR_SIZE: Explanation(
        severity="error",
        title="The table was written for another sector size",
        means=(
            "The table counts in sectors of another size than the device has: the disk was partitioned "
            "behind another adapter, or an image was attached with the wrong sector size. The kernel sees "
            "no or wrong partitions."
        ),
        judged=(
            "The GPT header is found at the byte where the other sector size puts LBA 1, or the MBR's "
            "numbers fit only the other size."
        ),
        costs="The data are there but cannot be reached through this table.",
        do=(
            "Attach the disk as it was when it was partitioned, or the image with losetup --sector-size. "
            "Do not let a tool create a new table here."
        ),
    ),
    Code.OVERLAP: Explanation(
        severity="error",
        title="Partitions overlap",
        means="Two partitions claim the same bytes.",
        judged="Extents of all partitions except the extended container against its own logicals.",
        costs="Writing to one destroys the other.",
        do=(
            "Do not mount both. Find out which one is real (blkid -p, file-system size), and correct the "
            "table."
        ),
    ),
    Code.BEYOND_END: Explanation(
        severity="error",
        title="A partition ends beyond the disk",
        means=(
            "The table gives the partition more bytes than the disk has: an image cut short, a clone to a "
            "smaller disk, a wrong adapter, or an array member read alone."
        ),
        judged="End of the partition against the size of the disk.",
        costs="What lies beyond the end is lost or elsewhere; a file system may refuse to mount.",
        do=(
            "Do not write. Compare the disk's size with the one it had; look for a host protected area or "
            "a truncated copy."
        ),
    ),
    Code.EBR_CHAIN: Explanation(
        severity="error",
        title="The chain of logical partitions is broken",
        means=(
            "Logical partitions are linked by extended boot records; here a record is missing, points "
            "back, lies inside a partition or leaves its container."
        ),
        judged="Each record's signature, its place, and that the chain ends.",
        costs="Logical partitions after the break are not seen; tools that rewrite the chain may drop some.",
        do="sfdisk --dump DISK before anything else. Repair with a tool that shows what it would write.",
    ),
    Code.HYBRID_MBR: Explanation(
        severity="info",
        title="Hybrid MBR",
        means=(
            "The disk has a GPT and beside it a classic MBR with real entries, so that two tables "
            "describe the same partitions."
        ),
        judged="Type 0xEE together with another used entry in the MBR.",
        costs=(
            "Tools update one of the two: libparted wipes the MBR entries at any change, libfdisk leaves "
            "them stale."
        ),
        do=(
            "Change such a disk only with gdisk's recovery and transformation menu, and check both tables "
            "after it."
        ),
    ),
    Code.KERNEL_DISAGREES: Explanation(
        severity="warning",
        title="The kernel has other partitions than the table",
        means="The table on the disk was changed after the kernel read it, or the kernel could not read it.",
        judged=(
            "Start and size of every partition in sysfs against the table. Not compared for loop devices "
            "without partition scanning."
        ),
        costs="Programs work on the old boundaries until the table is read again.",
        do="partprobe DISK or a reboot, with nothing on the disk in use.",
    ),
    Code.BAD_ENTRY: Explanation(
        severity="error",
        title="A table entry makes no sense",
        means=(
            "An entry ends before it starts, has an impossible size, or the table claims an impossible "
            "number of entries."
        ),
        judged="The numbers of each entry and of the header. A warning in an MBR, where the kernel leaves it out.",
        costs="The entry is left out of the audit; the table may be damaged or hostile.",
        do="Look at it with sfdisk --dump or sgdisk -v; restore the table from a backup.",
    ),
    Code.PROTECTIVE_MBR: Explanation(
        severity="warning",
        title="The protective MBR is not right",
        means=(
            "A GPT disk carries an MBR with one entry of type 0xEE that keeps older tools away. It is "
            "missing, of the wrong size, or stands beside a GPT that is stale."
        ),
        judged="Sector 0 against the UEFI specification, section 5.2.3.",
        costs="Without it Linux and most tools do not take the disk for GPT.",
        do=(
            "With both copies whole: sgdisk --backup=FILE DISK, then gdisk DISK: x, n (new protective MBR), w. With "
            "AT301 beside it, see there; with AT302, gdisk asks first: answer 1 (use the current GPT)."
        ),
    ),
    Code.OUTSIDE_USABLE: Explanation(
        severity="warning",
        title="A partition lies outside the usable area",
        means=("The GPT header names the sectors that partitions may use; this one lies outside them."),
        judged="FirstUsableLBA and LastUsableLBA of the header.",
        costs="Tools refuse to change the table.",
        do="Check which of the two is wrong: sgdisk -v DISK.",
    ),
    Code.GPT_BACKUP_MISPLACED: Explanation(
        severity="warning",
        title="The backup GPT is not at the end of the disk",
        means=(
            "The disk is larger than the table thinks: a clone to a larger drive, a grown volume, or an "
            "image written to a card."
        ),
        judged="AlternateLBA of the header against the last sector.",
        costs="The space behind cannot be used; the backup lies where a partition may be made.",
        do="sgdisk -e DISK moves it to the end; it aborts where a partition is there (AT318).",
    ),
    Code.GPT_COPIES_DIFFER: Explanation(
        severity="error",
        title="The two copies of the GPT differ",
        means=(
            "Both copies are valid and describe different partitions: a change was cut short, or a tool "
            "wrote only one."
        ),
        judged="The entries of both.",
        costs="Firmware and systems may use different tables.",
        do=(
            "Save the first and the last MiB of the disk with dd: sgdisk --backup saves the entries of the primary "
            "only. Find out which copy is right before any tool overwrites one."
        ),
    ),
    Code.DYNAMIC_DISK: Explanation(
        severity="info",
        title="Windows dynamic disk",
        means=(
            "The volumes of a dynamic disk (LDM) are described in a database at its end, not in the "
            "partition table."
        ),
        judged="Type 0x42 or the GUIDs of LDM metadata and data.",
        costs=(
            "Volumes that the kernel shows are judged. Where it shows none, an entry that starts off the grid "
            "stays unknown: its volumes may start elsewhere."
        ),
        do="ldmtool shows the volumes. aligntool will not change such a disk.",
    ),
    Code.FIRMWARE_RAID_MEMBER: Explanation(
        severity="info",
        title="Member of a firmware or whole-disk RAID",
        means=(
            "The disk is a member of an array that covers it whole (Intel RST, DDF, md without "
            "partitions). A partition table seen on it belongs to the array."
        ),
        judged="The member's own superblock, or what udev says of it.",
        costs="Partitions shown here are not judged; audit the array (for example /dev/md126).",
        do="Nothing.",
    ),
    Code.IN_FLIGHT: Explanation(
        severity="error",
        title="A move of partitions is in flight",
        means=(
            "aligntool was moving partitions of this disk and was stopped: by a power cut, a crash or a signal. "
            "Their entries are parked with a type that nothing mounts, and their contents lie partly at the old "
            "place and partly at the new one."
        ),
        judged=(
            "A GPT entry with aligntool's type GUID, in either copy, or an MBR entry of type 0x7F whose CHS fields "
            "hold the journal's place. Parked entries are compared with no boundary. `aligntool status` looks for the "
            "journal, too."
        ),
        costs="The partitions cannot be mounted until the move has ended. Nothing is lost.",
        do=(
            "aligntool resume DISK finishes the move, aligntool rollback DISK undoes it, on any machine. Where the "
            "journal is a file on another disk, name it with --journal FILE. Do not mount, check or partition the "
            "disk before that."
        ),
    ),
    Code.COVERS_TABLE: Explanation(
        severity="error",
        title="A partition covers the partition table",
        means=(
            "A partition includes sectors where a copy of the GPT is, or where the backup copy belongs: the end of "
            "the disk."
        ),
        judged=(
            "Every partition against the headers and entries of both copies and against the last sectors of the disk, "
            "whatever the header calls usable."
        ),
        costs=(
            "The file system overwrites the table, or the next tool that writes the table overwrites the file system. "
            "sgdisk -e aborts: “Secondary partition table overlaps the last partition”."
        ),
        do=(
            "Copy the data away. Shrink the file system and then the partition, so that it ends before the entries of "
            "the backup copy (33 sectors of 512 bytes before the end of the disk), then sgdisk -e DISK."
        ),
    ),
    Code.GPT_LOST: Explanation(
        severity="error",
        title="Both copies of the GPT are damaged",
        means=(
            "Neither the table at the start of the disk nor its copy at the end passes its checks. Linux reads none "
            "of its entries; what is listed is what could still be read, and its starts are unknown."
        ),
        judged="Signature, header CRC32, entries CRC32 and the header's own numbers of both copies.",
        costs="The partitions cannot be reached. Most of their contents may be whole.",
        do=(
            "Do not type sgdisk -e or --backup here: where both headers fail, sgdisk starts from an empty table, and "
            "-e writes it. Save the first and the last MiB of the disk with dd. Where a checksum alone is wrong, "
            "gdisk's recovery menu reads the rest: r, then b and c for the backup copy or d and e for the primary, "
            "then p; type w only if the partitions are right. Otherwise testdisk searches for file systems. After an "
            "interrupted aligntool, type aligntool status DISK before anything else."
        ),
    ),
    Code.TABLE_UNREADABLE: Explanation(
        severity="error",
        title="The partition table cannot be read",
        means="The device gave an I/O error where the table should be.",
        judged="Reading the first and last sectors.",
        costs="The drive may be failing.",
        do="smartctl -a DISK; copy what can be read with ddrescue before anything else.",
    ),
}
