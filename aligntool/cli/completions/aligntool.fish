# fish completion of aligntool
# Written by .ci/completion.py; do not edit.

set -g __aligntool_look '
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
        esac | tr -d \' \' | sort -n
        return
    done
}
'

function __aligntool_is
    set -l words (commandline -opc)
    set -l command "$words[2]"
    switch "$command"
        case plan
            contains -- "$words[3]" realign layout partition convert raid; and set command "$words[2] $words[3]"; or set command "plan "
        case raid
            contains -- "$words[3]" plan show create ensure persist reformat tune; and set command "$words[2] $words[3]"; or set command "raid "
        case bench
            contains -- "$words[3]" run list show compare alignment span; and set command "$words[2] $words[3]"; or set command "bench run"
        case trace
            contains -- "$words[3]" read record; and set command "$words[2] $words[3]"; or set command "trace read"
        case estimate
            contains -- "$words[3]" boot; and set command "$words[2] $words[3]"; or set command "estimate "
        case recipes
            contains -- "$words[3]" list show check; and set command "$words[2] $words[3]"; or set command "recipes "
    end
    test "$command" = "plan raid"; and set command "raid plan"
    test "$command" = "$argv"
end

function __aligntool_words
    test (count (commandline -opc)) -eq $argv[1]; or return
    test $argv[1] -eq 1; or test (commandline -opc)[2] = $argv[2]
end

function __aligntool_look
    sh -c "$__aligntool_look"'"$@"' sh $argv 2>/dev/null
end

function __aligntool_disks
    __aligntool_look aligntool_disks
    string match -qr '^/dev/[^/]*$' -- (commandline -ct); or __fish_complete_path (commandline -ct)
end

function __aligntool_partitions
    set -l before (commandline -ct | string replace -r '^--[^=]*=' '' | string replace -r '[^,]*$' '')
    for number in (__aligntool_look aligntool_partitions (commandline -op))
        echo $before$number
    end
end

complete -c aligntool -f
complete -c aligntool -n '__aligntool_words 1' -l version -s V -d 'Print the version and exit'
complete -c aligntool -n '__aligntool_words 1' -l help -s h -d 'List the options'
complete -c aligntool -n '__aligntool_words 1' -l show-completion -x -a 'bash zsh fish' -d 'Print the completion file'
complete -c aligntool -n '__aligntool_words 1' -a audit -d 'Check the alignment of every partition: on the grid, off the grid, or unknown'
complete -c aligntool -n '__aligntool_words 1' -a explain -d 'Explain a finding: what it means, what it costs, and what to do'
complete -c aligntool -n '__aligntool_words 1' -a drives -d 'Show what is known about a drive, with the source of every fact'
complete -c aligntool -n '__aligntool_words 1' -a realign -d 'Move misaligned partitions to aligned starts'
complete -c aligntool -n '__aligntool_words 1' -a layout -d 'Write a new partition table to an empty disk, with every partition aligned'
complete -c aligntool -n '__aligntool_words 1' -a partition -d 'Put a whole-disk file system or LVM volume into a partition'
complete -c aligntool -n '__aligntool_words 1' -a convert -d 'Convert the partition table of a disk or image to another sector size'
complete -c aligntool -n '__aligntool_words 1' -a apply -d 'Apply a plan that was saved in a file'
complete -c aligntool -n '__aligntool_words 1' -a status -d 'Show the progress of an interrupted move or array, and the next command'
complete -c aligntool -n '__aligntool_words 1' -a resume -d 'Finish an interrupted move or array'
complete -c aligntool -n '__aligntool_words 1' -a rollback -d 'Undo an interrupted move or array'
complete -c aligntool -n '__aligntool_words 1' -a probe -d 'Find the internal unit of a drive by timing requests'
complete -c aligntool -n '__aligntool_words 1' -a tui -d 'Browse disks, verdicts, plans and moves in a full-screen interface'
complete -c aligntool -n '__aligntool_words 1' -a schema -d 'Print the JSON Schema of a document that aligntool writes'
complete -c aligntool -n '__aligntool_words 1' -a report -d 'Write one HTML page of disks, findings, arrays and benchmarks'
complete -c aligntool -n '__aligntool_words 1' -a snapshot -d 'Capture what an audit reads from this machine'
complete -c aligntool -n '__aligntool_words 1' -a fleet -d 'Audit many captured machines in one report'
complete -c aligntool -n '__aligntool_words 1' -a demo -d 'Create a misaligned disk image, audit it, realign it, and audit it again'
complete -c aligntool -n '__aligntool_words 1' -a plan -d 'Show every change to a disk, to the byte, without writing anything'
complete -c aligntool -n '__aligntool_words 1' -a raid -d 'Plan, make and show arrays aligned to the boundaries of their drives'
complete -c aligntool -n '__aligntool_words 1' -a bench -d 'Measure drives with fio; `bench TARGET` is `bench run TARGET`'
complete -c aligntool -n '__aligntool_words 1' -a trace -d 'Analyse commands to a drive; `trace LOG` is `trace read LOG`'
complete -c aligntool -n '__aligntool_words 1' -a estimate -d 'Estimate times from measured rates'
complete -c aligntool -n '__aligntool_words 1' -a recipes -d 'List, show and check recipes for common cases'
complete -c aligntool -n '__aligntool_words 2 plan' -a realign -d 'Plan the moves to aligned starts, and show every step'
complete -c aligntool -n '__aligntool_words 2 plan' -a layout -d 'Plan a new partition table for an empty disk, and show it'
complete -c aligntool -n '__aligntool_words 2 plan' -a partition -d 'Plan a partition for the content of a whole disk'
complete -c aligntool -n '__aligntool_words 2 plan' -a convert -d 'Plan a partition table for another sector size'
complete -c aligntool -n '__aligntool_words 2 plan' -a raid -d 'Plan an array, and show how it would be created'
complete -c aligntool -n '__aligntool_words 2 raid' -a plan -d 'Plan an array, and show how it would be created'
complete -c aligntool -n '__aligntool_words 2 raid' -a show -d 'Show arrays: members, links, state and data offset'
complete -c aligntool -n '__aligntool_words 2 raid' -a create -d 'Create an array, and configure the system to start it at every boot'
complete -c aligntool -n '__aligntool_words 2 raid' -a ensure -d 'Let the array of a file exist: leave it as it is, or make it of blank drives'
complete -c aligntool -n '__aligntool_words 2 raid' -a persist -d 'Configure the system to start an existing array at every boot'
complete -c aligntool -n '__aligntool_words 2 raid' -a reformat -d 'Change the LBA format of the NVMe members of an array, one at a time'
complete -c aligntool -n '__aligntool_words 2 raid' -a tune -d 'Measure which chunk size or settings are fastest'
complete -c aligntool -n '__aligntool_words 2 bench' -a run -d 'Measure a drive with fio, and show medians with their range'
complete -c aligntool -n '__aligntool_words 2 bench' -a list -d 'List saved results, oldest first'
complete -c aligntool -n '__aligntool_words 2 bench' -a show -d 'Show a saved result'
complete -c aligntool -n '__aligntool_words 2 bench' -a compare -d 'Compare results as a chart of log10 ratios'
complete -c aligntool -n '__aligntool_words 2 bench' -a alignment -d 'Measure whether the start of a partition matters on this drive'
complete -c aligntool -n '__aligntool_words 2 bench' -a span -d 'Measure how much of a drive its cached mapping table covers'
complete -c aligntool -n '__aligntool_words 2 trace' -a read -d 'Analyse a log of commands to a drive'
complete -c aligntool -n '__aligntool_words 2 trace' -a record -d 'Analyse the requests to a disk while a command runs'
complete -c aligntool -n '__aligntool_words 2 estimate' -a boot -d 'Estimate how long a drive needs for the commands of a boot'
complete -c aligntool -n '__aligntool_words 2 recipes' -a list -d 'List the recipes, and the command for each'
complete -c aligntool -n '__aligntool_words 2 recipes' -a show -d 'Show the goal of a recipe, and the sources of its numbers'
complete -c aligntool -n '__aligntool_words 2 recipes' -a check -d 'Check a recipe of your own, and show it'
complete -c aligntool -n '__aligntool_is audit' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is audit' -l map -d 'Draw each disk, and the blocks of each partition over sectors'
complete -c aligntool -n '__aligntool_is audit' -l json -d 'The same as --format json'
complete -c aligntool -n '__aligntool_is audit' -l host -d 'Include the name of this machine in the JSON'
complete -c aligntool -n '__aligntool_is audit' -l format -d 'Format of the report [default: text]' -r -f -a 'text json prometheus'
complete -c aligntool -n '__aligntool_is audit' -l fail-on -d 'Exit 1 at this severity or above; error and warning: also 3 if any disk was not judged [default: 1 at an error, 3 only as stated above]' -r -f -a 'error warning never'
complete -c aligntool -n '__aligntool_is audit' -l quiet -s q -d 'Show only errors and warnings, one line each'
complete -c aligntool -n '__aligntool_is audit' -l verbose -s v -d 'Show every disk and every note in full'
complete -c aligntool -n '__aligntool_is audit' -l wake -d 'Also read disks that are asleep'
complete -c aligntool -n '__aligntool_is audit' -l timeout -d 'Skip a disk that does not respond for this long' -x
complete -c aligntool -n '__aligntool_is audit' -l sysroot -d 'Use a captured machine: a snapshot or its folder; may be repeated' -r -F
complete -c aligntool -n '__aligntool_is audit' -l root -d 'Judge arrays by the files of the system installed below DIR' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is audit' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is audit' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is audit' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is audit' -l measured -d 'Compare with the result of `aligntool probe -o FILE`' -r -F
complete -c aligntool -n '__aligntool_is audit' -l grain -d 'Boundary that partitions should start on [default: 1MiB]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is audit' -l serials -d 'Add serial numbers to the metrics of --format prometheus'
complete -c aligntool -n '__aligntool_is audit' -l output -s o -d 'Write the report to this file atomically; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is audit' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is audit' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is audit' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is audit' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is audit' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is explain' -f -a 'AT101\\t\'Partition starts off the physical sectors\' AT102\\t\'Partition starts off the NAND page or the drive\\\'s internal unit\' AT103\\t\'Partition starts off the card\\\'s allocation unit\' AT104\\t\'Partition starts off the RAID chunk\' AT105\\t\'Partition starts off the optimal I/O size\' AT106\\t\'Partition does not start on a multiple of 1 MiB or of the given grain\' AT107\\t\'Partition or disk does not end on a physical sector\' AT108\\t\'Partition starts off the erase block\' AT109\\t\'Alignment cannot be judged\' AT110\\t\'Alignment does not matter here\' AT201\\t\'The members of a stacked device contradict each other\' AT202\\t\'The optimal I/O size is not plausible\' AT203\\t\'The drive hides its physical sector size\' AT204\\t\'The physical sector size is assumed\' AT205\\t\'The minimum I/O size is not plausible\' AT206\\t\'The drive offers a faster sector format\' AT207\\t\'The drive works in units larger than 4 KiB\' AT208\\t\'The physical sectors do not start at byte 0\' AT209\\t\'The drive and its adapter disagree on the physical sector\' AT210\\t\'The sector size comes from the partition table\' AT301\\t\'The primary GPT is damaged\' AT302\\t\'The backup GPT is damaged or missing\' AT303\\t\'The table was written for another sector size\' AT304\\t\'Partitions overlap\' AT305\\t\'A partition ends beyond the disk\' AT306\\t\'The chain of logical partitions is broken\' AT307\\t\'Hybrid MBR\' AT308\\t\'The kernel\\\'s partitions differ from the table\' AT309\\t\'A table entry is invalid\' AT310\\t\'The protective MBR is wrong\' AT311\\t\'A partition lies outside the usable area\' AT312\\t\'The backup GPT is not at the end of the disk\' AT313\\t\'The two copies of the GPT differ\' AT314\\t\'Windows dynamic disk\' AT315\\t\'Member of a firmware or whole-disk RAID\' AT316\\t\'The partition table cannot be read\' AT317\\t\'A move of partitions is in flight\' AT318\\t\'A partition covers the partition table\' AT319\\t\'Both copies of the GPT are damaged\' AT401\\t\'Data inside the partition start off the physical sectors\' AT402\\t\'Data inside the partition start off the page, unit or allocation unit\' AT403\\t\'The clusters of a FAT or exFAT file system are off the grid\' AT404\\t\'Data inside start off the array\\\'s chunk or stripe\' AT405\\t\'The file system\\\'s stripe settings do not fit the array\' AT406\\t\'Blocks are smaller than the physical sector\' AT407\\t\'The file system is larger than its partition\' AT408\\t\'More than one format is recognised\' AT409\\t\'A superblock is inconsistent\' AT501\\t\'A PCIe link runs slower than both its ends support\' AT502\\t\'Drives share an uplink that is slower than their links combined\' AT503\\t\'The drive is attached to the chipset\' AT504\\t\'Firmware RAID mode hides NVMe drives\' AT505\\t\'The drive is behind Intel VMD\' AT506\\t\'The host memory buffer is smaller than the drive requested\' AT507\\t\'How much of a DRAM-less drive its buffer can map\' AT508\\t\'The drive takes one command at a time\' AT509\\t\'The drive is faster than its slot\' AT510\\t\'The drive database has a note on this model\' AT511\\t\'The firmware of a drive has a known defect\' AT601\\t\'An array runs with members missing\' AT602\\t\'An array is being resynchronised, rebuilt or checked\' AT603\\t\'The array\\\'s chunk cuts the pages or units of its members\' AT604\\t\'A full stripe of RAID5 or RAID6 is longer than one request\' AT605\\t\'A redundant array has no write-intent bitmap\' AT606\\t\'The bitmap of RAID5 or RAID6 on flash is too fine\' AT607\\t\'RAID5 or RAID6 on flash does not pass on discards\' AT608\\t\'A whole-drive array member still has a GPT header\' AT609\\t\'A member is a drive without a partition table\' AT610\\t\'The members have logical sectors of different sizes\' AT611\\t\'No ARRAY line in mdadm.conf names the array\' AT612\\t\'The array\\\'s line in mdadm.conf does not name it by its UUID\' AT613\\t\'An initramfs does not know the array\' AT614\\t\'The array belongs to another host\' AT615\\t\'An array is referenced by its number\' AT616\\t\'A data array is mounted without nofail\' AT617\\t\'The creation of an array was interrupted\' AT618\\t\'A data array is not started when a drive is missing\' AT619\\t\'An array contains failed members\' AT620\\t\'The DEVICE line of mdadm.conf does not permit the members of an array\' AT621\\t\'An array that the system expects has no member\' AT622\\t\'An array is not started, because members are missing\' AT901\\t\'Something could not be read\' AT902\\t\'A disk or target could not be judged\' AT903\\t\'A disk did not answer in time\' queue-depth'
complete -c aligntool -n '__aligntool_is explain' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is explain' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is explain' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is explain' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is drives' -l firmware -d 'Show only rows that match this firmware revision' -x
complete -c aligntool -n '__aligntool_is drives' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is drives' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is drives' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is drives' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is realign' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is realign' -l partition -s p -d 'Move only these, such as 1,2 [default: all that are off the grid]' -r -f -a '(__aligntool_partitions)'
complete -c aligntool -n '__aligntool_is realign' -l grain -d 'Boundary on which partitions start [default: 1MiB if there is room]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is realign' -l recipe -d 'Use a recipe that comes with aligntool, or your own from a file: FILE.toml' -r -f -a 'cloned-ssd\\t\'an old table that was cloned onto an SSD: 1 MiB, or refused\' gpt-34-40\\t\'a GPT whose first partition begins at sector 34 or 40: old macOS, FreeBSD, storage boxes\' large-unit-qlc\\t\'QLC SSDs with mapping units of 16 to 64 KiB that do not report them\' sd-card\\t\'SD cards and eMMC: every start on a multiple of 4 MiB, none before the first\' sector-63\\t\'a disk partitioned by cylinders: first partition at sector 63 (Windows XP and before, old Linux)\''
complete -c aligntool -n '__aligntool_is realign' -l shrink -d 'Allow file systems to be shrunk with their own tools to make room'
complete -c aligntool -n '__aligntool_is realign' -l used-only -d 'Copy only used blocks, even if something else on the disk may need the free ones'
complete -c aligntool -n '__aligntool_is realign' -l journal -d 'Write the journal to this file on another disk, not to free space' -r -F
complete -c aligntool -n '__aligntool_is realign' -l overwrite-bytes -d 'Allow these bytes, which no partition has, to be overwritten' -x
complete -c aligntool -n '__aligntool_is realign' -l save -d 'Copy what --overwrite-bytes names to this new file first' -r -F
complete -c aligntool -n '__aligntool_is realign' -l layers -d 'Move nothing; re-encrypt each LUKS2 volume with sectors of the drive\'s size'
complete -c aligntool -n '__aligntool_is realign' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is realign' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is realign' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is realign' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is realign' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is realign' -l not-suspended -d 'No system is suspended to disk in a layer that cannot be looked into, such as a LUKS'
complete -c aligntool -n '__aligntool_is realign' -l key-file -d 'Read the LUKS2 key from this file [default: ask for it]' -r -F
complete -c aligntool -n '__aligntool_is realign' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is realign' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is realign' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is realign' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is realign' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is realign' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is realign' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is realign' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is layout' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is layout' -l part -d 'A partition, such as 512MiB:esp; may be repeated. `rest:linux` takes the remaining space' -x
complete -c aligntool -n '__aligntool_is layout' -l table -d 'gpt, or dos for an MBR [default: gpt]' -r -f -a 'gpt dos'
complete -c aligntool -n '__aligntool_is layout' -l recipe -d 'Use a recipe that comes with aligntool, or your own from a file: FILE.toml' -r -f -a 'data-disk\\t\'a data disk: one Linux partition over the whole disk\' desktop-bios\\t\'a PC that boots by BIOS from a GPT: BIOS boot partition for GRUB, root, swap\' desktop-uefi\\t\'a PC that boots by UEFI: EFI system partition, root, swap\' sd-card\\t\'the SD card of a Raspberry Pi or similar board: FAT for the firmware, Linux, both aligned to 4 MiB\' server-nvme-raid\\t\'a member of a software RAID on NVMe: EFI system partition, /boot member, data member, room for a smaller spare\''
complete -c aligntool -n '__aligntool_is layout' -l grain -d 'Boundary on which partitions start [default: 1MiB]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is layout' -l spare-end -d 'Free space to leave at the end' -x
complete -c aligntool -n '__aligntool_is layout' -l lba-size -d 'First format empty NVMe drives to logical blocks of this size, such as 4096' -x
complete -c aligntool -n '__aligntool_is layout' -l wipe -d 'Allow everything on this device to be lost; may be repeated' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is layout' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is layout' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is layout' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is layout' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is layout' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is layout' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is layout' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is layout' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is layout' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is layout' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is layout' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is layout' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is partition' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is partition' -l undo -d 'Remove the partition table of a disk with one partition'
complete -c aligntool -n '__aligntool_is partition' -l table -d 'gpt, or dos for an MBR [default: gpt]' -r -f -a 'gpt dos'
complete -c aligntool -n '__aligntool_is partition' -l grain -d 'Boundary on which partitions start [default: 1MiB]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is partition' -l shrink -d 'Allow the file system to be shrunk with its own tool to make room'
complete -c aligntool -n '__aligntool_is partition' -l used-only -d 'Copy only used blocks, even if something else on the disk may need the free ones'
complete -c aligntool -n '__aligntool_is partition' -l journal -d 'Write the journal to this file on another disk, not to free space' -r -F
complete -c aligntool -n '__aligntool_is partition' -l overwrite-bytes -d 'Allow these bytes, which no partition has, to be overwritten' -x
complete -c aligntool -n '__aligntool_is partition' -l save -d 'Copy what --overwrite-bytes names to this new file first' -r -F
complete -c aligntool -n '__aligntool_is partition' -l key-file -d 'Open a LUKS volume with this key to find the space in use; - asks for the key' -r -F
complete -c aligntool -n '__aligntool_is partition' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is partition' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is partition' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is partition' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is partition' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is partition' -l not-suspended -d 'No system is suspended to disk in a layer that cannot be looked into, such as a LUKS'
complete -c aligntool -n '__aligntool_is partition' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is partition' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is partition' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is partition' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is partition' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is partition' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is partition' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is partition' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is convert' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is convert' -l sector-size -d 'Sector size of the new table: 4096 or 512' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is convert' -l both -d 'Write tables for both sector sizes; for images that will be copied'
complete -c aligntool -n '__aligntool_is convert' -l journal -d 'Write the journal to this file on another disk, not to free space' -r -F
complete -c aligntool -n '__aligntool_is convert' -l overwrite-bytes -d 'Allow these bytes, which no partition has, to be overwritten' -x
complete -c aligntool -n '__aligntool_is convert' -l save -d 'Copy what --overwrite-bytes names to this new file first' -r -F
complete -c aligntool -n '__aligntool_is convert' -l output -s o -d 'Write a copy to this new image or empty disk; DISK is only read' -r -F
complete -c aligntool -n '__aligntool_is convert' -l used-only -d 'Copy only used blocks, even if something else on the disk may need the free ones'
complete -c aligntool -n '__aligntool_is convert' -l wipe -d 'With -o: allow unrecognised data on this disk to be lost' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is convert' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is convert' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is convert' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is convert' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is convert' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is convert' -l not-suspended -d 'No system is suspended to disk in a layer that cannot be looked into, such as a LUKS'
complete -c aligntool -n '__aligntool_is convert' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is convert' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is convert' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is convert' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is convert' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is apply' -F
complete -c aligntool -n '__aligntool_is apply' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is apply' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is apply' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is apply' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is apply' -l not-suspended -d 'No system is suspended to disk in a layer that cannot be looked into, such as a LUKS'
complete -c aligntool -n '__aligntool_is apply' -l key-file -d 'Read the LUKS2 key from this file [default: ask for it]' -r -F
complete -c aligntool -n '__aligntool_is apply' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is apply' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is apply' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is apply' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is apply' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is status' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is status' -l journal -d 'The journal file, if it is on another disk' -r -F
complete -c aligntool -n '__aligntool_is status' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is status' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is status' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is status' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is status' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is resume' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is resume' -l journal -d 'The journal file, if it is on another disk' -r -F
complete -c aligntool -n '__aligntool_is resume' -l restore-table -d 'Restore the journal\'s partition table over one that was changed'
complete -c aligntool -n '__aligntool_is resume' -l dry-run -d 'Show what is in flight and the remaining steps, and stop'
complete -c aligntool -n '__aligntool_is resume' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is resume' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is resume' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is resume' -l key-file -d 'Read the LUKS2 key from this file [default: ask for it]' -r -F
complete -c aligntool -n '__aligntool_is resume' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is resume' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is resume' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is resume' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is resume' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is rollback' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is rollback' -l journal -d 'The journal file, if it is on another disk' -r -F
complete -c aligntool -n '__aligntool_is rollback' -l restore-table -d 'Restore the journal\'s partition table over one that was changed'
complete -c aligntool -n '__aligntool_is rollback' -l dry-run -d 'Show what is in flight and the remaining steps, and stop'
complete -c aligntool -n '__aligntool_is rollback' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is rollback' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is rollback' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is rollback' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is rollback' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is rollback' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is rollback' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is rollback' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is probe' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is probe' -l destructive -d 'Also write to the disk itself, which must be empty'
complete -c aligntool -n '__aligntool_is probe' -l wipe -d 'With --destructive: allow unrecognised data on this device to be lost' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is probe' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is probe' -l limit -d 'Time requests for at most this long' -x
complete -c aligntool -n '__aligntool_is probe' -l most -d 'Read and write at most this much; one round must fit [default: 1GiB]' -x
complete -c aligntool -n '__aligntool_is probe' -l size -d 'Size of the file in a folder [default: 512MiB]' -x
complete -c aligntool -n '__aligntool_is probe' -l largest -d 'The largest unit to look for [default: 8MiB]' -x
complete -c aligntool -n '__aligntool_is probe' -l sector-size -d 'The smallest request to time' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is probe' -l seed -d 'Seed for the random offsets and their order' -x
complete -c aligntool -n '__aligntool_is probe' -l output -s o -d 'Save the result, for `audit --measured FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is probe' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is probe' -l verbose -s v -d 'Show the penalty of every size'
complete -c aligntool -n '__aligntool_is probe' -l json -d 'Print JSON; sizes are in bytes, times in µs'
complete -c aligntool -n '__aligntool_is probe' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is probe' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is probe' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is probe' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is tui' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is tui' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is tui' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is tui' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is tui' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is tui' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is schema' -f -a 'audit\\t\'The report of an audit\' bench\\t\'A result of aligntool bench\' bench.alignment\\t\'A result of aligntool bench alignment\' bench.compare\\t\'Compared results of aligntool bench\' bench.list\\t\'The saved results of aligntool bench\' bench.span\\t\'A result of aligntool bench span\' ensure\\t\'Files of raid ensure\' estimate.boot\\t\'The estimate of the storage\\\'s part of a boot\' events\\t\'One line of the events of a change\' fleet\\t\'A report of many machines\' fleet.since\\t\'What changed between two reports of many machines\' plan\\t\'A plan\' probe\\t\'The result of aligntool probe\' raid-settings\\t\'The result of aligntool raid tune on a running array\' raid-tune\\t\'The result of aligntool raid tune\' raid.show\\t\'The arrays of a machine\' recipes\\t\'Recipes\' status\\t\'The state of a disk or an array\' trace\\t\'The analysis of a log of commands\''
complete -c aligntool -n '__aligntool_is schema' -l color -d 'When to colour the output' -r -f -a 'audit\\t\'The report of an audit\' bench\\t\'A result of aligntool bench\' bench.alignment\\t\'A result of aligntool bench alignment\' bench.compare\\t\'Compared results of aligntool bench\' bench.list\\t\'The saved results of aligntool bench\' bench.span\\t\'A result of aligntool bench span\' ensure\\t\'Files of raid ensure\' estimate.boot\\t\'The estimate of the storage\\\'s part of a boot\' events\\t\'One line of the events of a change\' fleet\\t\'A report of many machines\' fleet.since\\t\'What changed between two reports of many machines\' plan\\t\'A plan\' probe\\t\'The result of aligntool probe\' raid-settings\\t\'The result of aligntool raid tune on a running array\' raid-tune\\t\'The result of aligntool raid tune\' raid.show\\t\'The arrays of a machine\' recipes\\t\'Recipes\' status\\t\'The state of a disk or an array\' trace\\t\'The analysis of a log of commands\''
complete -c aligntool -n '__aligntool_is schema' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is schema' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is schema' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is report' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is report' -l output -s o -d 'Where to write the page; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is report' -l chart -d 'Select a single picture, for --svg and --png' -x
complete -c aligntool -n '__aligntool_is report' -l svg -d 'Write that picture as SVG' -r -F
complete -c aligntool -n '__aligntool_is report' -l png -d 'Write that picture as PNG; needs rsvg-convert' -r -F
complete -c aligntool -n '__aligntool_is report' -l bench -d 'Add a result of `aligntool bench`; may be repeated' -r -F
complete -c aligntool -n '__aligntool_is report' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is report' -l sysroot -d 'Use a captured machine: a snapshot or its folder' -r -F
complete -c aligntool -n '__aligntool_is report' -l wake -d 'Also read disks that are asleep'
complete -c aligntool -n '__aligntool_is report' -l timeout -d 'Skip a disk that does not respond for this long' -x
complete -c aligntool -n '__aligntool_is report' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is report' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is report' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is report' -l grain -d 'Boundary that partitions should start on [default: 1MiB]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is report' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is report' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is report' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is report' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is snapshot' -l output -s o -d 'The file to write: .tar.xz or .tar.gz; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is snapshot' -l serials -d 'Keep serial numbers, UUIDs and labels'
complete -c aligntool -n '__aligntool_is snapshot' -l host -d 'Include the name of this machine in the manifest'
complete -c aligntool -n '__aligntool_is snapshot' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is snapshot' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is snapshot' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is snapshot' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is snapshot' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is fleet' -F
complete -c aligntool -n '__aligntool_is fleet' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is fleet' -l output -s o -d 'Also write the report as an HTML page; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is fleet' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is fleet' -l since -d 'Compare with older snapshots, or with a file of --json' -x
complete -c aligntool -n '__aligntool_is fleet' -l fail-on -d 'Exit 1 at this severity or above' -r -f -a 'error warning never'
complete -c aligntool -n '__aligntool_is fleet' -l timeout -d 'Skip a disk that does not respond for this long' -x
complete -c aligntool -n '__aligntool_is fleet' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is fleet' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is fleet' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is fleet' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is demo' -F
complete -c aligntool -n '__aligntool_is demo' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is demo' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is demo' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is demo' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is plan realign' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is plan realign' -l partition -s p -d 'Move only these, such as 1,2 [default: all that are off the grid]' -r -f -a '(__aligntool_partitions)'
complete -c aligntool -n '__aligntool_is plan realign' -l grain -d 'Boundary on which partitions start [default: 1MiB if there is room]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is plan realign' -l recipe -d 'Use a recipe that comes with aligntool, or your own from a file: FILE.toml' -r -f -a 'cloned-ssd\\t\'an old table that was cloned onto an SSD: 1 MiB, or refused\' gpt-34-40\\t\'a GPT whose first partition begins at sector 34 or 40: old macOS, FreeBSD, storage boxes\' large-unit-qlc\\t\'QLC SSDs with mapping units of 16 to 64 KiB that do not report them\' sd-card\\t\'SD cards and eMMC: every start on a multiple of 4 MiB, none before the first\' sector-63\\t\'a disk partitioned by cylinders: first partition at sector 63 (Windows XP and before, old Linux)\''
complete -c aligntool -n '__aligntool_is plan realign' -l shrink -d 'Allow file systems to be shrunk with their own tools to make room'
complete -c aligntool -n '__aligntool_is plan realign' -l used-only -d 'Copy only used blocks, even if something else on the disk may need the free ones'
complete -c aligntool -n '__aligntool_is plan realign' -l journal -d 'Write the journal to this file on another disk, not to free space' -r -F
complete -c aligntool -n '__aligntool_is plan realign' -l overwrite-bytes -d 'Allow these bytes, which no partition has, to be overwritten' -x
complete -c aligntool -n '__aligntool_is plan realign' -l save -d 'Copy what --overwrite-bytes names to this new file first' -r -F
complete -c aligntool -n '__aligntool_is plan realign' -l layers -d 'Move nothing; re-encrypt each LUKS2 volume with sectors of the drive\'s size'
complete -c aligntool -n '__aligntool_is plan realign' -l output -s o -d 'Save the plan, for `aligntool apply FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is plan realign' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is plan realign' -l rate -d 'Copy at most this much per second, such as 50MiB' -x
complete -c aligntool -n '__aligntool_is plan realign' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is plan realign' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is plan realign' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is plan realign' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is plan realign' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is plan realign' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is plan realign' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is plan realign' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is plan realign' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is plan realign' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is plan layout' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is plan layout' -l part -d 'A partition, such as 512MiB:esp; may be repeated. `rest:linux` takes the remaining space' -x
complete -c aligntool -n '__aligntool_is plan layout' -l table -d 'gpt, or dos for an MBR [default: gpt]' -r -f -a 'gpt dos'
complete -c aligntool -n '__aligntool_is plan layout' -l recipe -d 'Use a recipe that comes with aligntool, or your own from a file: FILE.toml' -r -f -a 'data-disk\\t\'a data disk: one Linux partition over the whole disk\' desktop-bios\\t\'a PC that boots by BIOS from a GPT: BIOS boot partition for GRUB, root, swap\' desktop-uefi\\t\'a PC that boots by UEFI: EFI system partition, root, swap\' sd-card\\t\'the SD card of a Raspberry Pi or similar board: FAT for the firmware, Linux, both aligned to 4 MiB\' server-nvme-raid\\t\'a member of a software RAID on NVMe: EFI system partition, /boot member, data member, room for a smaller spare\''
complete -c aligntool -n '__aligntool_is plan layout' -l grain -d 'Boundary on which partitions start [default: 1MiB]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is plan layout' -l spare-end -d 'Free space to leave at the end' -x
complete -c aligntool -n '__aligntool_is plan layout' -l lba-size -d 'First format empty NVMe drives to logical blocks of this size, such as 4096' -x
complete -c aligntool -n '__aligntool_is plan layout' -l wipe -d 'Allow everything on this device to be lost; may be repeated' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is plan layout' -l output -s o -d 'Save the plan, for `aligntool apply FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is plan layout' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is plan layout' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is plan layout' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is plan layout' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is plan layout' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is plan layout' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is plan layout' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is plan layout' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is plan layout' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is plan layout' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is plan layout' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is plan partition' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is plan partition' -l undo -d 'Remove the partition table of a disk with one partition'
complete -c aligntool -n '__aligntool_is plan partition' -l table -d 'gpt, or dos for an MBR [default: gpt]' -r -f -a 'gpt dos'
complete -c aligntool -n '__aligntool_is plan partition' -l grain -d 'Boundary on which partitions start [default: 1MiB]' -r -f -a '1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is plan partition' -l shrink -d 'Allow the file system to be shrunk with its own tool to make room'
complete -c aligntool -n '__aligntool_is plan partition' -l used-only -d 'Copy only used blocks, even if something else on the disk may need the free ones'
complete -c aligntool -n '__aligntool_is plan partition' -l journal -d 'Write the journal to this file on another disk, not to free space' -r -F
complete -c aligntool -n '__aligntool_is plan partition' -l overwrite-bytes -d 'Allow these bytes, which no partition has, to be overwritten' -x
complete -c aligntool -n '__aligntool_is plan partition' -l save -d 'Copy what --overwrite-bytes names to this new file first' -r -F
complete -c aligntool -n '__aligntool_is plan partition' -l key-file -d 'Open a LUKS volume with this key to find the space in use; - asks for the key' -r -F
complete -c aligntool -n '__aligntool_is plan partition' -l output -s o -d 'Save the plan, for `aligntool apply FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is plan partition' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is plan partition' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is plan partition' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is plan partition' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is plan partition' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is plan partition' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is plan partition' -l page-size -d 'NAND page or internal unit, such as 16KiB' -r -f -a '4KiB 8KiB 16KiB 32KiB 64KiB'
complete -c aligntool -n '__aligntool_is plan partition' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is plan partition' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is plan partition' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is plan partition' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is plan convert' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is plan convert' -l sector-size -d 'Sector size of the new table: 4096 or 512' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is plan convert' -l both -d 'Write tables for both sector sizes; for images that will be copied'
complete -c aligntool -n '__aligntool_is plan convert' -l journal -d 'Write the journal to this file on another disk, not to free space' -r -F
complete -c aligntool -n '__aligntool_is plan convert' -l overwrite-bytes -d 'Allow these bytes, which no partition has, to be overwritten' -x
complete -c aligntool -n '__aligntool_is plan convert' -l save -d 'Copy what --overwrite-bytes names to this new file first' -r -F
complete -c aligntool -n '__aligntool_is plan convert' -l output -s o -d 'Save the plan, for `aligntool apply FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is plan convert' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is plan convert' -l no-lease -d 'No other program has the image open, where that cannot be found out'
complete -c aligntool -n '__aligntool_is plan convert' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is plan convert' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is plan convert' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is plan convert' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is plan convert' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is plan convert' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is raid plan' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is raid plan' -l level -s l -d 'RAID level' -r -f -a '0 1 10 5 6'
complete -c aligntool -n '__aligntool_is raid plan' -l recipe -d 'Use a recipe that comes with aligntool, or your own from a file: FILE.toml' -r -f -a 'nvme-raid0-scratch\\t\'a fast scratch disk of NVMe drives: RAID0, chunk 256 KiB, XFS as in the article of 2015\' partition-level\\t\'an array over one partition of each drive, next to the other partitions: RAID1, XFS\' raid1-data\\t\'data mirrored on two drives: RAID1, XFS\' raid1-system\\t\'a system that boots from either drive: RAID1 with ext4, and an EFI system partition on each drive\' raid10-database\\t\'a database with pages of 16 KiB: RAID10 with near copies, XFS\' raid5-archive\\t\'an archive that survives the failure of one drive: RAID5, long writes, XFS\' raid6-archive\\t\'an archive that survives the failure of two drives: RAID6, long writes, XFS\''
complete -c aligntool -n '__aligntool_is raid plan' -l chunk -d 'Chunk size [default: as recommended]' -r -f -a '16KiB 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is raid plan' -l workload -d 'general, boot, database, sequential, lsm, vm [default: general]' -r -f -a 'general boot database sequential lsm vm'
complete -c aligntool -n '__aligntool_is raid plan' -l fs -d 'File system: xfs, ext4, btrfs, swap, none [default: xfs]' -r -f -a 'xfs ext4 btrfs swap none'
complete -c aligntool -n '__aligntool_is raid plan' -l layout -d 'Layout: RAID10: n2, f2, o2 ...; RAID5, RAID6: left-symmetric ' -r -f -a 'n2 f2 o2 left-symmetric right-symmetric left-asymmetric right-asymmetric'
complete -c aligntool -n '__aligntool_is raid plan' -l bitmap -d 'The write-intent bitmap' -r -f -a 'internal none'
complete -c aligntool -n '__aligntool_is raid plan' -l metadata -d 'Metadata version: 1.2, or 1.0 (at the end, RAID1 only) [default: 1.2]' -r -f -a '1.2 1.0'
complete -c aligntool -n '__aligntool_is raid plan' -l name -d 'The array\'s name [default: data]' -x
complete -c aligntool -n '__aligntool_is raid plan' -l mount -d 'Mount point, or none [default: /srv/NAME]' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is raid plan' -l database-page -d 'Page size for --workload database [default: 16KiB]' -x
complete -c aligntool -n '__aligntool_is raid plan' -l spare-end -d 'Free space to leave at the end of each drive' -x
complete -c aligntool -n '__aligntool_is raid plan' -l lba-size -d 'First format empty NVMe drives to logical blocks of this size, such as 4096' -x
complete -c aligntool -n '__aligntool_is raid plan' -l zero-members -d 'First zero empty NVMe drives, so that no resynchronisation is needed'
complete -c aligntool -n '__aligntool_is raid plan' -l fast-sync -d 'Lift md\'s limit for the first resynchronisation, wait for its end, and restore the limit'
complete -c aligntool -n '__aligntool_is raid plan' -l whole-drives -d 'Use whole drives as members, without partition tables'
complete -c aligntool -n '__aligntool_is raid plan' -l one-drive -d 'Accept a single drive: a RAID0 of one'
complete -c aligntool -n '__aligntool_is raid plan' -l wipe -d 'Allow everything on this device to be lost; may be repeated' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is raid plan' -l tuned -d 'Use the result of `raid tune` on these drives' -r -F
complete -c aligntool -n '__aligntool_is raid plan' -l system -d 'debian, debian-dracut, fedora, opensuse or arch [default: this system]' -r -f -a 'debian debian-dracut fedora opensuse arch'
complete -c aligntool -n '__aligntool_is raid plan' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is raid plan' -l output -s o -d 'Save the plan, for `aligntool apply FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is raid plan' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is raid plan' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is raid plan' -l sysroot -d 'Use a captured machine: a snapshot or its folder' -r -F
complete -c aligntool -n '__aligntool_is raid plan' -l sector-size -d 'Logical sector size, such as 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is raid plan' -l physical-sector-size -d 'Physical sector size; image files are assumed to have 4096' -r -f -a '512 4096'
complete -c aligntool -n '__aligntool_is raid plan' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is raid plan' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is raid plan' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is raid plan' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is raid show' -f -a '(__aligntool_look aligntool_arrays)'
complete -c aligntool -n '__aligntool_is raid show' -l sysroot -d 'Use a captured machine: a snapshot or its folder' -r -F
complete -c aligntool -n '__aligntool_is raid show' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is raid show' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is raid show' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is raid show' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is raid show' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is raid create' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is raid create' -l level -s l -d 'RAID level' -r -f -a '0 1 10 5 6'
complete -c aligntool -n '__aligntool_is raid create' -l recipe -d 'Use a recipe that comes with aligntool, or your own from a file: FILE.toml' -r -f -a 'nvme-raid0-scratch\\t\'a fast scratch disk of NVMe drives: RAID0, chunk 256 KiB, XFS as in the article of 2015\' partition-level\\t\'an array over one partition of each drive, next to the other partitions: RAID1, XFS\' raid1-data\\t\'data mirrored on two drives: RAID1, XFS\' raid1-system\\t\'a system that boots from either drive: RAID1 with ext4, and an EFI system partition on each drive\' raid10-database\\t\'a database with pages of 16 KiB: RAID10 with near copies, XFS\' raid5-archive\\t\'an archive that survives the failure of one drive: RAID5, long writes, XFS\' raid6-archive\\t\'an archive that survives the failure of two drives: RAID6, long writes, XFS\''
complete -c aligntool -n '__aligntool_is raid create' -l chunk -d 'Chunk size [default: as recommended]' -r -f -a '16KiB 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is raid create' -l workload -d 'general, boot, database, sequential, lsm, vm [default: general]' -r -f -a 'general boot database sequential lsm vm'
complete -c aligntool -n '__aligntool_is raid create' -l fs -d 'File system: xfs, ext4, btrfs, swap, none [default: xfs]' -r -f -a 'xfs ext4 btrfs swap none'
complete -c aligntool -n '__aligntool_is raid create' -l layout -d 'Layout: RAID10: n2, f2, o2 ...; RAID5, RAID6: left-symmetric ' -r -f -a 'n2 f2 o2 left-symmetric right-symmetric left-asymmetric right-asymmetric'
complete -c aligntool -n '__aligntool_is raid create' -l bitmap -d 'The write-intent bitmap' -r -f -a 'internal none'
complete -c aligntool -n '__aligntool_is raid create' -l metadata -d 'Metadata version: 1.2, or 1.0 (at the end, RAID1 only) [default: 1.2]' -r -f -a '1.2 1.0'
complete -c aligntool -n '__aligntool_is raid create' -l name -d 'The array\'s name [default: data]' -x
complete -c aligntool -n '__aligntool_is raid create' -l mount -d 'Mount point, or none [default: /srv/NAME]' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is raid create' -l database-page -d 'Page size for --workload database [default: 16KiB]' -x
complete -c aligntool -n '__aligntool_is raid create' -l spare-end -d 'Free space to leave at the end of each drive' -x
complete -c aligntool -n '__aligntool_is raid create' -l lba-size -d 'First format empty NVMe drives to logical blocks of this size, such as 4096' -x
complete -c aligntool -n '__aligntool_is raid create' -l zero-members -d 'First zero empty NVMe drives, so that no resynchronisation is needed'
complete -c aligntool -n '__aligntool_is raid create' -l fast-sync -d 'Lift md\'s limit for the first resynchronisation, wait for its end, and restore the limit'
complete -c aligntool -n '__aligntool_is raid create' -l whole-drives -d 'Use whole drives as members, without partition tables'
complete -c aligntool -n '__aligntool_is raid create' -l one-drive -d 'Accept a single drive: a RAID0 of one'
complete -c aligntool -n '__aligntool_is raid create' -l wipe -d 'Allow everything on this device to be lost; may be repeated' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is raid create' -l tuned -d 'Use the result of `raid tune` on these drives' -r -F
complete -c aligntool -n '__aligntool_is raid create' -l system -d 'debian, debian-dracut, fedora, opensuse or arch [default: this system]' -r -f -a 'debian debian-dracut fedora opensuse arch'
complete -c aligntool -n '__aligntool_is raid create' -l root -d 'Configure the system installed below DIR, not this one' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is raid create' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is raid create' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is raid create' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is raid create' -l wait -d 'Wait until the first resynchronisation is finished'
complete -c aligntool -n '__aligntool_is raid create' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is raid create' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is raid create' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is raid create' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is raid create' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is raid ensure' -l set -d 'A key of such a file, which is not read then: level=raid0, drives.select=all-unused' -x
complete -c aligntool -n '__aligntool_is raid ensure' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is raid ensure' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is raid ensure' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is raid ensure' -l wait -d 'Wait until the first resynchronisation is finished'
complete -c aligntool -n '__aligntool_is raid ensure' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is raid ensure' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is raid ensure' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is raid ensure' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is raid ensure' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is raid persist' -f -a '(__aligntool_look aligntool_arrays)'
complete -c aligntool -n '__aligntool_is raid persist' -l system -d 'debian, debian-dracut, fedora, opensuse or arch [default: this system]' -r -f -a 'debian debian-dracut fedora opensuse arch'
complete -c aligntool -n '__aligntool_is raid persist' -l mount -d 'Mount point, now and at every boot' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is raid persist' -l tuned -d 'Keep the settings that were faster in this result of `raid tune ARRAY`' -r -F
complete -c aligntool -n '__aligntool_is raid persist' -l root -d 'Configure the system installed below DIR, not this one' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is raid persist' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is raid persist' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is raid persist' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is raid persist' -l output -s o -d 'Save the plan, for `aligntool apply FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is raid persist' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is raid persist' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is raid persist' -l sysroot -d 'Use a captured machine: a snapshot or its folder' -r -F
complete -c aligntool -n '__aligntool_is raid persist' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is raid persist' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is raid persist' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is raid persist' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is raid reformat' -f -a '(__aligntool_look aligntool_arrays)'
complete -c aligntool -n '__aligntool_is raid reformat' -l lba-size -d 'Logical block size in bytes, such as 4096' -x
complete -c aligntool -n '__aligntool_is raid reformat' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is raid reformat' -l verbose -s v -d 'Show every byte range, command and reason of the plan'
complete -c aligntool -n '__aligntool_is raid reformat' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is raid reformat' -l output -s o -d 'Save the plan, for `aligntool apply FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is raid reformat' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is raid reformat' -l json -d 'Report events as JSON lines'
complete -c aligntool -n '__aligntool_is raid reformat' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is raid reformat' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is raid reformat' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is raid reformat' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is raid tune' -f -a 'DEVICE... ARRAY'
complete -c aligntool -n '__aligntool_is raid tune' -l level -s l -d 'RAID level' -r -f -a '0 10 5 6'
complete -c aligntool -n '__aligntool_is raid tune' -l workload -d 'As for `raid plan`' -r -f -a 'general boot database sequential lsm vm'
complete -c aligntool -n '__aligntool_is raid tune' -l chunks -d 'Chunk sizes to try, such as 64KiB,128KiB' -r -f -a '16KiB 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB 4MiB'
complete -c aligntool -n '__aligntool_is raid tune' -l layout -d 'As for `raid plan`' -r -f -a 'n2 f2 o2 left-symmetric right-symmetric left-asymmetric right-asymmetric'
complete -c aligntool -n '__aligntool_is raid tune' -l bitmap -d 'The write-intent bitmap' -r -f -a 'internal none'
complete -c aligntool -n '__aligntool_is raid tune' -l database-page -d 'Page size of the database [default: 16KiB]' -x
complete -c aligntool -n '__aligntool_is raid tune' -l span -d 'How much of each array to use' -x
complete -c aligntool -n '__aligntool_is raid tune' -l runtime -d 'Duration of each load' -x
complete -c aligntool -n '__aligntool_is raid tune' -l repeats -d 'Rounds over all chunk sizes' -x
complete -c aligntool -n '__aligntool_is raid tune' -l settings -d 'Settings of an array to try, such as read_ahead_kb,stripe_cache_size [default: all]' -x
complete -c aligntool -n '__aligntool_is raid tune' -l write-in -d 'Also measure writes to an array, in a temporary file in this folder on it; needed for group_thread_cnt and stripe_cache_size' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is raid tune' -l output -s o -d 'Save the result, for `raid plan` or `raid persist --tuned FILE`; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is raid tune' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is raid tune' -l clear -d 'Only remove test arrays of an earlier sweep from these members'
complete -c aligntool -n '__aligntool_is raid tune' -l dry-run -d 'Show the plan and stop'
complete -c aligntool -n '__aligntool_is raid tune' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is raid tune' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is raid tune' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is raid tune' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is raid tune' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is bench run' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is bench run' -l profile -d 'A name from `recipes list`, or a file' -r -f -a 'amorphousdiskmark\\t\'AmorphousDiskMark\\\'s tests: 128 KiB and 4 KiB at depth 32, 1 MiB and 4 KiB at depth 1\' as-ssd\\t\'AS SSD\\\'s tests, with its score; its access time is the median latency of RND4K Q1T1\' atto\\t\'ATTO\\\'s sweep: sequential requests from 512 bytes to 64 MiB at depth 4\' boot\\t\'boot: one random 4 KiB request at a time, and the time that a boot takes at that rate\' crystaldiskmark-nvme\\t\'CrystalDiskMark\\\'s tests for NVMe drives: deeper queues and sixteen threads\' crystaldiskmark\\t\'CrystalDiskMark\\\'s default tests: for any drive, and comparable with most reviews\' iometer\\t\'IOMeter evaluation: 128 KiB sequential, 4 KiB random at 1, 2 and 4 workers, after preconditioning\' peak\\t\'peak: deep queues only, the figures on the box\' real-world\\t\'real world: one request at a time, large and small\' steady\\t\'steady state: 4 KiB random writes and reads in rounds until they are steady, after overwriting all twice\' threads\\t\'IOPS by number of threads: 4 KiB random reads, 1 to 32 threads of depth 32\''
complete -c aligntool -n '__aligntool_is bench run' -l span -d 'Range of the requests; in a folder, the size of the file' -x
complete -c aligntool -n '__aligntool_is bench run' -l runtime -d 'Duration of each run' -x
complete -c aligntool -n '__aligntool_is bench run' -l repeats -d 'Runs of each test' -x
complete -c aligntool -n '__aligntool_is bench run' -l passes -d 'Numbers of passes over the same data, such as 1,5, to reveal a cache' -x
complete -c aligntool -n '__aligntool_is bench run' -l destructive -d 'Write to the device itself, which must be empty'
complete -c aligntool -n '__aligntool_is bench run' -l wipe -d 'With --destructive: allow unrecognised data on this device to be lost' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is bench run' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is bench run' -l dry-run -d 'Show the fio command lines, and stop'
complete -c aligntool -n '__aligntool_is bench run' -l output -s o -d 'Save the result as JSON; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is bench run' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is bench run' -l fio-output -d 'Save fio\'s JSON output of every run in this folder' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is bench run' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is bench run' -l mix -d 'Also run each test mixed, with this percentage of reads' -x
complete -c aligntool -n '__aligntool_is bench run' -l data -d 'The data to write and read back' -r -f -a 'random zero'
complete -c aligntool -n '__aligntool_is bench run' -l pause -d 'Pause before each run' -x
complete -c aligntool -n '__aligntool_is bench run' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is bench run' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is bench run' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is bench run' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is bench list' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is bench list' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is bench list' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is bench list' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is bench list' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is bench show' -F
complete -c aligntool -n '__aligntool_is bench show' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is bench show' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is bench show' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is bench show' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is bench compare' -F
complete -c aligntool -n '__aligntool_is bench compare' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is bench compare' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is bench compare' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is bench compare' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is bench compare' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is bench alignment' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is bench alignment' -l unit -d 'The drive\'s unit [default: from the audit]' -x
complete -c aligntool -n '__aligntool_is bench alignment' -l start -d 'Test only this start; sector 63 is 32256' -x
complete -c aligntool -n '__aligntool_is bench alignment' -l every -d 'Test every sector of the unit, not every eighth of it; takes a long time'
complete -c aligntool -n '__aligntool_is bench alignment' -l depth -d 'Requests in flight' -x
complete -c aligntool -n '__aligntool_is bench alignment' -l runtime -d 'Duration of each run' -x
complete -c aligntool -n '__aligntool_is bench alignment' -l output -s o -d 'Save the result as JSON; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is bench alignment' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is bench alignment' -l size -d 'Size of the file in a folder' -x
complete -c aligntool -n '__aligntool_is bench alignment' -l repeats -d 'Number of runs' -x
complete -c aligntool -n '__aligntool_is bench alignment' -l destructive -d 'Write to the device itself, which must be empty'
complete -c aligntool -n '__aligntool_is bench alignment' -l wipe -d 'With --destructive: allow unrecognised data on this device to be lost' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is bench alignment' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is bench alignment' -l fio-output -d 'Save fio\'s JSON output of every run in this folder' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is bench alignment' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is bench alignment' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is bench alignment' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is bench alignment' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is bench alignment' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is bench span' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is bench span' -l from -d 'The smallest span [default: 64MiB]' -x
complete -c aligntool -n '__aligntool_is bench span' -l to -d 'The largest span [default: the whole target]' -x
complete -c aligntool -n '__aligntool_is bench span' -l write -d 'Write instead of reading: to a file, or to an empty device'
complete -c aligntool -n '__aligntool_is bench span' -l runtime -d 'Duration of each run' -x
complete -c aligntool -n '__aligntool_is bench span' -l output -s o -d 'Save the result as JSON; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is bench span' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is bench span' -l size -d 'Size of the file in a folder' -x
complete -c aligntool -n '__aligntool_is bench span' -l repeats -d 'Number of runs' -x
complete -c aligntool -n '__aligntool_is bench span' -l destructive -d 'Write to the device itself, which must be empty'
complete -c aligntool -n '__aligntool_is bench span' -l wipe -d 'With --destructive: allow unrecognised data on this device to be lost' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is bench span' -l yes -d 'Do not ask for confirmation; refusals still apply'
complete -c aligntool -n '__aligntool_is bench span' -l fio-output -d 'Save fio\'s JSON output of every run in this folder' -r -f -a '(__fish_complete_directories)'
complete -c aligntool -n '__aligntool_is bench span' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is bench span' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is bench span' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is bench span' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is bench span' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is trace read' -F
complete -c aligntool -n '__aligntool_is trace read' -l log-format -d 'Format of the log' -r -f -a 'auto blkparse iolog csv'
complete -c aligntool -n '__aligntool_is trace read' -l grid -d 'Compare the requests with boundaries of this size, such as 4KiB' -x
complete -c aligntool -n '__aligntool_is trace read' -l phase -d 'Offset of the first boundary of --grid' -x
complete -c aligntool -n '__aligntool_is trace read' -l disk -d 'Compare the requests with the boundaries from the audit' -r -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is trace read' -l partition -s p -d 'Offsets in the log are relative to this partition' -x
complete -c aligntool -n '__aligntool_is trace read' -l json -d 'Print JSON; sizes are in bytes'
complete -c aligntool -n '__aligntool_is trace read' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is trace read' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is trace read' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is trace read' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is trace record' -f -a '(__aligntool_disks)'
complete -c aligntool -n '__aligntool_is trace record' -l output -s o -d 'Save the log, as text of blkparse; - is standard output' -r -F
complete -c aligntool -n '__aligntool_is trace record' -l overwrite -d 'Replace existing files'
complete -c aligntool -n '__aligntool_is trace record' -l grid -d 'Compare the requests with boundaries of this size [default: from the audit]' -x
complete -c aligntool -n '__aligntool_is trace record' -l phase -d 'Offset of the first boundary of --grid' -x
complete -c aligntool -n '__aligntool_is trace record' -l json -d 'Print JSON; CMD\'s standard output goes to standard error'
complete -c aligntool -n '__aligntool_is trace record' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is trace record' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is trace record' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is trace record' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is estimate boot' -F
complete -c aligntool -n '__aligntool_is estimate boot' -l rate-a -d 'Random 4 KiB rate at depth 1: reads, writes' -x
complete -c aligntool -n '__aligntool_is estimate boot' -l rate-b -d 'The same for another drive, to compare' -x
complete -c aligntool -n '__aligntool_is estimate boot' -l trace -d 'Use the commands of this log instead of the built-in boot' -r -F
complete -c aligntool -n '__aligntool_is estimate boot' -l reads -d 'Number of reads' -x
complete -c aligntool -n '__aligntool_is estimate boot' -l writes -d 'Number of writes' -x
complete -c aligntool -n '__aligntool_is estimate boot' -l json -d 'Print JSON; times are in seconds'
complete -c aligntool -n '__aligntool_is estimate boot' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is estimate boot' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is estimate boot' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is estimate boot' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is recipes list' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is recipes list' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is recipes list' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is recipes list' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is recipes list' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is recipes show' -f -a 'cloned-ssd\\t\'an old table that was cloned onto an SSD: 1 MiB, or refused\' gpt-34-40\\t\'a GPT whose first partition begins at sector 34 or 40: old macOS, FreeBSD, storage boxes\' large-unit-qlc\\t\'QLC SSDs with mapping units of 16 to 64 KiB that do not report them\' sd-card\\t\'SD cards and eMMC: every start on a multiple of 4 MiB, none before the first\' sector-63\\t\'a disk partitioned by cylinders: first partition at sector 63 (Windows XP and before, old Linux)\' data-disk\\t\'a data disk: one Linux partition over the whole disk\' desktop-bios\\t\'a PC that boots by BIOS from a GPT: BIOS boot partition for GRUB, root, swap\' desktop-uefi\\t\'a PC that boots by UEFI: EFI system partition, root, swap\' sd-card\\t\'the SD card of a Raspberry Pi or similar board: FAT for the firmware, Linux, both aligned to 4 MiB\' server-nvme-raid\\t\'a member of a software RAID on NVMe: EFI system partition, /boot member, data member, room for a smaller spare\' nvme-raid0-scratch\\t\'a fast scratch disk of NVMe drives: RAID0, chunk 256 KiB, XFS as in the article of 2015\' partition-level\\t\'an array over one partition of each drive, next to the other partitions: RAID1, XFS\' raid1-data\\t\'data mirrored on two drives: RAID1, XFS\' raid1-system\\t\'a system that boots from either drive: RAID1 with ext4, and an EFI system partition on each drive\' raid10-database\\t\'a database with pages of 16 KiB: RAID10 with near copies, XFS\' raid5-archive\\t\'an archive that survives the failure of one drive: RAID5, long writes, XFS\' raid6-archive\\t\'an archive that survives the failure of two drives: RAID6, long writes, XFS\' amorphousdiskmark\\t\'AmorphousDiskMark\\\'s tests: 128 KiB and 4 KiB at depth 32, 1 MiB and 4 KiB at depth 1\' as-ssd\\t\'AS SSD\\\'s tests, with its score; its access time is the median latency of RND4K Q1T1\' atto\\t\'ATTO\\\'s sweep: sequential requests from 512 bytes to 64 MiB at depth 4\' boot\\t\'boot: one random 4 KiB request at a time, and the time that a boot takes at that rate\' crystaldiskmark-nvme\\t\'CrystalDiskMark\\\'s tests for NVMe drives: deeper queues and sixteen threads\' crystaldiskmark\\t\'CrystalDiskMark\\\'s default tests: for any drive, and comparable with most reviews\' iometer\\t\'IOMeter evaluation: 128 KiB sequential, 4 KiB random at 1, 2 and 4 workers, after preconditioning\' peak\\t\'peak: deep queues only, the figures on the box\' real-world\\t\'real world: one request at a time, large and small\' steady\\t\'steady state: 4 KiB random writes and reads in rounds until they are steady, after overwriting all twice\' threads\\t\'IOPS by number of threads: 4 KiB random reads, 1 to 32 threads of depth 32\''
complete -c aligntool -n '__aligntool_is recipes show' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is recipes show' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is recipes show' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is recipes show' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is recipes show' -l help -s h -d 'Show the options and an example'
complete -c aligntool -n '__aligntool_is recipes check' -F
complete -c aligntool -n '__aligntool_is recipes check' -l json -d 'Print JSON'
complete -c aligntool -n '__aligntool_is recipes check' -l color -d 'When to colour the output' -r -f -a 'auto always never'
complete -c aligntool -n '__aligntool_is recipes check' -l no-pager -d 'Do not show long text in a pager'
complete -c aligntool -n '__aligntool_is recipes check' -l unconfined -d 'Do not confine the programs that parse a disk or image'
complete -c aligntool -n '__aligntool_is recipes check' -l help -s h -d 'Show the options and an example'
