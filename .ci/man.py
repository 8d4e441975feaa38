"""Write the manual pages from docs/: python .ci/man.py [FOLDER], by default docs/man.

The pages of commands are the sections of docs/cli.md, with the usage lines that `--help` prints; the pages of
formats are sections of the pages that describe them. A test compares docs/man with the output of this
program.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from aligntool import __version__
from aligntool.cli.app import COMMANDS, GROUPS, LateCommand

ROOT = Path(__file__).resolve().parent.parent
MARKDOWN = MarkdownIt("commonmark").enable("table")
FORMATS = {
    "aligntool-plan": ("a saved plan of aligntool", "json.md", ("Plans", "Frozen names")),
    "aligntool-journal": (
        "the journal that aligntool keeps on a disk while partitions move",
        "crash-safety.md",
        ("One transaction", "The journal", "The table of a disk in flight"),
    ),
}
ENDING = (
    "Options of every command",
    "Shell completion",
    "Exit codes",
    "Language",
    "Colour, pipes and fleets",
)


def sections(page: str) -> dict[str, list[Token]]:
    """Return the parsed content of each second-level section of a page by its title; "" is what precedes
    them.
    """
    found: dict[str, list[Token]] = {"": []}
    tokens = MARKDOWN.parse((ROOT / "docs" / page).read_text())
    title = ""
    for index, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            title = tokens[index + 1].content
            found[title] = []
        found[title].append(token)
    return {title: tokens[3:] for title, tokens in found.items()}  # without the heading itself


def escaped(text: str) -> str:
    """Return text that roff prints as it is."""
    text = (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("`", "\\(ga")
        .replace("^", "\\(ha")
    )
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.split("\n"))


def inline(token: Token) -> str:
    """Return a line of text: code in bold, emphasis in italics, a link as its text."""
    fonts = {"strong_open": "\\fB", "em_open": "\\fI", "strong_close": "\\fR", "em_close": "\\fR"}
    parts = []
    for child in token.children or ():
        match child.type:
            case "text":
                parts.append(escaped(child.content))
            case "code_inline":
                parts.append(f"\\fB{escaped(child.content)}\\fR")
            case "softbreak" | "hardbreak":
                parts.append("\n")
            case kind:
                parts.append(fonts.get(kind, ""))
    return "".join(parts)


def roff(tokens: list[Token]) -> Iterator[str]:
    """Yield the lines of a section."""
    at = depth = 0
    while at < len(tokens):
        token = tokens[at]
        end = at + 1
        if token.type == "heading_open":
            end = at + 3
            yield f'.SS "{inline(tokens[at + 1])}"'
        elif token.type == "table_open":
            end = next(index for index in range(at, len(tokens)) if tokens[index].type == "table_close")
            yield from table(tokens[at:end])
        elif token.type == "fence":
            yield from (".PP", ".RS 4", ".nf", escaped(token.content.rstrip("\n")), ".fi", ".RE")
        elif token.type == "inline":
            yield inline(token)
        elif token.type == "paragraph_open":
            yield "" if token.hidden or tokens[at - 1].type == "list_item_open" else ".PP"
        else:
            depth += token.nesting if token.type.endswith(("_list_open", "_list_close")) else 0
            yield from listed(token, depth)
        at = end


def listed(token: Token, depth: int) -> Iterator[str]:
    """Yield the request that begins an item, or that indents or ends a nested list."""
    if token.type == "list_item_open":
        yield f".IP {token.info}. 4" if token.info else ".IP \\(bu 2"
    elif token.type.endswith("_list_open") and depth > 1:
        yield ".RS"
    elif token.type.endswith("_list_close") and depth:
        yield ".RE"


def table(tokens: list[Token]) -> Iterator[str]:
    """Yield a table as tagged paragraphs: the first column is the tag."""
    row: list[str] = []
    in_body = False
    for token in tokens:
        if token.type == "inline":
            row.append(inline(token))
        elif token.type == "thead_close":
            in_body = True
            yield ".SS Options" if row[0] == "option" else ""
        elif token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and in_body:
            yield from (".TP", row[0], "\n.br\n".join(cell for cell in row[1:] if cell) or "\\&")


def described(tokens: list[Token]) -> Iterator[str]:
    """Yield the lines of the section of a command, which begins with its examples: they come last."""
    first = next((index for index, token in enumerate(tokens) if token.type != "fence"), len(tokens))
    own = next((index for index, token in enumerate(tokens) if token.type == "heading_open"), len(tokens))
    yield from roff(tokens[first:own])
    if first:
        yield ".SS Examples"
        yield from roff(tokens[:first])
    yield from roff(tokens[own:])


def head(name: str, section: int, short: str) -> Iterator[str]:
    """Yield the title line and NAME."""
    yield f'.TH {name.upper().replace("-", chr(92) + "-")} {section} "" "aligntool {__version__}" "aligntool"'
    yield from (".SH NAME", f"{escaped(name)} \\- {escaped(short)}")


def usage(words: str) -> Iterator[str]:
    """Yield the usage line of a command."""
    command = LateCommand(words.rpartition(" ")[2], *COMMANDS[words]).load()
    context = command.make_context(f"aligntool {words}", [], resilient_parsing=True)
    yield from (
        ".PP",
        f"\\fBaligntool {escaped(words)}\\fR {escaped(' '.join(command.collect_usage_pieces(context)))}",
    )


def short_of(word: str) -> str:
    """Return the short help of a command or a group, in lower case and without a full stop, as whatis(1)
    shows it.
    """
    text = COMMANDS[word][2] if word in COMMANDS else GROUPS[word][0].split("\n")[0]
    return (text[0].lower() + text[1:]).rstrip(".")


def command_page(word: str, documented: dict[str, list[Token]]) -> Iterator[str]:
    """Yield the page of a command, or of a group with all its commands."""
    yield from head(f"aligntool-{word}", 1, short_of(word))
    yield ".SH SYNOPSIS"
    for each in COMMANDS:
        if each.split(" ")[0] == word:
            yield from usage(each)
    for title, tokens in documented.items():
        if title.split(" ")[:2] == ["aligntool", word]:
            yield ".SH DESCRIPTION" if title == f"aligntool {word}" else f'.SH "{escaped(title.upper())}"'
            yield from described(tokens)
    yield from see_also(("aligntool", 1))


def main_page(documented: dict[str, list[Token]]) -> Iterator[str]:
    """Yield aligntool(1)."""
    yield from head(
        "aligntool", 1, "audit disks for misaligned partitions, realign them in place, build NVMe RAID"
    )
    yield from (".SH SYNOPSIS", "\\fBaligntool\\fR COMMAND [OPTIONS] [ARGS]...", ".SH DESCRIPTION")
    yield from roff(documented[""])
    for title in ENDING:
        yield f'.SH "{escaped(title.upper())}"'
        yield from roff(documented[title])
    words = sorted({name.split(" ")[0] for name in COMMANDS})
    yield from see_also(
        *((f"aligntool-{word}", 1) for word in words), *((name, 5) for name in sorted(FORMATS))
    )


def format_page(name: str) -> Iterator[str]:
    """Yield the page of a format."""
    short, page, titles = FORMATS[name]
    yield from head(name, 5, short)
    documented = sections(page)
    for title in titles:
        yield f'.SH "{"DESCRIPTION" if title == titles[0] else escaped(title.upper())}"'
        yield from roff(documented[title])
    yield from see_also(("aligntool", 1))


def see_also(*pages: tuple[str, int]) -> Iterator[str]:
    """Yield the last section."""
    yield from (".SH SEE ALSO", ",\n".join(f"\\fB{escaped(name)}\\fR({section})" for name, section in pages))


def pages() -> dict[str, str]:
    """Return every page by its file name."""
    documented = sections("cli.md")
    made = {"aligntool.1": main_page(documented)}
    made |= {
        f"aligntool-{word}.1": command_page(word, documented)
        for word in {name.split(" ")[0] for name in COMMANDS}
    }
    made |= {f"{name}.5": format_page(name) for name in FORMATS}
    return {name: re.sub(r"\n{2,}", "\n", "\n".join(lines)) + "\n" for name, lines in made.items()}


def main() -> None:
    """Write every page."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "man"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        place = folder / f"man{name[-1]}" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)


if __name__ == "__main__":
    main()
