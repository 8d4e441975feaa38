"""Explanations of md arrays, and of what makes them come back (AT6xx)."""

from aligntool.audit.explanations.explanation import Explanation
from aligntool.audit.report import Code

ARRAY = {
    Code.ARRAY_DEGRADED: Explanation(
        severity="error",
        title="An array runs with members missing",
        means="A member failed, was pulled or did not come up; its copy or its parity is not there.",
        judged="md's own count (degraded in sysfs), which mdadm --detail shows as well.",
        costs="One more failure can lose everything; reads of RAID5 and RAID6 are computed from all other "
        "members.",
        do=(
            "mdadm --detail names the missing one. Replace it and mdadm --add its successor, or --re-add a "
            "member "
            "that only lost its link. RAID5 and RAID6: have a backup before the rebuild reads every sector."
        ),
    ),
    Code.ARRAY_BUSY: Explanation(
        severity="info",
        title="An array is being resynchronised, rebuilt or checked",
        means="md reads and writes every member in the background.",
        judged="sync_action in sysfs, with its progress and rate.",
        costs=(
            "Part of every member's rate. Until a resync ends, reads of a mirror go to its first member "
            "only, so "
            "a benchmark tells nothing of the array."
        ),
        do="Wait; /proc/mdstat shows the end. /proc/sys/dev/raid/speed_limit_max says how fast it may go.",
    ),
    Code.CHUNK_CUTS_UNITS: Explanation(
        severity="warning",
        title="The array's chunk cuts the pages or units of its members",
        means="A chunk is smaller than what a member writes at once, or no multiple of it.",
        judged=(
            "Chunk against the members' physical sector, minimum I/O size, NAND page and mapping unit, by the "
            "same grids as partitions; and against 16 KiB, below which most requests are cut in two."
        ),
        costs=(
            "Each chunk ends inside a unit, which is read, changed and written again. Published: with a "
            "chunk of "
            "4 KiB a database on four NVMe drives did 0.79 of the work of one drive."
        ),
        do=(
            "mdadm --grow --chunk changes it for RAID0, 4, 5, 6 and 10 (mdadm(8), GROW MODE) by rewriting "
            "everything, which is slow: have a backup, and put its --backup-file on another drive."
        ),
    ),
    Code.STRIPE_TOO_LONG: Explanation(
        severity="info",
        title="A full stripe of RAID5 or RAID6 is longer than one request",
        means="Chunk times data members is more than 1 MiB, so a full stripe never arrives in one piece.",
        judged=(
            "Published: md takes at most 256 pages of 4 KiB in a request (RAID5_MAX_REQ_STRIPES, "
            "drivers/md/raid5.c)."
        ),
        costs=(
            "Long writes become whole stripes only if several requests meet in the stripe cache; else old "
            "data or "
            "parity are read first. How often that happens was not measured, which is why this is a note."
        ),
        do=(
            "A larger stripe_cache_size (sysfs, 17 to 32768 pages a member; a udev rule makes it last) lets "
            "more "
            "writes meet. A new array takes a smaller chunk: aligntool raid plan."
        ),
    ),
    Code.BITMAP_MISSING: Explanation(
        severity="warning",
        title="A redundant array has no write-intent bitmap",
        means="After a crash md does not know which parts were being written, and makes all of the array "
        "alike again.",
        judged=(
            "consistency_policy in sysfs is resync, without a journal or a partial parity log. For "
            "information only on "
            "members of at most 100 GiB, where mdadm itself makes none by default."
        ),
        costs="Hours of resynchronisation after each crash; until it ends, a second failure can lose data.",
        do=(
            "mdadm --grow --bitmap=internal ARRAY, once no resync, rebuild, check or reshape runs (cat "
            "/proc/mdstat): until then it is refused. A bitmap cost one tester 7 % of small writes to a RAID1; "
            "RAID5 and RAID6 on flash want --bitmap-chunk=1G (AT606)."
        ),
    ),
    Code.BITMAP_TOO_FINE: Explanation(
        severity="warning",
        title="The bitmap of RAID5 or RAID6 on flash is too fine",
        means="mdadm's default is a bit for each 64 MiB; nearly every small write then waits for the bitmap "
        "first.",
        judged=(
            "bitmap/chunksize in sysfs below 1 GiB, or below the largest power of two that a smaller member "
            "gives; "
            "internal bitmaps of RAID4, RAID5 and RAID6 whose members are all flash."
        ),
        costs=(
            "Published, one tester, five NVMe drives: 20,600 small writes a second without a bitmap, 174 "
            "with 64 MiB "
            "a bit, 285 with 512 MiB, 10,300 with 1 GiB."
        ),
        do=(
            "Once no resync, rebuild, check or reshape runs (cat /proc/mdstat): mdadm --grow --bitmap=none "
            "ARRAY, then mdadm --grow --bitmap=internal --bitmap-chunk=1G ARRAY. Between the two the array is "
            "without one for a moment."
        ),
    ),
    Code.DISCARDS_OFF: Explanation(
        severity="info",
        title="RAID5 or RAID6 on flash passes no discards on",
        means="fstrim does nothing on the array, so its drives never learn what is free.",
        judged="discard_max_bytes is 0 for the array and not for its members, which are flash.",
        costs="Drives that are full in their own eyes write more than they are given, and slow down.",
        do=(
            "Leave part of the drives unused. options raid456 devices_handle_discard_safely=Y in "
            "/etc/modprobe.d and "
            "the initramfs switches discards on; it is a promise that every member returns zeros for what was "
            "discarded, and where that is not so a later failure loses data. Off is md's default, hence "
            "only a note."
        ),
    ),
    Code.MEMBER_WITH_GPT: Explanation(
        severity="error",
        title="A drive that is a member as a whole still has a GPT header",
        means=(
            "The drive was partitioned once, then taken for an array without its table being wiped. "
            "Firmware and "
            "installers see a GPT of which one copy is damaged."
        ),
        judged="A header with a right checksum in the second or the last sector, outside the array's data.",
        costs=(
            "Published: mainboards that 'repair' such a table at every start, and overwrite bytes 4096 to "
            "16384, "
            "where md's superblock of version 1.2 lies. The array is gone after a reboot."
        ),
        do=(
            "Have a backup. RAID0 and linear: copy the data away and make the array anew with aligntool raid "
            "create; no member can be taken out of them. The other levels, while no member is missing, one "
            "member after the other: mdadm --fail and --remove it, wipefs --all the drive, make a GPT with one "
            "partition of type Linux RAID (aligntool layout), mdadm --add the partition, and wait until "
            "/proc/mdstat shows it rebuilt. It is a little smaller than the drive, so the array may have to be "
            "shrunk first."
        ),
    ),
    Code.WHOLE_DRIVE_MEMBER: Explanation(
        severity="info",
        title="A member is a drive without a partition table",
        means="Nothing on the drive says to firmware and other systems that it is in use.",
        judged="An md superblock of the drive itself, on a drive that firmware can see.",
        costs="An installer offers it as empty; some firmware writes a table to it.",
        do="Take partitions of type Linux RAID for the next array; aligntool raid plan does.",
    ),
    Code.MIXED_SECTORS: Explanation(
        severity="warning",
        title="The members have logical sectors of different sizes",
        means="The array counts in the largest of them, and its partition table and file system are made "
        "for that.",
        judged="logical_block_size of the members.",
        costs=(
            "When the member with the larger sectors is missing at the next start, the array counts in 512 "
            "bytes, and "
            "its partitions are gone (kernel commits 6c6b66f65e55 and 62ed1b582246, November 2025)."
        ),
        do="Replace the odd one by a drive formatted like the others: nvme format --lbaf, which erases it.",
    ),
    Code.NO_ARRAY_LINE: Explanation(
        severity="warning",
        title="No ARRAY line in mdadm.conf names the array",
        means="The array is found by its superblocks alone, and gets its name by whether its host's name fits.",
        judged="The UUID of the array against every ARRAY line of mdadm.conf and the folders beside it.",
        costs=(
            "It comes up as /dev/md127 or under a name with _0, in the initramfs and where the host's name "
            "has changed; "
            "what mounts it by name then fails. On Debian the initramfs finds arrays by itself only while "
            "mdadm.conf names none."
        ),
        do="aligntool raid persist ARRAY writes the line, by UUID, and builds the initramfs anew.",
    ),
    Code.WRONG_ARRAY_LINE: Explanation(
        severity="warning",
        title="The array's line in mdadm.conf does not name it by its UUID",
        means="The line goes by a device, a name or the UUID of an array that was there before.",
        judged="Lines whose device or name is the array's, and whose UUID is missing or belongs to no array "
        "that runs.",
        costs="The array does not match its line, and comes up under another name or not at all.",
        do="aligntool raid persist ARRAY replaces it.",
    ),
    Code.NOT_IN_INITRAMFS: Explanation(
        severity="warning",
        title="An initramfs does not know the array",
        means=(
            "Arrays are assembled early, from the initramfs and by the copy of mdadm.conf inside it, which "
            "is as old "
            "as the image."
        ),
        judged=(
            "Every image in /boot is unpacked in memory and its mdadm.conf read. dracut assembles only what "
            "rd.md.uuid= "
            "or rd.auto names, so for other arrays its images are not judged. Error where the system lies "
            "on the array "
            "and the image holds no mdadm."
        ),
        costs="The array comes up under another name (md127), or the machine does not start.",
        do="aligntool raid persist ARRAY; by hand: update-initramfs -u -k all, dracut -f --regenerate-all, "
        "mkinitcpio -P.",
    ),
    Code.FOREIGN_ARRAY: Explanation(
        severity="warning",
        title="The array belongs to another host",
        means="Its superblock names the host that it was made on, and that is not this one; no ARRAY line "
        "says otherwise.",
        judged="The host in the array's name against the host's name, or HOMEHOST of mdadm.conf. 'any' fits "
        "every host.",
        costs="mdadm gives foreign arrays another name and a number from 127 downwards.",
        do=(
            "aligntool raid persist ARRAY adds its line, which is enough. To change the superblock as well, "
            "stop the array "
            "and assemble it with mdadm --assemble --update=homehost --homehost=any."
        ),
    ),
    Code.NUMBERED_IN_FSTAB: Explanation(
        severity="warning",
        title="Something is named by the number of an array",
        means="fstab, crypttab or the kernel's command line says /dev/md0 or /dev/md127.",
        judged="Every line; for information only where an ARRAY line with a UUID keeps the number.",
        costs="At another start the number is another array's, or nobody's; the machine stops or mounts the "
        "wrong thing.",
        do=(
            "UUID= in its place: aligntool raid persist ARRAY does it for fstab and crypttab, where the array goes "
            "by that number or is named after it; the kernel's command line stands in the boot loader's settings."
        ),
    ),
    Code.FSTAB_WITHOUT_NOFAIL: Explanation(
        severity="info",
        title="A data array is mounted without nofail",
        means="systemd takes what fstab names for needed to start, unless it says nofail.",
        judged=(
            "Lines of this array, but for /, /usr, /var, /home, /boot and the like, which a system may well "
            "need."
        ),
        costs="Where the array is missing or late, the machine waits 90 seconds and stops in a rescue shell.",
        do="aligntool raid persist ARRAY adds nofail, and a wait of two minutes where the line says none.",
    ),
    Code.UNFINISHED_ARRAY: Explanation(
        severity="error",
        title="The making of an array was begun and has not ended",
        means="aligntool was stopped in the middle; what is there may look finished and is not.",
        judged="aligntool's own record, under /var/lib/aligntool.",
        costs="Data put on it now may be lost when it is made to its end or taken back.",
        do="aligntool status tells how far it is; aligntool resume goes on, aligntool rollback takes it back.",
    ),
    Code.STARTS_ONLY_WHOLE: Explanation(
        severity="info",
        title="A data array is not started when it lacks a drive",
        means=(
            "On Debian and Ubuntu the initramfs adds the members of every array and starts incomplete ones only for "
            "the root file system; mdadm's own timer, which would start the others, is asked for when a member is "
            "added, and by then all of them are."
        ),
        judged=(
            "RAID1, RAID10, RAID5 and RAID6 that do not hold the root file system, where an initramfs with mdadm was "
            "looked into and mdadm-late-start.timer is not enabled."
        ),
        costs="A drive fails, and after the next start the array that was to survive it is inactive and not mounted.",
        do=(
            "aligntool raid persist ARRAY brings mdadm-late-start.timer, which starts it without the drive after half "
            "a minute."
        ),
    ),
}
