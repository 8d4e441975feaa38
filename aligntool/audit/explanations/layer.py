"""Explanations of the layers above a partition (AT4xx)."""

from aligntool.audit.explanations.explanation import Explanation
from aligntool.audit.report import Code

LAYER = {
    Code.LAYER_OFF_PHYSICAL: Explanation(
        severity="error",
        title="Data inside the partition start off the physical sectors",
        means=(
            "The partition may be right, but a layer inside it (RAID, encryption, volume manager) begins "
            "its data off the sectors of the drive."
        ),
        judged=(
            "partition start + md data offset + LUKS payload + LVM pe_start and extents, added up to a "
            "byte on the device, against the same grid as AT101."
        ),
        costs="As for AT101: everything above that layer is misaligned.",
        do=(
            "The layer must be recreated with another data offset (mdadm --data-offset, cryptsetup "
            "--align-payload, pvcreate --dataalignment) or moved by its own tool."
        ),
    ),
    Code.LAYER_OFF_PAGE: Explanation(
        severity="warning",
        title="Data inside the partition start off the page, unit or allocation unit",
        means=(
            "As AT401, for the larger grid of AT102 or AT103. mdadm's default data offset is 1 MiB past a "
            "multiple of 4 MiB, for instance."
        ),
        judged="The added-up byte against page, indirection unit and allocation unit.",
        costs="As for AT102 and AT103.",
        do="Choose the data offset when the array or container is next made: mdadm --data-offset=128M.",
    ),
    Code.CLUSTERS_OFF: Explanation(
        severity="warning",
        title="The clusters of a FAT or exFAT file system are off the grid",
        means=(
            "The partition starts right, but the file system's own tables before its first cluster have a "
            "length that pushes the clusters off."
        ),
        judged=(
            "First cluster = start + reserved sectors + FATs + root directory, against the physical "
            "sector. For information only on an EFI system partition."
        ),
        costs="As for AT101, for file contents.",
        do=(
            "Make the file system anew: current mkfs.fat aligns by itself except on small volumes, where "
            "-s and -R help."
        ),
    ),
    Code.LAYER_OFF_CHUNK: Explanation(
        severity="warning",
        title="Data inside start off the array's chunk or stripe",
        means="A volume or container on a striped array begins its data within a chunk.",
        judged="Data start and every LVM segment against the chunk of the array below.",
        costs="As for AT104.",
        do="pvcreate --dataalignment with the stripe width; LVM extents as a multiple of the stripe.",
    ),
    Code.STRIPE_MISMATCH: Explanation(
        severity="warning",
        title="The file system's stripe settings do not fit the array",
        means=(
            "ext4 (stride, stripe width) or XFS (sunit, swidth) were told of another array than the one "
            "below."
        ),
        judged=(
            "Stripe unit against the array's chunk; stripe width as a multiple of the unit. On RAID1 "
            "there is no chunk and no setting is right."
        ),
        costs=(
            "Allocation avoids the wrong boundaries: more read-modify-write on RAID5/6, uneven load on "
            "RAID0/10."
        ),
        do="ext4: tune2fs -E stride=N,stripe_width=M. XFS: mount -o sunit=N,swidth=M.",
    ),
    Code.SMALL_BLOCKS: Explanation(
        severity="info",
        title="Blocks are smaller than the physical sector",
        means="The file system or the encryption works in units smaller than the drive's sector.",
        judged="Block, cluster or encryption sector size against the physical sector.",
        costs=(
            "Write amplification of sector / block for each small write that the page cache does not merge."
        ),
        do="Choose 4096-byte blocks, or cryptsetup --sector-size 4096, when it is next made.",
    ),
    Code.LARGER_THAN_CONTAINER: Explanation(
        severity="error",
        title="The file system is larger than its partition",
        means=(
            "The superblock claims more bytes than the partition has: a partition shrunk before its file "
            "system, a truncated copy, a wrong table."
        ),
        judged="Size in the superblock against the extent of the partition.",
        costs="Data at the end are lost or will be; the next partition may be overwritten.",
        do="Do not mount writable. Enlarge the partition if the space behind it is free, or restore.",
    ),
    Code.AMBIGUOUS_CONTENT: Explanation(
        severity="warning",
        title="More than one thing is recognised here",
        means=(
            "Two or more superblocks are valid at once, for example an old RAID member below a new file "
            "system."
        ),
        judged=(
            "All signatures are looked for, not only the first. UDF, ISO 9660 and HFS on one disc are one bridge or "
            "hybrid disc. Which of several a program takes differs: blkid -p may name one, and a program that looks "
            "for another one by itself finds that."
        ),
        costs="Some tools mount the one, some the other; assembling a stale array destroys the file system.",
        do="wipefs DISK lists them; wipefs -o removes the stale one once you are sure.",
    ),
    Code.DAMAGED_SUPERBLOCK: Explanation(
        severity="warning",
        title="A superblock is inconsistent",
        means="The layer was recognised, but its checksum or its numbers do not hold.",
        judged="The checksum that the format itself defines, and plausibility of sizes.",
        costs="The layer may be damaged; its offsets are shown but not trusted.",
        do=(
            "Run the layer's own checker read-only: e2fsck -fn, xfs_repair -n, btrfs check --readonly, "
            "cryptsetup luksDump."
        ),
    ),
}
