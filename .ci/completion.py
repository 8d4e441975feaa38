"""Write the completion files of bash, zsh and fish: python .ci/completion.py [FOLDER],
aligntool/cli/completions.

Commands, options and words are read from the program, so the shells need not start it: a TAB costs the time
of a shell function. A test compares that folder with the output of this program.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from aligntool.audit.report import explanations
from aligntool.change import RAID_WORDS
from aligntool.cli.app import COMMANDS, DEFAULT_COMMANDS, GROUPS, LateCommand
from aligntool.documents import schema_texts
from aligntool.recipes.goals import load_recipes
from aligntool.render.recipes import TOPIC

ROOT = Path(__file__).resolve().parent.parent
Words: TypeAlias = tuple[tuple[str, str], ...]  # with their meanings, or ""
Kind: TypeAlias = (
    str | Words
)  # the values of an option: words, or what the shell looks for: "disks", "files" ...
KINDS = {
    "TARGET": "disks", "[TARGET...]": "disks", "DISK": "disks", "[DISK]": "disks", "DEVICE": "disks",
    "DEVICE...": "disks", "ARRAY": "arrays", "[ARRAY...]": "arrays", "N[,N]": "partitions", "FILE": "files",
    "FILE...": "files", "IMAGE": "files", "LOG": "files", "RESULT...": "files", "CMD...": "files",
    "SNAPSHOT...": "files",
}  # fmt: skip
SIZES = ("4KiB", "8KiB", "16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB", "4MiB")


def plain(words: tuple[str, ...]) -> Words:
    """Return words without a meaning."""
    return tuple((word, "") for word in words)


WORDS = {
    "--chunk": plain(SIZES[2:]),
    "--chunks": plain(SIZES[2:]),
    "--grain": plain(SIZES[-3:]),
    "--page-size": plain(SIZES[:5]),
    "--sector-size": plain(("512", "4096")),
    "--physical-sector-size": plain(("512", "4096")),
    "--workload": plain(RAID_WORDS["workload"]),
    "--fs": plain(RAID_WORDS["filesystem"]),
    "--layout": plain(
        ("n2", "f2", "o2", "left-symmetric", "right-symmetric", "left-asymmetric", "right-asymmetric")
    ),
    "--system": plain(("debian", "debian-dracut", "fedora", "opensuse", "arch")),
}


class Option(NamedTuple):
    """An option, and the kind of its value, or None if it has no value."""

    names: tuple[str, ...]
    about: str
    kind: Kind | None
    metavar: str
    multiple: bool


class Command(NamedTuple):
    """A command, and the kind of its arguments."""

    name: str
    options: tuple[Option, ...]
    arguments: Kind


def recipes(kind: str) -> Words:
    """Return the recipes of a kind."""
    return tuple((each.name, each.summary) for each in load_recipes() if kind in ("", each.kind))


def kind_of(command: str, parameter: Any) -> Kind:
    """Return the kind of a value, or "" if nothing can be completed."""
    name, metavar = parameter.opts[0], parameter.metavar or ""
    if name in ("--recipe", "--profile") or (command, name) == ("recipes show", "name"):
        group, _, word = command.partition(" ")
        return recipes({"recipes": ""}.get(group, word if group == "plan" else group))
    if metavar == "CODE":
        return (*((code.value, each.title) for code, each in explanations().items()), (TOPIC, ""))
    if command == "schema":
        return tuple((each, json.loads(text)["title"]) for each, text in schema_texts().items())
    if metavar == "DIR":
        return "files" if name == "--sysroot" else "folders"
    if choices := getattr(parameter.type, "choices", None) or ("|" in metavar and metavar.split("|")):
        return plain(tuple(choices))
    return WORDS.get(name, KINDS.get(metavar, ""))


def commands() -> Iterator[Command]:
    """Yield every command."""
    for words, row in COMMANDS.items():
        options: list[Option] = []
        arguments: Kind = ""
        for each in LateCommand(words, *row).load().params:
            if each.param_type_name == "argument":
                arguments = arguments or kind_of(words, each)
            elif not getattr(each, "hidden", False):
                kind = None if getattr(each, "is_flag", False) else kind_of(words, each)
                about = (getattr(each, "help", "") or "").rstrip(".")
                again = each.multiple and (
                    "--sysroot" not in each.opts or words == "audit"
                )  # the others refuse a second one
                options.append(Option(tuple(each.opts), about, kind, each.metavar or "WORD", again))
        options.append(Option(("--help", "-h"), "Show the options and an example", None, "", False))
        yield Command(words, tuple(options), arguments)


def short(text: str) -> str:
    """Return the first line of a help text without its full stop."""
    return text.split("\n")[0].rstrip(".")


ALL = tuple(commands())
TOP = tuple((word, short(COMMANDS[word][2])) for word in COMMANDS if " " not in word) + tuple(
    (word, short(text)) for word, (text, _) in GROUPS.items()
)
BELOW = {
    group: tuple(
        (words.split(" ")[1], short(row[2]))
        for words, row in COMMANDS.items()
        if words.startswith(f"{group} ")
    )
    for group in GROUPS
}
BELOW["plan"] += (("raid", short(COMMANDS["raid plan"][2])),)

# Looks at the running machine, in POSIX sh: bash and zsh have these functions, fish starts sh.
LOOK = r"""
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
"""
NOTE = "# Written by .ci/completion.py; do not edit.\n"


def bash() -> str:
    """Return the file of bash."""
    values: dict[str, list[str]] = {}
    for command in ALL:
        for option in command.options:
            if option.kind is not None:
                values.setdefault(bash_kind(option.kind), []).extend(
                    f'"{command.name} {name}"' for name in option.names
                )
    options = "".join(
        f'    "{command.name}")'
        f' options="{" ".join(name for option in command.options for name in option.names)}" '
        f"arguments={bash_kind(command.arguments)} ;;\n"
        for command in ALL
    )
    groups = "".join(
        f'    {group}) words="{names(words)}" command="{group} {DEFAULT_COMMANDS.get(group, "")}" ;;\n'
        for group, words in BELOW.items()
    )
    typed = "".join(f"    {' | '.join(patterns)}) kind={kind} ;;\n" for kind, patterns in values.items())
    text = (ROOT / ".ci" / "completion.bash").read_text()
    for mark, part in (("options", options), ("values", typed), ("groups", groups), ("top", names(TOP))):
        text = text.replace(f"@{mark}@\n" if part.endswith("\n") else f"@{mark}@", part)
    return f"# bash completion of aligntool\n{NOTE}{LOOK}\n{text}"


def bash_kind(kind: Kind) -> str:
    """Return a kind as the value of a variable: words behind "=", or the name of a place."""
    return kind if isinstance(kind, str) else f'"={names(kind)}"'


def names(words: Words) -> str:
    """Return words without their meanings."""
    return " ".join(word for word, _ in words)


def quoted(text: str) -> str:
    """Return text as one word of bash or zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def zsh() -> str:
    """Return the file of zsh."""
    parts = [f"#compdef aligntool\n{NOTE}\nemulate sh -c {quoted(LOOK)}\n"]
    for command in ALL:
        lines = [quoted(spec) for option in command.options for spec in zsh_option(option)]
        lines.append(quoted(f"*:{' '.join(command.name.split()[-1:])}:{zsh_action(command.arguments)}"))
        body = " \\\n        ".join(lines)
        parts.append(
            f"_aligntool_{command.name.replace(' ', '_')}() {{\n    _arguments -s -S \\\n        {body}\n}}\n"
        )
    for group, words in BELOW.items():
        described = "\n".join(f"        {quoted(zsh_word(word, about))}" for word, about in words)
        known = "|".join(word for word, _ in words)
        default = f"_aligntool_{group}_{DEFAULT_COMMANDS[group]}" if group in DEFAULT_COMMANDS else ":"
        parts.append(f"""_aligntool_{group}() {{
    local -a found=(
{described}
    )
    if ((CURRENT > 2)) && [[ $words[2] == ({known}) ]]; then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_{group}_$word
    else
        ((CURRENT > 2)) || _describe command found
        {default}
    fi
}}
""")
    parts.append("_aligntool_plan_raid() { _aligntool_raid_plan; }\n")
    top = "\n".join(f"        {quoted(zsh_word(word, about))}" for word, about in TOP)
    parts.append(f"""_aligntool() {{
    local -a found=(
{top}
    )
    if ((CURRENT == 2)); then
        _describe command found
        _arguments '(-h --help)'{{-h,--help}}'[List the options]' \\
            '(-V --version)'{{-V,--version}}'[Print the version]' \\
            '--show-completion=[Print the completion file]:SHELL:(bash zsh fish)'
    elif (($+functions[_aligntool_$words[2]])); then
        local word=$words[2]
        shift words
        ((CURRENT--))
        _aligntool_$word
    else
        _default
    fi
}}

_aligntool_devices() {{
    local -a found=(${{(f)"$(aligntool_disks 2>/dev/null)"}})
    local -a choices=("disks:disk:compadd -a found")
    [[ $PREFIX == /dev/* && $PREFIX != /dev/*/* ]] || choices+=("files:file:_files")
    _alternative $choices
}}

_aligntool_arrays() {{
    local -a found=(${{(f)"$(aligntool_arrays 2>/dev/null)"}})
    _wanted arrays expl array compadd -a found
}}

_aligntool_partitions() {{
    local -a found=(${{(f)"$(aligntool_partitions $words 2>/dev/null)"}})
    compset -P "*,"
    _wanted partitions expl partition compadd -S "" -a found
}}

if [[ $funcstack[1] == _aligntool ]]; then
    _aligntool "$@"
else
    compdef _aligntool aligntool
fi
""")
    return "\n".join(parts)


def zsh_option(option: Option) -> Iterator[str]:
    """Yield an option as _arguments takes it."""
    about = re.sub(r"([\[\]:\\])", r"\\\1", option.about)
    for name in option.names:
        others = "*" if option.multiple else f"({' '.join(option.names)})"
        if option.kind is None:
            yield f"{others}{name}[{about}]"
        else:
            sign = "=" if name.startswith("--") else "+"
            metavar = option.metavar.replace(":", "\\:")
            yield f"{others}{name}{sign}[{about}]:{metavar}:{zsh_action(option.kind)}"


def zsh_action(kind: Kind) -> str:
    """Return what completes a kind."""
    if not isinstance(kind, str):
        about = any(text for _, text in kind)
        if not about:
            return f"({names(kind)})"
        return "((" + " ".join(f"{word}\\:{zsh_quoted(text)}" if text else word for word, text in kind) + "))"
    return {
        "disks": "_aligntool_devices", "partitions": "_aligntool_partitions", "arrays": "_aligntool_arrays",
        "files": "_files", "folders": "_files -/", "": " ",
    }[kind]  # fmt: skip


def zsh_quoted(text: str) -> str:
    """Return text for the list of words in an action."""
    return '"' + re.sub(r"([:\\\"`$])", r"\\\1", text) + '"'


def zsh_word(word: str, about: str) -> str:
    """Return a word with its meaning, as _describe takes it."""
    return f"{word}:{about.replace(':', chr(92) + ':')}"


def fish_quoted(text: str) -> str:
    """Return text as one word of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish() -> str:
    """Return the file of fish."""
    known = "\n".join(
        f'        case {group}\n            contains -- "$words[3]" {names(words)}; '
        f'and set command "$words[2] $words[3]"; or set command "{group} {DEFAULT_COMMANDS.get(group, "")}"'
        for group, words in BELOW.items()
    )
    parts = [
        f"""# fish completion of aligntool
{NOTE}
set -g __aligntool_look {fish_quoted(LOOK)}

function __aligntool_is
    set -l words (commandline -opc)
    set -l command "$words[2]"
    switch "$command"
{known}
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
"""
    ]
    lines = [f"-n '__aligntool_words 1' -a {word} -d {fish_quoted(about)}" for word, about in TOP]
    lines += [
        f"-n '__aligntool_words 2 {group}' -a {word} -d {fish_quoted(about)}"
        for group, words in BELOW.items()
        for word, about in words
    ]
    for command in ALL:
        where = f"-n {fish_quoted(f'__aligntool_is {command.name}')}"
        lines += [f"{where} {given}" for given in fish_values(command.arguments)]
        for option in command.options:
            spelt = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            about = f" -d {fish_quoted(option.about)}"
            if option.kind is None:
                lines.append(f"{where} {spelt}{about}")
            elif values := fish_values(option.kind):
                lines += [f"{where} {spelt}{about} -r {given}" for given in values]
            else:
                lines.append(f"{where} {spelt}{about} -x")
    return parts[0] + "".join(f"complete -c aligntool {line}\n" for line in lines)


def fish_values(kind: Kind) -> list[str]:
    """Return what completes a kind, as arguments of `complete`."""
    if not isinstance(kind, str):
        words = " ".join(f"{word}\\t{fish_quoted(text)}" if text else word for word, text in kind)
        return [f"-f -a {fish_quoted(words)}"] if words else []
    return {
        "disks": ["-f -a '(__aligntool_disks)'"],
        "partitions": ["-f -a '(__aligntool_partitions)'"],
        "arrays": ["-f -a '(__aligntool_look aligntool_arrays)'"],
        "files": ["-F"],
        "folders": ["-f -a '(__fish_complete_directories)'"],
        "": [],
    }[kind]


def main() -> None:
    """Write every file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "aligntool" / "cli" / "completions"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("aligntool.bash", bash()), ("aligntool.zsh", zsh()), ("aligntool.fish", fish())):
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
