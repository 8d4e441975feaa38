# bash completion of aligntool
# Written by .ci/completion.py; do not edit.

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
        esac | tr -d ' ' | sort -n
        return
    done
}

_aligntool_options() { # COMMAND
    options=--help arguments=
    case $1 in
    "audit") options="--map --json --host --format --fail-on --quiet -q --verbose -v --wake --timeout --sysroot --root --sector-size --physical-sector-size --page-size --measured --grain --serials --output -o --overwrite --color --no-pager --unconfined --help -h" arguments=disks ;;
    "explain") options="--color --no-pager --unconfined --help -h" arguments="=AT101 AT102 AT103 AT104 AT105 AT106 AT107 AT108 AT109 AT110 AT201 AT202 AT203 AT204 AT205 AT206 AT207 AT208 AT209 AT210 AT301 AT302 AT303 AT304 AT305 AT306 AT307 AT308 AT309 AT310 AT311 AT312 AT313 AT314 AT315 AT316 AT317 AT318 AT319 AT401 AT402 AT403 AT404 AT405 AT406 AT407 AT408 AT409 AT501 AT502 AT503 AT504 AT505 AT506 AT507 AT508 AT509 AT510 AT511 AT601 AT602 AT603 AT604 AT605 AT606 AT607 AT608 AT609 AT610 AT611 AT612 AT613 AT614 AT615 AT616 AT617 AT618 AT619 AT620 AT621 AT622 AT901 AT902 AT903 queue-depth" ;;
    "drives") options="--firmware --color --no-pager --unconfined --help -h" arguments= ;;
    "realign") options="--partition -p --grain --recipe --shrink --used-only --journal --overwrite-bytes --save --layers --dry-run --verbose -v --yes --rate --no-lease --not-suspended --key-file --json --sector-size --physical-sector-size --page-size --color --no-pager --unconfined --help -h" arguments=disks ;;
    "layout") options="--part --table --recipe --grain --spare-end --lba-size --wipe --dry-run --verbose -v --yes --no-lease --json --sector-size --physical-sector-size --page-size --color --no-pager --unconfined --help -h" arguments=disks ;;
    "partition") options="--undo --table --grain --shrink --used-only --journal --overwrite-bytes --save --key-file --dry-run --verbose -v --yes --rate --no-lease --not-suspended --json --sector-size --physical-sector-size --page-size --color --no-pager --unconfined --help -h" arguments=disks ;;
    "convert") options="--sector-size --both --journal --overwrite-bytes --save --output -o --used-only --wipe --dry-run --verbose -v --yes --rate --no-lease --not-suspended --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "apply") options="--verbose -v --yes --rate --no-lease --not-suspended --key-file --json --color --no-pager --unconfined --help -h" arguments=files ;;
    "status") options="--journal --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "resume") options="--journal --restore-table --dry-run --yes --rate --no-lease --key-file --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "rollback") options="--journal --restore-table --dry-run --yes --rate --no-lease --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "probe") options="--destructive --wipe --yes --limit --most --size --largest --sector-size --seed --output -o --overwrite --verbose -v --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "tui") options="--rate --color --no-pager --unconfined --help -h" arguments=disks ;;
    "schema") options="--color --no-pager --unconfined --help -h" arguments="=audit bench bench.alignment bench.compare bench.list bench.span ensure estimate.boot events fleet fleet.since plan probe raid-settings raid-tune raid.show recipes status trace" ;;
    "report") options="--output -o --chart --svg --png --bench --overwrite --sysroot --wake --timeout --sector-size --physical-sector-size --page-size --grain --color --no-pager --unconfined --help -h" arguments=disks ;;
    "snapshot") options="--output -o --serials --host --overwrite --color --no-pager --unconfined --help -h" arguments= ;;
    "fleet") options="--json --output -o --overwrite --since --fail-on --timeout --color --no-pager --unconfined --help -h" arguments=files ;;
    "demo") options="--color --no-pager --unconfined --help -h" arguments=files ;;
    "plan realign") options="--partition -p --grain --recipe --shrink --used-only --journal --overwrite-bytes --save --layers --output -o --overwrite --rate --no-lease --verbose -v --json --sector-size --physical-sector-size --page-size --color --no-pager --unconfined --help -h" arguments=disks ;;
    "plan layout") options="--part --table --recipe --grain --spare-end --lba-size --wipe --output -o --overwrite --no-lease --verbose -v --json --sector-size --physical-sector-size --page-size --color --no-pager --unconfined --help -h" arguments=disks ;;
    "plan partition") options="--undo --table --grain --shrink --used-only --journal --overwrite-bytes --save --key-file --output -o --overwrite --no-lease --verbose -v --json --sector-size --physical-sector-size --page-size --color --no-pager --unconfined --help -h" arguments=disks ;;
    "plan convert") options="--sector-size --both --journal --overwrite-bytes --save --output -o --overwrite --no-lease --verbose -v --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "raid plan") options="--level -l --recipe --chunk --workload --fs --layout --bitmap --metadata --name --mount --database-page --spare-end --lba-size --zero-members --fast-sync --whole-drives --one-drive --wipe --tuned --system --verbose -v --output -o --overwrite --json --sysroot --sector-size --physical-sector-size --color --no-pager --unconfined --help -h" arguments=disks ;;
    "raid show") options="--sysroot --json --color --no-pager --unconfined --help -h" arguments=arrays ;;
    "raid create") options="--level -l --recipe --chunk --workload --fs --layout --bitmap --metadata --name --mount --database-page --spare-end --lba-size --zero-members --fast-sync --whole-drives --one-drive --wipe --tuned --system --root --dry-run --verbose -v --yes --wait --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "raid ensure") options="--set --dry-run --verbose -v --yes --wait --json --color --no-pager --unconfined --help -h" arguments= ;;
    "raid persist") options="--system --mount --tuned --root --dry-run --verbose -v --yes --output -o --overwrite --json --sysroot --color --no-pager --unconfined --help -h" arguments=arrays ;;
    "raid reformat") options="--lba-size --dry-run --verbose -v --yes --output -o --overwrite --json --color --no-pager --unconfined --help -h" arguments=arrays ;;
    "raid tune") options="--level -l --workload --chunks --layout --bitmap --database-page --span --runtime --repeats --settings --write-in --output -o --overwrite --clear --dry-run --yes --color --no-pager --unconfined --help -h" arguments="=DEVICE... ARRAY" ;;
    "bench run") options="--profile --span --runtime --repeats --passes --destructive --wipe --yes --dry-run --output -o --overwrite --fio-output --json --mix --data --pause --color --no-pager --unconfined --help -h" arguments=disks ;;
    "bench list") options="--json --color --no-pager --unconfined --help -h" arguments= ;;
    "bench show") options="--color --no-pager --unconfined --help -h" arguments=files ;;
    "bench compare") options="--json --color --no-pager --unconfined --help -h" arguments=files ;;
    "bench alignment") options="--unit --start --every --depth --runtime --output -o --overwrite --size --repeats --destructive --wipe --yes --fio-output --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "bench span") options="--from --to --write --runtime --output -o --overwrite --size --repeats --destructive --wipe --yes --fio-output --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "trace read") options="--log-format --grid --phase --disk --partition -p --json --color --no-pager --unconfined --help -h" arguments=files ;;
    "trace record") options="--output -o --overwrite --grid --phase --json --color --no-pager --unconfined --help -h" arguments=disks ;;
    "estimate boot") options="--rate-a --rate-b --trace --reads --writes --json --color --no-pager --unconfined --help -h" arguments=files ;;
    "recipes list") options="--json --color --no-pager --unconfined --help -h" arguments= ;;
    "recipes show") options="--json --color --no-pager --unconfined --help -h" arguments="=cloned-ssd gpt-34-40 large-unit-qlc sd-card sector-63 data-disk desktop-bios desktop-uefi sd-card server-nvme-raid nvme-raid0-scratch partition-level raid1-data raid1-system raid10-database raid5-archive raid6-archive amorphousdiskmark as-ssd atto boot crystaldiskmark-nvme crystaldiskmark iometer peak real-world steady threads" ;;
    "recipes check") options="--json --color --no-pager --unconfined --help -h" arguments=files ;;
    esac
}

_aligntool_value() { # COMMAND OPTION: whether it has a value, and what that may be
    case $1 in
    "audit --format") kind="=text json prometheus" ;;
    "audit --fail-on" | "fleet --fail-on") kind="=error warning never" ;;
    "audit --timeout" | "drives --firmware" | "realign --overwrite-bytes" | "realign --rate" | "layout --part" | "layout --spare-end" | "layout --lba-size" | "partition --overwrite-bytes" | "partition --rate" | "convert --overwrite-bytes" | "convert --rate" | "apply --rate" | "resume --rate" | "rollback --rate" | "probe --limit" | "probe --most" | "probe --size" | "probe --largest" | "probe --seed" | "tui --rate" | "report --chart" | "report --timeout" | "fleet --since" | "fleet --timeout" | "plan realign --overwrite-bytes" | "plan realign --rate" | "plan layout --part" | "plan layout --spare-end" | "plan layout --lba-size" | "plan partition --overwrite-bytes" | "plan convert --overwrite-bytes" | "raid plan --name" | "raid plan --database-page" | "raid plan --spare-end" | "raid plan --lba-size" | "raid create --name" | "raid create --database-page" | "raid create --spare-end" | "raid create --lba-size" | "raid ensure --set" | "raid reformat --lba-size" | "raid tune --database-page" | "raid tune --span" | "raid tune --runtime" | "raid tune --repeats" | "raid tune --settings" | "bench run --span" | "bench run --runtime" | "bench run --repeats" | "bench run --passes" | "bench run --mix" | "bench run --pause" | "bench alignment --unit" | "bench alignment --start" | "bench alignment --depth" | "bench alignment --runtime" | "bench alignment --size" | "bench alignment --repeats" | "bench span --from" | "bench span --to" | "bench span --runtime" | "bench span --size" | "bench span --repeats" | "trace read --grid" | "trace read --phase" | "trace read --partition" | "trace read -p" | "trace record --grid" | "trace record --phase" | "estimate boot --rate-a" | "estimate boot --rate-b" | "estimate boot --reads" | "estimate boot --writes") kind= ;;
    "audit --sysroot" | "audit --measured" | "audit --output" | "audit -o" | "realign --journal" | "realign --save" | "realign --key-file" | "partition --journal" | "partition --save" | "partition --key-file" | "convert --journal" | "convert --save" | "convert --output" | "convert -o" | "apply --key-file" | "status --journal" | "resume --journal" | "resume --key-file" | "rollback --journal" | "probe --output" | "probe -o" | "report --output" | "report -o" | "report --svg" | "report --png" | "report --bench" | "report --sysroot" | "snapshot --output" | "snapshot -o" | "fleet --output" | "fleet -o" | "plan realign --journal" | "plan realign --save" | "plan realign --output" | "plan realign -o" | "plan layout --output" | "plan layout -o" | "plan partition --journal" | "plan partition --save" | "plan partition --key-file" | "plan partition --output" | "plan partition -o" | "plan convert --journal" | "plan convert --save" | "plan convert --output" | "plan convert -o" | "raid plan --tuned" | "raid plan --output" | "raid plan -o" | "raid plan --sysroot" | "raid show --sysroot" | "raid create --tuned" | "raid persist --tuned" | "raid persist --output" | "raid persist -o" | "raid persist --sysroot" | "raid reformat --output" | "raid reformat -o" | "raid tune --output" | "raid tune -o" | "bench run --output" | "bench run -o" | "bench alignment --output" | "bench alignment -o" | "bench span --output" | "bench span -o" | "trace record --output" | "trace record -o" | "estimate boot --trace") kind=files ;;
    "audit --root" | "raid plan --mount" | "raid create --mount" | "raid create --root" | "raid persist --mount" | "raid persist --root" | "raid tune --write-in" | "bench run --fio-output" | "bench alignment --fio-output" | "bench span --fio-output") kind=folders ;;
    "audit --sector-size" | "audit --physical-sector-size" | "realign --sector-size" | "realign --physical-sector-size" | "layout --sector-size" | "layout --physical-sector-size" | "partition --sector-size" | "partition --physical-sector-size" | "convert --sector-size" | "probe --sector-size" | "report --sector-size" | "report --physical-sector-size" | "plan realign --sector-size" | "plan realign --physical-sector-size" | "plan layout --sector-size" | "plan layout --physical-sector-size" | "plan partition --sector-size" | "plan partition --physical-sector-size" | "plan convert --sector-size" | "raid plan --sector-size" | "raid plan --physical-sector-size") kind="=512 4096" ;;
    "audit --page-size" | "realign --page-size" | "layout --page-size" | "partition --page-size" | "report --page-size" | "plan realign --page-size" | "plan layout --page-size" | "plan partition --page-size") kind="=4KiB 8KiB 16KiB 32KiB 64KiB" ;;
    "audit --grain" | "realign --grain" | "layout --grain" | "partition --grain" | "report --grain" | "plan realign --grain" | "plan layout --grain" | "plan partition --grain") kind="=1MiB 2MiB 4MiB" ;;
    "audit --color" | "explain --color" | "drives --color" | "realign --color" | "layout --color" | "partition --color" | "convert --color" | "apply --color" | "status --color" | "resume --color" | "rollback --color" | "probe --color" | "tui --color" | "report --color" | "snapshot --color" | "fleet --color" | "demo --color" | "plan realign --color" | "plan layout --color" | "plan partition --color" | "plan convert --color" | "raid plan --color" | "raid show --color" | "raid create --color" | "raid ensure --color" | "raid persist --color" | "raid reformat --color" | "raid tune --color" | "bench run --color" | "bench list --color" | "bench show --color" | "bench compare --color" | "bench alignment --color" | "bench span --color" | "trace read --color" | "trace record --color" | "estimate boot --color" | "recipes list --color" | "recipes show --color" | "recipes check --color") kind="=auto always never" ;;
    "realign --partition" | "realign -p" | "plan realign --partition" | "plan realign -p") kind=partitions ;;
    "realign --recipe" | "plan realign --recipe") kind="=cloned-ssd gpt-34-40 large-unit-qlc sd-card sector-63" ;;
    "layout --table" | "partition --table" | "plan layout --table" | "plan partition --table") kind="=gpt dos" ;;
    "layout --recipe" | "plan layout --recipe") kind="=data-disk desktop-bios desktop-uefi sd-card server-nvme-raid" ;;
    "layout --wipe" | "convert --wipe" | "probe --wipe" | "plan layout --wipe" | "raid plan --wipe" | "raid create --wipe" | "bench run --wipe" | "bench alignment --wipe" | "bench span --wipe" | "trace read --disk") kind=disks ;;
    "schema --color") kind="=audit bench bench.alignment bench.compare bench.list bench.span ensure estimate.boot events fleet fleet.since plan probe raid-settings raid-tune raid.show recipes status trace" ;;
    "raid plan --level" | "raid plan -l" | "raid create --level" | "raid create -l") kind="=0 1 10 5 6" ;;
    "raid plan --recipe" | "raid create --recipe") kind="=nvme-raid0-scratch partition-level raid1-data raid1-system raid10-database raid5-archive raid6-archive" ;;
    "raid plan --chunk" | "raid create --chunk" | "raid tune --chunks") kind="=16KiB 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB 2MiB 4MiB" ;;
    "raid plan --workload" | "raid create --workload" | "raid tune --workload") kind="=general boot database sequential lsm vm" ;;
    "raid plan --fs" | "raid create --fs") kind="=xfs ext4 btrfs swap none" ;;
    "raid plan --layout" | "raid create --layout" | "raid tune --layout") kind="=n2 f2 o2 left-symmetric right-symmetric left-asymmetric right-asymmetric" ;;
    "raid plan --bitmap" | "raid create --bitmap" | "raid tune --bitmap") kind="=internal none" ;;
    "raid plan --metadata" | "raid create --metadata") kind="=1.2 1.0" ;;
    "raid plan --system" | "raid create --system" | "raid persist --system") kind="=debian debian-dracut fedora opensuse arch" ;;
    "raid tune --level" | "raid tune -l") kind="=0 10 5 6" ;;
    "bench run --profile") kind="=amorphousdiskmark as-ssd atto boot crystaldiskmark-nvme crystaldiskmark iometer peak real-world steady threads" ;;
    "bench run --data") kind="=random zero" ;;
    "trace read --log-format") kind="=auto blkparse iolog csv" ;;
    *) return 1 ;;
    esac
}

_aligntool() {
    local cur=${COMP_WORDS[COMP_CWORD]} last=$((COMP_CWORD - 1)) command=${COMP_WORDS[1]}
    local words='' kind='' before='' options arguments
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "audit explain drives realign layout partition convert apply status resume rollback probe tui schema report snapshot fleet demo plan raid bench trace estimate recipes --help -h --version -V --show-completion" -- "$cur")
        return
    fi
    case $command in
    plan) words="realign layout partition convert raid" command="plan " ;;
    raid) words="plan show create ensure persist reformat tune" command="raid " ;;
    bench) words="run list show compare alignment span" command="bench run" ;;
    trace) words="read record" command="trace read" ;;
    estimate) words="boot" command="estimate " ;;
    recipes) words="list show check" command="recipes " ;;
    esac
    if [[ $words && $COMP_CWORD -gt 2 ]]; then
        [[ " $words " != *" ${COMP_WORDS[2]} "* ]] || command="${COMP_WORDS[1]} ${COMP_WORDS[2]}"
        [[ $command != "plan raid" ]] || command="raid plan"
        words=
    fi
    _aligntool_options "$command"
    # bash takes "--format=json" for three words.
    if [[ $cur == "=" ]]; then
        cur=
    elif [[ ${COMP_WORDS[last]} == "=" ]]; then
        ((last--))
    fi
    if ! _aligntool_value "$command ${COMP_WORDS[last]}"; then
        if [[ $cur == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
            return
        fi
        kind=$arguments
    fi
    case $kind in
    =*) words+=" ${kind#=}" ;;
    arrays) words+=" $(aligntool_arrays 2>/dev/null)" ;;
    disks) words+=" $(aligntool_disks 2>/dev/null)" ;;
    partitions)
        [[ $cur != *,* ]] || before=${cur%,*},
        words=$(aligntool_partitions "${COMP_WORDS[@]}" 2>/dev/null)
        compopt -o nospace
        ;;
    folders) compopt -o dirnames ;;
    esac
    [[ ! $words ]] || mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "${cur#"$before"}")
    if [[ $kind == disks || $kind == files ]]; then
        compopt -o default # where nothing else fits
        if [[ ${#COMPREPLY[@]} -gt 0 && $cur != /* ]]; then
            compopt -o filenames
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
        fi
    fi
}

complete -F _aligntool aligntool
