_aligntool_options() { # COMMAND
    options=--help arguments=
    case $1 in
@options@
    esac
}

_aligntool_value() { # COMMAND OPTION: whether it has a value, and what that may be
    case $1 in
@values@
    *) return 1 ;;
    esac
}

_aligntool() {
    local cur=${COMP_WORDS[COMP_CWORD]} last=$((COMP_CWORD - 1)) command=${COMP_WORDS[1]}
    local words='' kind='' before='' options arguments
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "@top@ --help -h --version -V --show-completion" -- "$cur")
        return
    fi
    case $command in
@groups@
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
