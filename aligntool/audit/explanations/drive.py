"""Explanations of drives and links, and what was not seen (AT5xx, AT9xx)."""

from aligntool.audit.explanations.explanation import Explanation
from aligntool.audit.report import Code

DRIVE = {
    Code.LINK_DEGRADED: Explanation(
        severity="warning",
        title="A PCIe link runs below what both its ends can do",
        means="Speed or width of the drive's link is lower now than the most that drive and port support.",
        judged=(
            "current_link_speed against the lower max_link_speed of both ends, current_link_width against the "
            "smaller max_link_width. Where the port reports no maximum, the drive's own is shown, as a note only. "
            "Some platforms lower the speed when idle."
        ),
        costs="Bandwidth falls in proportion.",
        do=(
            "Reseat the drive or cable, look at the slot's bifurcation setting; read it again under load "
            "before believing it."
        ),
    ),
    Code.SHARED_UPLINK: Explanation(
        severity="warning",
        title="Drives share an uplink that is narrower than they are together",
        means=(
            "Several drives hang behind one switch or chipset link, whose bandwidth is less than the sum "
            "of theirs."
        ),
        judged=(
            "The link of a switch's upstream port, or the chipset's DMI by its generation, against the "
            "sum of the drives' links."
        ),
        costs=(
            "An array over these drives cannot be faster than the uplink: DMI 3.0 x4 carries 3.9 GB/s in "
            "each direction for all drives and all other I/O."
        ),
        do="Move drives to slots of the processor where there are any.",
    ),
    Code.BEHIND_CHIPSET: Explanation(
        severity="info",
        title="The drive hangs behind the chipset",
        means=(
            "The drive's root port belongs to the chipset, so its traffic shares the DMI with USB, "
            "network and SATA."
        ),
        judged="The root port's name in the system's pci.ids, or aligntool's table of chipsets.",
        costs="None for one drive of up to x4 Gen3 alone.",
        do="Prefer slots of the processor for members of an array.",
    ),
    Code.REMAPPED_NVME: Explanation(
        severity="warning",
        title="Firmware RAID mode hides NVMe drives",
        means=(
            'The AHCI controller holds NVMe drives back in RAID (RST, "Optane") mode; Linux cannot use them.'
        ),
        judged="remapped_nvme of the AHCI controller in sysfs is greater than 0.",
        costs="The drives are invisible or slow.",
        do=(
            "Switch the firmware setup from RAID to AHCI. An existing Windows or RST array may stop "
            "booting: read its maker's notes first."
        ),
    ),
    Code.BEHIND_VMD: Explanation(
        severity="info",
        title="The drive is behind Intel VMD",
        means=(
            "The drives of a VMD controller appear in a PCI domain of their own. Linux handles it; link "
            "speeds are readable."
        ),
        judged="PCI domain 10000 or higher, or the vmd driver.",
        costs="None known for alignment.",
        do="Nothing.",
    ),
    Code.HMB_SHORT: Explanation(
        severity="info",
        title="The host memory buffer is smaller than the drive asked for",
        means=(
            "A DRAM-less drive asks the host for memory to keep its mapping table in; it got none, or "
            "less than its preferred size."
        ),
        judged="Granted size (Get Features 0Dh) against HMPRE and HMMIN of Identify Controller.",
        costs="Random reads over a span larger than the cached map are slower.",
        do=(
            "Raise nvme.max_host_mem_size_mb on the kernel command line; /sys/class/nvme/nvmeN/hmb "
            "switches it on and off."
        ),
    ),
    Code.HMB_COVERAGE: Explanation(
        severity="info",
        title="How much of a DRAM-less drive its buffer can map",
        means=(
            "The drive's mapping table takes about a thousandth of its capacity (4 bytes for each 4 KiB); "
            "the buffer that the host gives covers part of it."
        ),
        judged=(
            "Granted or preferred buffer × 1024 against the capacity; the real drive also keeps other "
            "things in it."
        ),
        costs="Random access within the covered span is fast, beyond it slower; writes hardly change.",
        do="Leave free what need not be used, or choose a drive with DRAM for wide random reads.",
    ),
    Code.NO_QUEUE: Explanation(
        severity="info",
        title="The drive takes one command at a time",
        means="The device offers a queue depth of 1: NCQ is off or missing.",
        judged="queue_depth in sysfs for ATA and SCSI; IDENTIFY words 75 and 76.",
        costs="No gain from concurrent requests; random reads stay at the rate of queue depth 1.",
        do="Set the controller to AHCI; look for libata.force=noncq on the kernel command line.",
    ),
    Code.SLOW_SLOT: Explanation(
        severity="info",
        title="The drive is faster than its slot",
        means="The drive's link could be faster than the port allows: an older generation or fewer lanes.",
        judged=(
            "max_link_speed and max_link_width of the drive against the lower of the two speeds and the smaller of "
            "the two widths of drive and port."
        ),
        costs="Bandwidth is limited by the slot.",
        do="Use a faster slot if there is one.",
    ),
    Code.DRIVE_NOTE: Explanation(
        severity="info",
        title="The drive database has a remark on this model",
        means=(
            "Something about this model or its firmware is worth knowing: a hybrid cache, a queue limit "
            "that misleads, several NANDs behind one name."
        ),
        judged="The row of the drive database, with its source.",
        costs="As the remark says.",
        do="aligntool drives MODEL shows the whole row.",
    ),
    Code.NOT_SEEN: Explanation(
        severity="info",
        title="Something could not be looked at",
        means=(
            "A superblock, a page of the drive or a file was not read: no permission, no medium, or an I/O error."
        ),
        judged="Reported for each device; the disk is judged without it.",
        costs="The audit is incomplete there.",
        do="Mostly: run it with sudo.",
    ),
    Code.DISK_NOT_JUDGED: Explanation(
        severity="warning",
        title="A disk or target could not be judged",
        means=(
            "It could not be opened or read (no permission, asleep, offline, an I/O error), it is not a disk image, or "
            "its size or its partitions are missing in sysfs or in the captured tree."
        ),
        judged=(
            "Reported for each target that was named and each disk of the machine, and listed under `unseen` in the "
            "JSON. What is known of its partitions from sysfs and udev is judged all the same."
        ),
        costs="What was not read may be off the grid. When the exit code is 3 for it stands in docs/cli.md.",
        do="Run it with sudo, wake the drive (--wake), or name a disk image.",
    ),
    Code.NO_ANSWER: Explanation(
        severity="error",
        title="A disk did not answer in time",
        means=(
            "Opening it, a read, a command to the drive or one of its files in sysfs did not return before the "
            "deadline. A process that waits for it cannot be ended (state D)."
        ),
        judged=(
            "Each disk is looked at in a child process: no answer for 10 s, or not done after three times that; 30 s "
            "more for a drive that was asleep. `--timeout` sets another deadline. The other disks are judged."
        ),
        costs="Nothing is known of the disk, and programs that touch it hang.",
        do="Look into the kernel's log (dmesg): a dead drive, cable, controller or file server below a loop device.",
    ),
}
