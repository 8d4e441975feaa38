#compdef aligntool
# Written by .ci/completion.py; do not edit.

emulate sh -c '
aligntool_disks() {
    for path in /sys/class/block/*; do
        case ${path##*/} in dm-* | fd[0-9]* | ram* | sr[0-9]* | zram*) continue ;; esac
        read -r size <"$path/size" && [ "$size" != 0 ] && [ ! -e "$path/partition" ] && echo "/dev/${path##*/}"
    done
}
aligntool_arrays() {
    for path in /sys/class/block/md*/md /dev/md/*; do
        case $path in
        */md) path=${path%/md} && [ -e "$path/md" ] && echo "${path##*/}" ;;
        *) [ -e "$path" ] && echo "${path##*/}" ;;
        esac
    done
}
aligntool_partitions() { # the words of the command line; the first one that is a disk or a file counts
    shift
    for word; do
        case $word in plan | realign) continue ;; esac
        [ -b "/dev/$word" ] && word=/dev/$word
        [ -b "$word" ] || [ -f "$word" ] || continue
        path=$(readlink -f "$word")
        case $path in
        /dev/*) cat "/sys/class/block/${path##*/}/"*/partition ;;
        *) partx --show --noheadings --output NR "$path" ;;
        esac | tr -d '\'' '\'' | sort -n
        return
    done
}
'

_aligntool_audit() {
    _arguments -s -S \
        '(--map)--map[Draw each disk, and the blocks of each partition over sectors]' \
        '(--json)--json[The same as --format json]' \
        '(--host)--host[Include the name of this machine in the JSON]' \
        '(--format)--format=[Format of the report \[default\: text\]]:text|json|prometheus:(text json prometheus)' \
        '(--fail-on)--fail-on=[Exit 1 at this severity or above; error and warning\: also 3 if any disk was not judged \[default\: 1 at an error, 3 only as stated above\]]:error|warning|never:(error warning never)' \
        '(--quiet -q)--quiet[Show only errors and warnings, one line each]' \
        '(--quiet -q)-q[Show only errors and warnings, one line each]' \
        '(--verbose -v)--verbose[Show every disk and every note in full]' \
        '(--verbose -v)-v[Show every disk and every note in full]' \
        '(--wake)--wake[Also read disks that are asleep]' \
        '(--timeout)--timeout=[Skip a disk that does not respond for this long]:SECONDS: ' \
        '*--sysroot=[Use a captured machine\: a snapshot or its folder; may be repeated]:DIR:_files' \
        '(--root)--root=[Judge arrays by the files of the system installed below DIR]:DIR:_files -/' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '*--measured=[Compare with the result of `aligntool probe -o FILE`]:FILE:_files' \
        '(--grain)--grain=[Boundary that partitions should start on \[default\: 1MiB\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--serials)--serials[Add serial numbers to the metrics of --format prometheus]' \
        '(--output -o)--output=[Write the report to this file atomically; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Write the report to this file atomically; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:audit:_aligntool_devices'
}

_aligntool_explain() {
    _arguments -s -S \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:explain:((AT101\:"Partition starts off the physical sectors" AT102\:"Partition starts off the NAND page or the drive'\''s internal unit" AT103\:"Partition starts off the card'\''s allocation unit" AT104\:"Partition starts off the RAID chunk" AT105\:"Partition starts off the optimal I/O size" AT106\:"Partition does not start on a multiple of 1 MiB or of the given grain" AT107\:"Partition or disk does not end on a physical sector" AT108\:"Partition starts off the erase block" AT109\:"Alignment cannot be judged" AT110\:"Alignment does not matter here" AT201\:"The members of a stacked device contradict each other" AT202\:"The optimal I/O size is not plausible" AT203\:"The drive hides its physical sector size" AT204\:"The physical sector size is assumed" AT205\:"The minimum I/O size is not plausible" AT206\:"The drive offers a faster sector format" AT207\:"The drive works in units larger than 4 KiB" AT208\:"The physical sectors do not start at byte 0" AT209\:"The drive and its adapter disagree on the physical sector" AT210\:"The sector size comes from the partition table" AT301\:"The primary GPT is damaged" AT302\:"The backup GPT is damaged or missing" AT303\:"The table was written for another sector size" AT304\:"Partitions overlap" AT305\:"A partition ends beyond the disk" AT306\:"The chain of logical partitions is broken" AT307\:"Hybrid MBR" AT308\:"The kernel'\''s partitions differ from the table" AT309\:"A table entry is invalid" AT310\:"The protective MBR is wrong" AT311\:"A partition lies outside the usable area" AT312\:"The backup GPT is not at the end of the disk" AT313\:"The two copies of the GPT differ" AT314\:"Windows dynamic disk" AT315\:"Member of a firmware or whole-disk RAID" AT316\:"The partition table cannot be read" AT317\:"A move of partitions is in flight" AT318\:"A partition covers the partition table" AT319\:"Both copies of the GPT are damaged" AT401\:"Data inside the partition start off the physical sectors" AT402\:"Data inside the partition start off the page, unit or allocation unit" AT403\:"The clusters of a FAT or exFAT file system are off the grid" AT404\:"Data inside start off the array'\''s chunk or stripe" AT405\:"The file system'\''s stripe settings do not fit the array" AT406\:"Blocks are smaller than the physical sector" AT407\:"The file system is larger than its partition" AT408\:"More than one format is recognised" AT409\:"A superblock is inconsistent" AT501\:"A PCIe link runs slower than both its ends support" AT502\:"Drives share an uplink that is slower than their links combined" AT503\:"The drive is attached to the chipset" AT504\:"Firmware RAID mode hides NVMe drives" AT505\:"The drive is behind Intel VMD" AT506\:"The host memory buffer is smaller than the drive requested" AT507\:"How much of a DRAM-less drive its buffer can map" AT508\:"The drive takes one command at a time" AT509\:"The drive is faster than its slot" AT510\:"The drive database has a note on this model" AT511\:"The firmware of a drive has a known defect" AT601\:"An array runs with members missing" AT602\:"An array is being resynchronised, rebuilt or checked" AT603\:"The array'\''s chunk cuts the pages or units of its members" AT604\:"A full stripe of RAID5 or RAID6 is longer than one request" AT605\:"A redundant array has no write-intent bitmap" AT606\:"The bitmap of RAID5 or RAID6 on flash is too fine" AT607\:"RAID5 or RAID6 on flash does not pass on discards" AT608\:"A whole-drive array member still has a GPT header" AT609\:"A member is a drive without a partition table" AT610\:"The members have logical sectors of different sizes" AT611\:"No ARRAY line in mdadm.conf names the array" AT612\:"The array'\''s line in mdadm.conf does not name it by its UUID" AT613\:"An initramfs does not know the array" AT614\:"The array belongs to another host" AT615\:"An array is referenced by its number" AT616\:"A data array is mounted without nofail" AT617\:"The creation of an array was interrupted" AT618\:"A data array is not started when a drive is missing" AT619\:"An array contains failed members" AT620\:"The DEVICE line of mdadm.conf does not permit the members of an array" AT621\:"An array that the system expects has no member" AT622\:"An array is not started, because members are missing" AT901\:"Something could not be read" AT902\:"A disk or target could not be judged" AT903\:"A disk did not answer in time" queue-depth))'
}

_aligntool_drives() {
    _arguments -s -S \
        '(--firmware)--firmware=[Show only rows that match this firmware revision]:REVISION: ' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:drives: '
}

_aligntool_realign() {
    _arguments -s -S \
        '*--partition=[Move only these, such as 1,2 \[default\: all that are off the grid\]]:N[,N]:_aligntool_partitions' \
        '*-p+[Move only these, such as 1,2 \[default\: all that are off the grid\]]:N[,N]:_aligntool_partitions' \
        '(--grain)--grain=[Boundary on which partitions start \[default\: 1MiB if there is room\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--recipe)--recipe=[Use a recipe that comes with aligntool, or your own from a file\: FILE.toml]:NAME:((cloned-ssd\:"an old table that was cloned onto an SSD\: 1 MiB, or refused" gpt-34-40\:"a GPT whose first partition begins at sector 34 or 40\: old macOS, FreeBSD, storage boxes" large-unit-qlc\:"QLC SSDs with mapping units of 16 to 64 KiB that do not report them" sd-card\:"SD cards and eMMC\: every start on a multiple of 4 MiB, none before the first" sector-63\:"a disk partitioned by cylinders\: first partition at sector 63 (Windows XP and before, old Linux)"))' \
        '(--shrink)--shrink[Allow file systems to be shrunk with their own tools to make room]' \
        '(--used-only)--used-only[Copy only used blocks, even if something else on the disk may need the free ones]' \
        '(--journal)--journal=[Write the journal to this file on another disk, not to free space]:FILE:_files' \
        '*--overwrite-bytes=[Allow these bytes, which no partition has, to be overwritten]:FROM..TO: ' \
        '(--save)--save=[Copy what --overwrite-bytes names to this new file first]:FILE:_files' \
        '(--layers)--layers[Move nothing; re-encrypt each LUKS2 volume with sectors of the drive'\''s size]' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--not-suspended)--not-suspended[No system is suspended to disk in a layer that cannot be looked into, such as a LUKS]' \
        '(--key-file)--key-file=[Read the LUKS2 key from this file \[default\: ask for it\]]:FILE:_files' \
        '(--json)--json[Report events as JSON lines]' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:realign:_aligntool_devices'
}

_aligntool_layout() {
    _arguments -s -S \
        '*--part=[A partition, such as 512MiB\:esp; may be repeated. `rest\:linux` takes the remaining space]:SIZE\:ROLE[\:NAME]: ' \
        '(--table)--table=[gpt, or dos for an MBR \[default\: gpt\]]:gpt|dos:(gpt dos)' \
        '(--recipe)--recipe=[Use a recipe that comes with aligntool, or your own from a file\: FILE.toml]:NAME:((data-disk\:"a data disk\: one Linux partition over the whole disk" desktop-bios\:"a PC that boots by BIOS from a GPT\: BIOS boot partition for GRUB, root, swap" desktop-uefi\:"a PC that boots by UEFI\: EFI system partition, root, swap" sd-card\:"the SD card of a Raspberry Pi or similar board\: FAT for the firmware, Linux, both aligned to 4 MiB" server-nvme-raid\:"a member of a software RAID on NVMe\: EFI system partition, /boot member, data member, room for a smaller spare"))' \
        '(--grain)--grain=[Boundary on which partitions start \[default\: 1MiB\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--spare-end)--spare-end=[Free space to leave at the end]:SIZE: ' \
        '(--lba-size)--lba-size=[First format empty NVMe drives to logical blocks of this size, such as 4096]:SIZE: ' \
        '*--wipe=[Allow everything on this device to be lost; may be repeated]:DEVICE:_aligntool_devices' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:layout:_aligntool_devices'
}

_aligntool_partition() {
    _arguments -s -S \
        '(--undo)--undo[Remove the partition table of a disk with one partition]' \
        '(--table)--table=[gpt, or dos for an MBR \[default\: gpt\]]:gpt|dos:(gpt dos)' \
        '(--grain)--grain=[Boundary on which partitions start \[default\: 1MiB\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--shrink)--shrink[Allow the file system to be shrunk with its own tool to make room]' \
        '(--used-only)--used-only[Copy only used blocks, even if something else on the disk may need the free ones]' \
        '(--journal)--journal=[Write the journal to this file on another disk, not to free space]:FILE:_files' \
        '*--overwrite-bytes=[Allow these bytes, which no partition has, to be overwritten]:FROM..TO: ' \
        '(--save)--save=[Copy what --overwrite-bytes names to this new file first]:FILE:_files' \
        '(--key-file)--key-file=[Open a LUKS volume with this key to find the space in use; - asks for the key]:FILE:_files' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--not-suspended)--not-suspended[No system is suspended to disk in a layer that cannot be looked into, such as a LUKS]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:partition:_aligntool_devices'
}

_aligntool_convert() {
    _arguments -s -S \
        '(--sector-size)--sector-size=[Sector size of the new table\: 4096 or 512]:SIZE:(512 4096)' \
        '(--both)--both[Write tables for both sector sizes; for images that will be copied]' \
        '(--journal)--journal=[Write the journal to this file on another disk, not to free space]:FILE:_files' \
        '*--overwrite-bytes=[Allow these bytes, which no partition has, to be overwritten]:FROM..TO: ' \
        '(--save)--save=[Copy what --overwrite-bytes names to this new file first]:FILE:_files' \
        '(--output -o)--output=[Write a copy to this new image or empty disk; DISK is only read]:FILE:_files' \
        '(--output -o)-o+[Write a copy to this new image or empty disk; DISK is only read]:FILE:_files' \
        '(--used-only)--used-only[Copy only used blocks, even if something else on the disk may need the free ones]' \
        '*--wipe=[With -o\: allow unrecognised data on this disk to be lost]:DEVICE:_aligntool_devices' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--not-suspended)--not-suspended[No system is suspended to disk in a layer that cannot be looked into, such as a LUKS]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:convert:_aligntool_devices'
}

_aligntool_apply() {
    _arguments -s -S \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--not-suspended)--not-suspended[No system is suspended to disk in a layer that cannot be looked into, such as a LUKS]' \
        '(--key-file)--key-file=[Read the LUKS2 key from this file \[default\: ask for it\]]:FILE:_files' \
        '(--json)--json[Report events as JSON lines]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:apply:_files'
}

_aligntool_status() {
    _arguments -s -S \
        '(--journal)--journal=[The journal file, if it is on another disk]:FILE:_files' \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:status:_aligntool_devices'
}

_aligntool_resume() {
    _arguments -s -S \
        '(--journal)--journal=[The journal file, if it is on another disk]:FILE:_files' \
        '(--restore-table)--restore-table[Restore the journal'\''s partition table over one that was changed]' \
        '(--dry-run)--dry-run[Show what is in flight and the remaining steps, and stop]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--key-file)--key-file=[Read the LUKS2 key from this file \[default\: ask for it\]]:FILE:_files' \
        '(--json)--json[Report events as JSON lines]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:resume:_aligntool_devices'
}

_aligntool_rollback() {
    _arguments -s -S \
        '(--journal)--journal=[The journal file, if it is on another disk]:FILE:_files' \
        '(--restore-table)--restore-table[Restore the journal'\''s partition table over one that was changed]' \
        '(--dry-run)--dry-run[Show what is in flight and the remaining steps, and stop]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:rollback:_aligntool_devices'
}

_aligntool_probe() {
    _arguments -s -S \
        '(--destructive)--destructive[Also write to the disk itself, which must be empty]' \
        '*--wipe=[With --destructive\: allow unrecognised data on this device to be lost]:DEVICE:_aligntool_devices' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--limit)--limit=[Time requests for at most this long]:SECONDS: ' \
        '(--most)--most=[Read and write at most this much; one round must fit \[default\: 1GiB\]]:SIZE: ' \
        '(--size)--size=[Size of the file in a folder \[default\: 512MiB\]]:SIZE: ' \
        '(--largest)--largest=[The largest unit to look for \[default\: 8MiB\]]:SIZE: ' \
        '(--sector-size)--sector-size=[The smallest request to time]:SIZE:(512 4096)' \
        '(--seed)--seed=[Seed for the random offsets and their order]:N: ' \
        '(--output -o)--output=[Save the result, for `audit --measured FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the result, for `audit --measured FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--verbose -v)--verbose[Show the penalty of every size]' \
        '(--verbose -v)-v[Show the penalty of every size]' \
        '(--json)--json[Print JSON; sizes are in bytes, times in µs]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:probe:_aligntool_devices'
}

_aligntool_tui() {
    _arguments -s -S \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:tui:_aligntool_devices'
}

_aligntool_schema() {
    _arguments -s -S \
        '(--color)--color=[When to colour the output]:auto|always|never:((audit\:"The report of an audit" bench\:"A result of aligntool bench" bench.alignment\:"A result of aligntool bench alignment" bench.compare\:"Compared results of aligntool bench" bench.list\:"The saved results of aligntool bench" bench.span\:"A result of aligntool bench span" ensure\:"Files of raid ensure" estimate.boot\:"The estimate of the storage'\''s part of a boot" events\:"One line of the events of a change" fleet\:"A report of many machines" fleet.since\:"What changed between two reports of many machines" plan\:"A plan" probe\:"The result of aligntool probe" raid-settings\:"The result of aligntool raid tune on a running array" raid-tune\:"The result of aligntool raid tune" raid.show\:"The arrays of a machine" recipes\:"Recipes" status\:"The state of a disk or an array" trace\:"The analysis of a log of commands"))' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:schema:((audit\:"The report of an audit" bench\:"A result of aligntool bench" bench.alignment\:"A result of aligntool bench alignment" bench.compare\:"Compared results of aligntool bench" bench.list\:"The saved results of aligntool bench" bench.span\:"A result of aligntool bench span" ensure\:"Files of raid ensure" estimate.boot\:"The estimate of the storage'\''s part of a boot" events\:"One line of the events of a change" fleet\:"A report of many machines" fleet.since\:"What changed between two reports of many machines" plan\:"A plan" probe\:"The result of aligntool probe" raid-settings\:"The result of aligntool raid tune on a running array" raid-tune\:"The result of aligntool raid tune" raid.show\:"The arrays of a machine" recipes\:"Recipes" status\:"The state of a disk or an array" trace\:"The analysis of a log of commands"))'
}

_aligntool_report() {
    _arguments -s -S \
        '(--output -o)--output=[Where to write the page; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Where to write the page; - is standard output]:FILE:_files' \
        '(--chart)--chart=[Select a single picture, for --svg and --png]:NAME: ' \
        '(--svg)--svg=[Write that picture as SVG]:FILE:_files' \
        '(--png)--png=[Write that picture as PNG; needs rsvg-convert]:FILE:_files' \
        '*--bench=[Add a result of `aligntool bench`; may be repeated]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--sysroot)--sysroot=[Use a captured machine\: a snapshot or its folder]:DIR:_files' \
        '(--wake)--wake[Also read disks that are asleep]' \
        '(--timeout)--timeout=[Skip a disk that does not respond for this long]:SECONDS: ' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '(--grain)--grain=[Boundary that partitions should start on \[default\: 1MiB\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:report:_aligntool_devices'
}

_aligntool_snapshot() {
    _arguments -s -S \
        '(--output -o)--output=[The file to write\: .tar.xz or .tar.gz; - is standard output]:FILE:_files' \
        '(--output -o)-o+[The file to write\: .tar.xz or .tar.gz; - is standard output]:FILE:_files' \
        '(--serials)--serials[Keep serial numbers, UUIDs and labels]' \
        '(--host)--host[Include the name of this machine in the manifest]' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:snapshot: '
}

_aligntool_fleet() {
    _arguments -s -S \
        '(--json)--json[Print JSON]' \
        '(--output -o)--output=[Also write the report as an HTML page; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Also write the report as an HTML page; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--since)--since=[Compare with older snapshots, or with a file of --json]:OLDER: ' \
        '(--fail-on)--fail-on=[Exit 1 at this severity or above]:error|warning|never:(error warning never)' \
        '(--timeout)--timeout=[Skip a disk that does not respond for this long]:SECONDS: ' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:fleet:_files'
}

_aligntool_demo() {
    _arguments -s -S \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:demo:_files'
}

_aligntool_plan_realign() {
    _arguments -s -S \
        '*--partition=[Move only these, such as 1,2 \[default\: all that are off the grid\]]:N[,N]:_aligntool_partitions' \
        '*-p+[Move only these, such as 1,2 \[default\: all that are off the grid\]]:N[,N]:_aligntool_partitions' \
        '(--grain)--grain=[Boundary on which partitions start \[default\: 1MiB if there is room\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--recipe)--recipe=[Use a recipe that comes with aligntool, or your own from a file\: FILE.toml]:NAME:((cloned-ssd\:"an old table that was cloned onto an SSD\: 1 MiB, or refused" gpt-34-40\:"a GPT whose first partition begins at sector 34 or 40\: old macOS, FreeBSD, storage boxes" large-unit-qlc\:"QLC SSDs with mapping units of 16 to 64 KiB that do not report them" sd-card\:"SD cards and eMMC\: every start on a multiple of 4 MiB, none before the first" sector-63\:"a disk partitioned by cylinders\: first partition at sector 63 (Windows XP and before, old Linux)"))' \
        '(--shrink)--shrink[Allow file systems to be shrunk with their own tools to make room]' \
        '(--used-only)--used-only[Copy only used blocks, even if something else on the disk may need the free ones]' \
        '(--journal)--journal=[Write the journal to this file on another disk, not to free space]:FILE:_files' \
        '*--overwrite-bytes=[Allow these bytes, which no partition has, to be overwritten]:FROM..TO: ' \
        '(--save)--save=[Copy what --overwrite-bytes names to this new file first]:FILE:_files' \
        '(--layers)--layers[Move nothing; re-encrypt each LUKS2 volume with sectors of the drive'\''s size]' \
        '(--output -o)--output=[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--rate)--rate=[Copy at most this much per second, such as 50MiB]:SIZE: ' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--json)--json[Print JSON]' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:realign:_aligntool_devices'
}

_aligntool_plan_layout() {
    _arguments -s -S \
        '*--part=[A partition, such as 512MiB\:esp; may be repeated. `rest\:linux` takes the remaining space]:SIZE\:ROLE[\:NAME]: ' \
        '(--table)--table=[gpt, or dos for an MBR \[default\: gpt\]]:gpt|dos:(gpt dos)' \
        '(--recipe)--recipe=[Use a recipe that comes with aligntool, or your own from a file\: FILE.toml]:NAME:((data-disk\:"a data disk\: one Linux partition over the whole disk" desktop-bios\:"a PC that boots by BIOS from a GPT\: BIOS boot partition for GRUB, root, swap" desktop-uefi\:"a PC that boots by UEFI\: EFI system partition, root, swap" sd-card\:"the SD card of a Raspberry Pi or similar board\: FAT for the firmware, Linux, both aligned to 4 MiB" server-nvme-raid\:"a member of a software RAID on NVMe\: EFI system partition, /boot member, data member, room for a smaller spare"))' \
        '(--grain)--grain=[Boundary on which partitions start \[default\: 1MiB\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--spare-end)--spare-end=[Free space to leave at the end]:SIZE: ' \
        '(--lba-size)--lba-size=[First format empty NVMe drives to logical blocks of this size, such as 4096]:SIZE: ' \
        '*--wipe=[Allow everything on this device to be lost; may be repeated]:DEVICE:_aligntool_devices' \
        '(--output -o)--output=[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--json)--json[Print JSON]' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:layout:_aligntool_devices'
}

_aligntool_plan_partition() {
    _arguments -s -S \
        '(--undo)--undo[Remove the partition table of a disk with one partition]' \
        '(--table)--table=[gpt, or dos for an MBR \[default\: gpt\]]:gpt|dos:(gpt dos)' \
        '(--grain)--grain=[Boundary on which partitions start \[default\: 1MiB\]]:SIZE:(1MiB 2MiB 4MiB)' \
        '(--shrink)--shrink[Allow the file system to be shrunk with its own tool to make room]' \
        '(--used-only)--used-only[Copy only used blocks, even if something else on the disk may need the free ones]' \
        '(--journal)--journal=[Write the journal to this file on another disk, not to free space]:FILE:_files' \
        '*--overwrite-bytes=[Allow these bytes, which no partition has, to be overwritten]:FROM..TO: ' \
        '(--save)--save=[Copy what --overwrite-bytes names to this new file first]:FILE:_files' \
        '(--key-file)--key-file=[Open a LUKS volume with this key to find the space in use; - asks for the key]:FILE:_files' \
        '(--output -o)--output=[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--json)--json[Print JSON]' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--page-size)--page-size=[NAND page or internal unit, such as 16KiB]:SIZE:(4KiB 8KiB 16KiB 32KiB 64KiB)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:partition:_aligntool_devices'
}

_aligntool_plan_convert() {
    _arguments -s -S \
        '(--sector-size)--sector-size=[Sector size of the new table\: 4096 or 512]:SIZE:(512 4096)' \
        '(--both)--both[Write tables for both sector sizes; for images that will be copied]' \
        '(--journal)--journal=[Write the journal to this file on another disk, not to free space]:FILE:_files' \
        '*--overwrite-bytes=[Allow these bytes, which no partition has, to be overwritten]:FROM..TO: ' \
        '(--save)--save=[Copy what --overwrite-bytes names to this new file first]:FILE:_files' \
        '(--output -o)--output=[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--no-lease)--no-lease[No other program has the image open, where that cannot be found out]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:convert:_aligntool_devices'
}

_aligntool_raid_plan() {
    _arguments -s -S \
        '(--level -l)--level=[RAID level]:0|1|10|5|6:(0 1 10 5 6)' \
        '(--level -l)-l+[RAID level]:0|1|10|5|6:(0 1 10 5 6)' \
        '(--recipe)--recipe=[Use a recipe that comes with aligntool, or your own from a file\: FILE.toml]:NAME:((nvme-raid0-scratch\:"a fast scratch disk of NVMe drives\: RAID0, chunk 256 KiB, XFS as in the article of 2015" partition-level\:"an array over one partition of each drive, next to the other partitions\: RAID1, XFS" raid1-data\:"data mirrored on two drives\: RAID1, XFS" raid1-system\:"a system that boots from either drive\: RAID1 with ext4, and an EFI system partition on each drive" raid10-database\:"a database with pages of 16 KiB\: RAID10 with near copies, XFS" raid5-archive\:"an archive that survives the failure of one drive\: RAID5, long writes, XFS" raid6-archive\:"an archive that survives the failure of two drives\: RAID6, long writes, XFS"))' \
        '(--chunk)--chunk=[Chunk size \[default\: as recommended\]]:SIZE:(16KiB 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB 4MiB)' \
        '(--workload)--workload=[general, boot, database, sequential, lsm, vm \[default\: general\]]:NAME:(general boot database sequential lsm vm)' \
        '(--fs)--fs=[File system\: xfs, ext4, btrfs, swap, none \[default\: xfs\]]:NAME:(xfs ext4 btrfs swap none)' \
        '(--layout)--layout=[Layout\: RAID10\: n2, f2, o2 ...; RAID5, RAID6\: left-symmetric ]:NAME:(n2 f2 o2 left-symmetric right-symmetric left-asymmetric right-asymmetric)' \
        '(--bitmap)--bitmap=[The write-intent bitmap]:internal|none:(internal none)' \
        '(--metadata)--metadata=[Metadata version\: 1.2, or 1.0 (at the end, RAID1 only) \[default\: 1.2\]]:1.2|1.0:(1.2 1.0)' \
        '(--name)--name=[The array'\''s name \[default\: data\]]:NAME: ' \
        '(--mount)--mount=[Mount point, or none \[default\: /srv/NAME\]]:DIR:_files -/' \
        '(--database-page)--database-page=[Page size for --workload database \[default\: 16KiB\]]:SIZE: ' \
        '(--spare-end)--spare-end=[Free space to leave at the end of each drive]:SIZE: ' \
        '(--lba-size)--lba-size=[First format empty NVMe drives to logical blocks of this size, such as 4096]:SIZE: ' \
        '(--zero-members)--zero-members[First zero empty NVMe drives, so that no resynchronisation is needed]' \
        '(--fast-sync)--fast-sync[Lift md'\''s limit for the first resynchronisation, wait for its end, and restore the limit]' \
        '(--whole-drives)--whole-drives[Use whole drives as members, without partition tables]' \
        '(--one-drive)--one-drive[Accept a single drive\: a RAID0 of one]' \
        '*--wipe=[Allow everything on this device to be lost; may be repeated]:DEVICE:_aligntool_devices' \
        '(--tuned)--tuned=[Use the result of `raid tune` on these drives]:FILE:_files' \
        '(--system)--system=[debian, debian-dracut, fedora, opensuse or arch \[default\: this system\]]:NAME:(debian debian-dracut fedora opensuse arch)' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--output -o)--output=[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--json)--json[Print JSON]' \
        '(--sysroot)--sysroot=[Use a captured machine\: a snapshot or its folder]:DIR:_files' \
        '(--sector-size)--sector-size=[Logical sector size, such as 4096]:SIZE:(512 4096)' \
        '(--physical-sector-size)--physical-sector-size=[Physical sector size; image files are assumed to have 4096]:SIZE:(512 4096)' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:plan:_aligntool_devices'
}

_aligntool_raid_show() {
    _arguments -s -S \
        '(--sysroot)--sysroot=[Use a captured machine\: a snapshot or its folder]:DIR:_files' \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:show:_aligntool_arrays'
}

_aligntool_raid_create() {
    _arguments -s -S \
        '(--level -l)--level=[RAID level]:0|1|10|5|6:(0 1 10 5 6)' \
        '(--level -l)-l+[RAID level]:0|1|10|5|6:(0 1 10 5 6)' \
        '(--recipe)--recipe=[Use a recipe that comes with aligntool, or your own from a file\: FILE.toml]:NAME:((nvme-raid0-scratch\:"a fast scratch disk of NVMe drives\: RAID0, chunk 256 KiB, XFS as in the article of 2015" partition-level\:"an array over one partition of each drive, next to the other partitions\: RAID1, XFS" raid1-data\:"data mirrored on two drives\: RAID1, XFS" raid1-system\:"a system that boots from either drive\: RAID1 with ext4, and an EFI system partition on each drive" raid10-database\:"a database with pages of 16 KiB\: RAID10 with near copies, XFS" raid5-archive\:"an archive that survives the failure of one drive\: RAID5, long writes, XFS" raid6-archive\:"an archive that survives the failure of two drives\: RAID6, long writes, XFS"))' \
        '(--chunk)--chunk=[Chunk size \[default\: as recommended\]]:SIZE:(16KiB 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB 4MiB)' \
        '(--workload)--workload=[general, boot, database, sequential, lsm, vm \[default\: general\]]:NAME:(general boot database sequential lsm vm)' \
        '(--fs)--fs=[File system\: xfs, ext4, btrfs, swap, none \[default\: xfs\]]:NAME:(xfs ext4 btrfs swap none)' \
        '(--layout)--layout=[Layout\: RAID10\: n2, f2, o2 ...; RAID5, RAID6\: left-symmetric ]:NAME:(n2 f2 o2 left-symmetric right-symmetric left-asymmetric right-asymmetric)' \
        '(--bitmap)--bitmap=[The write-intent bitmap]:internal|none:(internal none)' \
        '(--metadata)--metadata=[Metadata version\: 1.2, or 1.0 (at the end, RAID1 only) \[default\: 1.2\]]:1.2|1.0:(1.2 1.0)' \
        '(--name)--name=[The array'\''s name \[default\: data\]]:NAME: ' \
        '(--mount)--mount=[Mount point, or none \[default\: /srv/NAME\]]:DIR:_files -/' \
        '(--database-page)--database-page=[Page size for --workload database \[default\: 16KiB\]]:SIZE: ' \
        '(--spare-end)--spare-end=[Free space to leave at the end of each drive]:SIZE: ' \
        '(--lba-size)--lba-size=[First format empty NVMe drives to logical blocks of this size, such as 4096]:SIZE: ' \
        '(--zero-members)--zero-members[First zero empty NVMe drives, so that no resynchronisation is needed]' \
        '(--fast-sync)--fast-sync[Lift md'\''s limit for the first resynchronisation, wait for its end, and restore the limit]' \
        '(--whole-drives)--whole-drives[Use whole drives as members, without partition tables]' \
        '(--one-drive)--one-drive[Accept a single drive\: a RAID0 of one]' \
        '*--wipe=[Allow everything on this device to be lost; may be repeated]:DEVICE:_aligntool_devices' \
        '(--tuned)--tuned=[Use the result of `raid tune` on these drives]:FILE:_files' \
        '(--system)--system=[debian, debian-dracut, fedora, opensuse or arch \[default\: this system\]]:NAME:(debian debian-dracut fedora opensuse arch)' \
        '(--root)--root=[Configure the system installed below DIR, not this one]:DIR:_files -/' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--wait)--wait[Wait until the first resynchronisation is finished]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:create:_aligntool_devices'
}

_aligntool_raid_ensure() {
    _arguments -s -S \
        '*--set=[A key of such a file, which is not read then\: level=raid0, drives.select=all-unused]:KEY=VALUE: ' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--wait)--wait[Wait until the first resynchronisation is finished]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:ensure: '
}

_aligntool_raid_persist() {
    _arguments -s -S \
        '(--system)--system=[debian, debian-dracut, fedora, opensuse or arch \[default\: this system\]]:NAME:(debian debian-dracut fedora opensuse arch)' \
        '(--mount)--mount=[Mount point, now and at every boot]:DIR:_files -/' \
        '(--tuned)--tuned=[Keep the settings that were faster in this result of `raid tune ARRAY`]:FILE:_files' \
        '(--root)--root=[Configure the system installed below DIR, not this one]:DIR:_files -/' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--output -o)--output=[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--sysroot)--sysroot=[Use a captured machine\: a snapshot or its folder]:DIR:_files' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:persist:_aligntool_arrays'
}

_aligntool_raid_reformat() {
    _arguments -s -S \
        '(--lba-size)--lba-size=[Logical block size in bytes, such as 4096]:SIZE: ' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--verbose -v)--verbose[Show every byte range, command and reason of the plan]' \
        '(--verbose -v)-v[Show every byte range, command and reason of the plan]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--output -o)--output=[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the plan, for `aligntool apply FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--json)--json[Report events as JSON lines]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:reformat:_aligntool_arrays'
}

_aligntool_raid_tune() {
    _arguments -s -S \
        '(--level -l)--level=[RAID level]:0|10|5|6:(0 10 5 6)' \
        '(--level -l)-l+[RAID level]:0|10|5|6:(0 10 5 6)' \
        '(--workload)--workload=[As for `raid plan`]:NAME:(general boot database sequential lsm vm)' \
        '(--chunks)--chunks=[Chunk sizes to try, such as 64KiB,128KiB]:SIZE,...:(16KiB 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB 4MiB)' \
        '(--layout)--layout=[As for `raid plan`]:NAME:(n2 f2 o2 left-symmetric right-symmetric left-asymmetric right-asymmetric)' \
        '(--bitmap)--bitmap=[The write-intent bitmap]:internal|none:(internal none)' \
        '(--database-page)--database-page=[Page size of the database \[default\: 16KiB\]]:SIZE: ' \
        '(--span)--span=[How much of each array to use]:SIZE: ' \
        '(--runtime)--runtime=[Duration of each load]:SECONDS: ' \
        '(--repeats)--repeats=[Rounds over all chunk sizes]:N: ' \
        '(--settings)--settings=[Settings of an array to try, such as read_ahead_kb,stripe_cache_size \[default\: all\]]:NAME,...: ' \
        '(--write-in)--write-in=[Also measure writes to an array, in a temporary file in this folder on it; needed for group_thread_cnt and stripe_cache_size]:DIR:_files -/' \
        '(--output -o)--output=[Save the result, for `raid plan` or `raid persist --tuned FILE`; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the result, for `raid plan` or `raid persist --tuned FILE`; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--clear)--clear[Only remove test arrays of an earlier sweep from these members]' \
        '(--dry-run)--dry-run[Show the plan and stop]' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:tune:(DEVICE... ARRAY)'
}

_aligntool_bench_run() {
    _arguments -s -S \
        '(--profile)--profile=[A name from `recipes list`, or a file]:NAME:((amorphousdiskmark\:"AmorphousDiskMark'\''s tests\: 128 KiB and 4 KiB at depth 32, 1 MiB and 4 KiB at depth 1" as-ssd\:"AS SSD'\''s tests, with its score; its access time is the median latency of RND4K Q1T1" atto\:"ATTO'\''s sweep\: sequential requests from 512 bytes to 64 MiB at depth 4" boot\:"boot\: one random 4 KiB request at a time, and the time that a boot takes at that rate" crystaldiskmark-nvme\:"CrystalDiskMark'\''s tests for NVMe drives\: deeper queues and sixteen threads" crystaldiskmark\:"CrystalDiskMark'\''s default tests\: for any drive, and comparable with most reviews" iometer\:"IOMeter evaluation\: 128 KiB sequential, 4 KiB random at 1, 2 and 4 workers, after preconditioning" peak\:"peak\: deep queues only, the figures on the box" real-world\:"real world\: one request at a time, large and small" steady\:"steady state\: 4 KiB random writes and reads in rounds until they are steady, after overwriting all twice" threads\:"IOPS by number of threads\: 4 KiB random reads, 1 to 32 threads of depth 32"))' \
        '(--span)--span=[Range of the requests; in a folder, the size of the file]:SIZE: ' \
        '(--runtime)--runtime=[Duration of each run]:SECONDS: ' \
        '(--repeats)--repeats=[Runs of each test]:N: ' \
        '(--passes)--passes=[Numbers of passes over the same data, such as 1,5, to reveal a cache]:N,N: ' \
        '(--destructive)--destructive[Write to the device itself, which must be empty]' \
        '*--wipe=[With --destructive\: allow unrecognised data on this device to be lost]:DEVICE:_aligntool_devices' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--dry-run)--dry-run[Show the fio command lines, and stop]' \
        '(--output -o)--output=[Save the result as JSON; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the result as JSON; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--fio-output)--fio-output=[Save fio'\''s JSON output of every run in this folder]:DIR:_files -/' \
        '(--json)--json[Print JSON]' \
        '(--mix)--mix=[Also run each test mixed, with this percentage of reads]:PERCENT: ' \
        '(--data)--data=[The data to write and read back]:random|zero:(random zero)' \
        '(--pause)--pause=[Pause before each run]:SECONDS: ' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:run:_aligntool_devices'
}

_aligntool_bench_list() {
    _arguments -s -S \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:list: '
}

_aligntool_bench_show() {
    _arguments -s -S \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:show:_files'
}

_aligntool_bench_compare() {
    _arguments -s -S \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:compare:_files'
}

_aligntool_bench_alignment() {
    _arguments -s -S \
        '(--unit)--unit=[The drive'\''s unit \[default\: from the audit\]]:SIZE: ' \
        '(--start)--start=[Test only this start; sector 63 is 32256]:SIZE: ' \
        '(--every)--every[Test every sector of the unit, not every eighth of it; takes a long time]' \
        '(--depth)--depth=[Requests in flight]:N: ' \
        '(--runtime)--runtime=[Duration of each run]:SECONDS: ' \
        '(--output -o)--output=[Save the result as JSON; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the result as JSON; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--size)--size=[Size of the file in a folder]:SIZE: ' \
        '(--repeats)--repeats=[Number of runs]:N: ' \
        '(--destructive)--destructive[Write to the device itself, which must be empty]' \
        '*--wipe=[With --destructive\: allow unrecognised data on this device to be lost]:DEVICE:_aligntool_devices' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--fio-output)--fio-output=[Save fio'\''s JSON output of every run in this folder]:DIR:_files -/' \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:alignment:_aligntool_devices'
}

_aligntool_bench_span() {
    _arguments -s -S \
        '(--from)--from=[The smallest span \[default\: 64MiB\]]:SIZE: ' \
        '(--to)--to=[The largest span \[default\: the whole target\]]:SIZE: ' \
        '(--write)--write[Write instead of reading\: to a file, or to an empty device]' \
        '(--runtime)--runtime=[Duration of each run]:SECONDS: ' \
        '(--output -o)--output=[Save the result as JSON; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the result as JSON; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--size)--size=[Size of the file in a folder]:SIZE: ' \
        '(--repeats)--repeats=[Number of runs]:N: ' \
        '(--destructive)--destructive[Write to the device itself, which must be empty]' \
        '*--wipe=[With --destructive\: allow unrecognised data on this device to be lost]:DEVICE:_aligntool_devices' \
        '(--yes)--yes[Do not ask for confirmation; refusals still apply]' \
        '(--fio-output)--fio-output=[Save fio'\''s JSON output of every run in this folder]:DIR:_files -/' \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:span:_aligntool_devices'
}

_aligntool_trace_read() {
    _arguments -s -S \
        '(--log-format)--log-format=[Format of the log]:auto|blkparse|iolog|csv:(auto blkparse iolog csv)' \
        '(--grid)--grid=[Compare the requests with boundaries of this size, such as 4KiB]:SIZE: ' \
        '(--phase)--phase=[Offset of the first boundary of --grid]:N: ' \
        '(--disk)--disk=[Compare the requests with the boundaries from the audit]:DISK:_aligntool_devices' \
        '(--partition -p)--partition=[Offsets in the log are relative to this partition]:N: ' \
        '(--partition -p)-p+[Offsets in the log are relative to this partition]:N: ' \
        '(--json)--json[Print JSON; sizes are in bytes]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:read:_files'
}

_aligntool_trace_record() {
    _arguments -s -S \
        '(--output -o)--output=[Save the log, as text of blkparse; - is standard output]:FILE:_files' \
        '(--output -o)-o+[Save the log, as text of blkparse; - is standard output]:FILE:_files' \
        '(--overwrite)--overwrite[Replace existing files]' \
        '(--grid)--grid=[Compare the requests with boundaries of this size \[default\: from the audit\]]:SIZE: ' \
        '(--phase)--phase=[Offset of the first boundary of --grid]:N: ' \
        '(--json)--json[Print JSON; CMD'\''s standard output goes to standard error]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:record:_aligntool_devices'
}

_aligntool_estimate_boot() {
    _arguments -s -S \
        '(--rate-a)--rate-a=[Random 4 KiB rate at depth 1\: reads, writes]:MB/s[,MB/s]: ' \
        '(--rate-b)--rate-b=[The same for another drive, to compare]:MB/s[,MB/s]: ' \
        '(--trace)--trace=[Use the commands of this log instead of the built-in boot]:LOG:_files' \
        '(--reads)--reads=[Number of reads]:N: ' \
        '(--writes)--writes=[Number of writes]:N: ' \
        '(--json)--json[Print JSON; times are in seconds]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:boot:_files'
}

_aligntool_recipes_list() {
    _arguments -s -S \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:list: '
}

_aligntool_recipes_show() {
    _arguments -s -S \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:show:((cloned-ssd\:"an old table that was cloned onto an SSD\: 1 MiB, or refused" gpt-34-40\:"a GPT whose first partition begins at sector 34 or 40\: old macOS, FreeBSD, storage boxes" large-unit-qlc\:"QLC SSDs with mapping units of 16 to 64 KiB that do not report them" sd-card\:"SD cards and eMMC\: every start on a multiple of 4 MiB, none before the first" sector-63\:"a disk partitioned by cylinders\: first partition at sector 63 (Windows XP and before, old Linux)" data-disk\:"a data disk\: one Linux partition over the whole disk" desktop-bios\:"a PC that boots by BIOS from a GPT\: BIOS boot partition for GRUB, root, swap" desktop-uefi\:"a PC that boots by UEFI\: EFI system partition, root, swap" sd-card\:"the SD card of a Raspberry Pi or similar board\: FAT for the firmware, Linux, both aligned to 4 MiB" server-nvme-raid\:"a member of a software RAID on NVMe\: EFI system partition, /boot member, data member, room for a smaller spare" nvme-raid0-scratch\:"a fast scratch disk of NVMe drives\: RAID0, chunk 256 KiB, XFS as in the article of 2015" partition-level\:"an array over one partition of each drive, next to the other partitions\: RAID1, XFS" raid1-data\:"data mirrored on two drives\: RAID1, XFS" raid1-system\:"a system that boots from either drive\: RAID1 with ext4, and an EFI system partition on each drive" raid10-database\:"a database with pages of 16 KiB\: RAID10 with near copies, XFS" raid5-archive\:"an archive that survives the failure of one drive\: RAID5, long writes, XFS" raid6-archive\:"an archive that survives the failure of two drives\: RAID6, long writes, XFS" amorphousdiskmark\:"AmorphousDiskMark'\''s tests\: 128 KiB and 4 KiB at depth 32, 1 MiB and 4 KiB at depth 1" as-ssd\:"AS SSD'\''s tests, with its score; its access time is the median latency of RND4K Q1T1" atto\:"ATTO'\''s sweep\: sequential requests from 512 bytes to 64 MiB at depth 4" boot\:"boot\: one random 4 KiB request at a time, and the time that a boot takes at that rate" crystaldiskmark-nvme\:"CrystalDiskMark'\''s tests for NVMe drives\: deeper queues and sixteen threads" crystaldiskmark\:"CrystalDiskMark'\''s default tests\: for any drive, and comparable with most reviews" iometer\:"IOMeter evaluation\: 128 KiB sequential, 4 KiB random at 1, 2 and 4 workers, after preconditioning" peak\:"peak\: deep queues only, the figures on the box" real-world\:"real world\: one request at a time, large and small" steady\:"steady state\: 4 KiB random writes and reads in rounds until they are steady, after overwriting all twice" threads\:"IOPS by number of threads\: 4 KiB random reads, 1 to 32 threads of depth 32"))'
}

_aligntool_recipes_check() {
    _arguments -s -S \
        '(--json)--json[Print JSON]' \
        '(--color)--color=[When to colour the output]:auto|always|never:(auto always never)' \
        '(--no-pager)--no-pager[Do not show long text in a pager]' \
        '(--unconfined)--unconfined[Do not confine the programs that parse a disk or image]' \
        '(--help -h)--help[Show the options and an example]' \
        '(--help -h)-h[Show the options and an example]' \
        '*:check:_files'
}

_aligntool_plan() {
    local -a found=(
        'realign:Plan the moves to aligned starts, and show every step'
        'layout:Plan a new partition table for an empty disk, and show it'
        'partition:Plan a partition for the content of a whole disk'
        'convert:Plan a partition table for another sector size'
        'raid:Plan an array, and show how it would be created'
    )
    if ((CURRENT > 2)) && [[ $words[2] == (realign|layout|partition|convert|raid) ]]; then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_plan_$word
    else
        ((CURRENT > 2)) || _describe command found
        :
    fi
}

_aligntool_raid() {
    local -a found=(
        'plan:Plan an array, and show how it would be created'
        'show:Show arrays\: members, links, state and data offset'
        'create:Create an array, and configure the system to start it at every boot'
        'ensure:Let the array of a file exist\: leave it as it is, or make it of blank drives'
        'persist:Configure the system to start an existing array at every boot'
        'reformat:Change the LBA format of the NVMe members of an array, one at a time'
        'tune:Measure which chunk size or settings are fastest'
    )
    if ((CURRENT > 2)) && [[ $words[2] == (plan|show|create|ensure|persist|reformat|tune) ]]; then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_raid_$word
    else
        ((CURRENT > 2)) || _describe command found
        :
    fi
}

_aligntool_bench() {
    local -a found=(
        'run:Measure a drive with fio, and show medians with their range'
        'list:List saved results, oldest first'
        'show:Show a saved result'
        'compare:Compare results as a chart of log10 ratios'
        'alignment:Measure whether the start of a partition matters on this drive'
        'span:Measure how much of a drive its cached mapping table covers'
    )
    if ((CURRENT > 2)) && [[ $words[2] == (run|list|show|compare|alignment|span) ]]; then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_bench_$word
    else
        ((CURRENT > 2)) || _describe command found
        _aligntool_bench_run
    fi
}

_aligntool_trace() {
    local -a found=(
        'read:Analyse a log of commands to a drive'
        'record:Analyse the requests to a disk while a command runs'
    )
    if ((CURRENT > 2)) && [[ $words[2] == (read|record) ]]; then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_trace_$word
    else
        ((CURRENT > 2)) || _describe command found
        _aligntool_trace_read
    fi
}

_aligntool_estimate() {
    local -a found=(
        'boot:Estimate how long a drive needs for the commands of a boot'
    )
    if ((CURRENT > 2)) && [[ $words[2] == (boot) ]]; then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_estimate_$word
    else
        ((CURRENT > 2)) || _describe command found
        :
    fi
}

_aligntool_recipes() {
    local -a found=(
        'list:List the recipes, and the command for each'
        'show:Show the goal of a recipe, and the sources of its numbers'
        'check:Check a recipe of your own, and show it'
    )
    if ((CURRENT > 2)) && [[ $words[2] == (list|show|check) ]]; then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_recipes_$word
    else
        ((CURRENT > 2)) || _describe command found
        :
    fi
}

_aligntool_plan_raid() { _aligntool_raid_plan; }

_aligntool() {
    local -a found=(
        'audit:Check the alignment of every partition\: on the grid, off the grid, or unknown'
        'explain:Explain a finding\: what it means, what it costs, and what to do'
        'drives:Show what is known about a drive, with the source of every fact'
        'realign:Move misaligned partitions to aligned starts'
        'layout:Write a new partition table to an empty disk, with every partition aligned'
        'partition:Put a whole-disk file system or LVM volume into a partition'
        'convert:Convert the partition table of a disk or image to another sector size'
        'apply:Apply a plan that was saved in a file'
        'status:Show the progress of an interrupted move or array, and the next command'
        'resume:Finish an interrupted move or array'
        'rollback:Undo an interrupted move or array'
        'probe:Find the internal unit of a drive by timing requests'
        'tui:Browse disks, verdicts, plans and moves in a full-screen interface'
        'schema:Print the JSON Schema of a document that aligntool writes'
        'report:Write one HTML page of disks, findings, arrays and benchmarks'
        'snapshot:Capture what an audit reads from this machine'
        'fleet:Audit many captured machines in one report'
        'demo:Create a misaligned disk image, audit it, realign it, and audit it again'
        'plan:Show every change to a disk, to the byte, without writing anything'
        'raid:Plan, make and show arrays aligned to the boundaries of their drives'
        'bench:Measure drives with fio; `bench TARGET` is `bench run TARGET`'
        'trace:Analyse commands to a drive; `trace LOG` is `trace read LOG`'
        'estimate:Estimate times from measured rates'
        'recipes:List, show and check recipes for common cases'
    )
    if ((CURRENT == 2)); then
        _describe command found
        _arguments '(-h --help)'{-h,--help}'[List the options]' \
            '(-V --version)'{-V,--version}'[Print the version]' \
            '--show-completion=[Print the completion file]:SHELL:(bash zsh fish)'
    elif (($+functions[_aligntool_$words[2]])); then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_$word
    else
        _default
    fi
}

_aligntool_devices() {
    local -a found=(${(f)"$(aligntool_disks 2>/dev/null)"})
    local -a choices=("disks:disk:compadd -a found")
    [[ $PREFIX == /dev/* && $PREFIX != /dev/*/* ]] || choices+=("files:file:_files")
    _alternative $choices
}

_aligntool_arrays() {
    local -a found=(${(f)"$(aligntool_arrays 2>/dev/null)"})
    _wanted arrays expl array compadd -a found
}

_aligntool_partitions() {
    local -a found=(${(f)"$(aligntool_partitions $words 2>/dev/null)"})
    compset -P "*,"
    _wanted partitions expl partition compadd -S "" -a found
}

if [[ $funcstack[1] == _aligntool ]]; then
    _aligntool "$@"
else
    compdef _aligntool aligntool
fi
