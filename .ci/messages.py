"""Collect the messages of the program, and bring the catalogues up to date: python .ci/messages.py.

Merges them into po/LANGUAGE.po (gettext's msgmerge), compiles that for the program (msgfmt), and writes the page of
findings in that language, docs/LANGUAGE/findings.md. Then prints what a translator has to do: messages without a
translation, and pages in docs/LANGUAGE that do not correspond to the English page. Neither is an error.

A message is a sentence of the source, with {0}, {1} where an f-string fills something in; a paragraph of a command's
help or of a finding; a text of a recipe; a line of po/words.txt: words that stand alone in tables; or one of
po/typer.txt: the texts of typer and click, from the versions of Debian 12 on, around a command's own.
"""

import ast
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from html import unescape
from importlib import import_module
from pathlib import Path

from jinja2 import Environment
from translated_pages import followed

from aligntool.audit.report import QUESTIONS, explanations, findings_markdown
from aligntool.cli.app import COMMANDS, FIRST_PAGE
from aligntool.render.translate import HOLE, LANGUAGES, read_catalogue

ROOT = Path(__file__).resolve().parent.parent
PO = ROOT / "po"
HEADER = r"""msgid ""
msgstr ""
"Project-Id-Version: aligntool\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"""
RECIPE_TEXTS = ("summary", "note", "defect")
COMMAND = r"(\$ )?(sudo |/|-|(aligntool|mdadm|lsblk|blkid|wipefs|losetup|smartctl|nvme|fio|ln|rm) [-a-z/{])"
"""Command lines, which are not translated."""
ABOUT_COMMAND = (
    r"(, |; |: .* is )(?!\d)|"
    r" (also|are|cannot|changes|excludes|has|is|keeps|lacks|lists|names|or|overwrites|shows|still|then|with) "
)
"""What follows a command, a file or an option where a sentence begins with it."""


def template(node: ast.expr) -> str:
    """Return a string of the source with numbered holes; adjacent replacement fields are one hole."""
    if isinstance(node, ast.Constant):
        return str(node.value).replace("{", "{{").replace("}", "}}")
    text, holes, open_ = "", 0, False
    for part in node.values if isinstance(node, ast.JoinedStr) else ():
        if isinstance(part, ast.Constant):
            text, open_ = text + template(part), False
        elif not open_:
            text, holes, open_ = text + f"{{{holes}}}", holes + 1, True
    return text


def not_messages(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield docstrings, and the constants inside f-strings and format specifications."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield from (part for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.FormattedValue) and node.format_spec:
            yield from ast.walk(node.format_spec)


def counted(node: ast.AST) -> Iterator[str]:
    """Yield the singular and the plural of each noun passed to `counted`; their hole is a number."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "counted":
        for arg in ast.walk(node.args[1]):
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                yield from (f"{{0:d}} {arg.value}", f"{{0:d}} {arg.value}s")


def sentences(text: str) -> Iterator[str]:
    """Yield the lines of a text that are prose: two words, or one beside a hole."""
    for line in text.split("\n"):
        words = re.sub(rf"{HOLE}|\{{\{{|\}}\}}", "", line)
        is_command = re.match(COMMAND, line.strip()) and not re.search(ABOUT_COMMAND, line)
        if " " in line.strip() and re.search(r"[a-z]{2}|[A-Z]{2}", words) and not is_command:
            yield line.strip()


def of_sources() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "aligntool").rglob("*.py")):
        tree = ast.parse(path.read_text())
        skipped = {id(node) for node in not_messages(tree)}
        place = path.relative_to(ROOT).as_posix()
        for node in ast.walk(tree):
            yield from ((place, text) for text in counted(node))
            text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
            if text and id(node) not in skipped:
                yield from ((place, line) for line in sentences(template(node)))  # type: ignore[arg-type]


def of_templates() -> Iterator[tuple[str, str]]:
    """Yield the texts between the tags of HTML templates, in labels, and in strings of expressions."""
    for path in sorted((ROOT / "aligntool").rglob("*.html")):
        page, shown = "", False
        for _, kind, value in Environment().lex(path.read_text()):
            shown = kind == "variable_begin" or (shown and kind != "variable_end")
            if kind == "string":
                yield from ((path.relative_to(ROOT).as_posix(), one) for one in sentences(value[1:-1]))
            elif kind == "name" and not shown and value in ("else", "for", "endfor", "macro"):
                page += "<>"
            page += value if kind == "data" else "\0" * (kind == "variable_begin")
        page = re.sub(r"<(code|style)\b.*?</\1>", "<>", page, flags=re.DOTALL)
        for text in (*re.split(r"<[^>]*>", page), *re.findall(r'aria-label="([^"]*)"', page)):
            first, *rest = re.split("\0+", unescape(" ".join(text.split())))
            line = first + "".join(f"{{{number}}}{part}" for number, part in enumerate(rest))
            if re.search(r"[A-Za-z]{2}", line) and line != "data":  # "data" is also the name of an array
                yield path.relative_to(ROOT).as_posix(), line


def of_help() -> Iterator[tuple[str, str]]:
    for module, function, _ in COMMANDS.values():
        for paragraph in re.split(
            r"\n\s*\n", getattr(import_module(f"aligntool.cli.{module}"), function).__doc__ or ""
        ):
            yield f"aligntool/cli/{module}.py", " ".join(paragraph.split())


def of_data() -> Iterator[tuple[str, str]]:
    before = findings_markdown().partition("### ")[0]
    for line in (*before.splitlines(), *re.findall(r"^## .*", findings_markdown(), re.MULTILINE)):
        yield "aligntool/audit/findings.md", line.lstrip("# ")
    for explanation in explanations().values():
        yield from (("aligntool/audit/findings.md", text) for text in (explanation.title, *explanation.answers))
    for path in sorted((ROOT / "recipes").rglob("*.toml")):
        tables = [tomllib.loads(path.read_text())]
        for table in tables:
            for value in table.values():
                tables += [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
            yield from ((path.relative_to(ROOT).as_posix(), str(table[key])) for key in RECIPE_TEXTS if key in table)
    for name in ("words.txt", "typer.txt"):
        yield from ((f"po/{name}", line) for line in (PO / name).read_text().splitlines())


def messages() -> dict[str, set[str]]:
    """Return every message, with the files that have it."""
    found: dict[str, set[str]] = {FIRST_PAGE: {"aligntool/cli/app.py"}}
    first_page = {line.strip() for line in FIRST_PAGE.split("\n")}
    for place, text in (*of_sources(), *of_templates(), *of_help(), *of_data()):
        if text and text not in first_page:
            found.setdefault(text, set()).add(place)
    return found


def entry(text: str, places: set[str]) -> str:
    flag = "#, python-brace-format\n" if re.search(HOLE, text) else ""
    where = "".join(f"#: {place}\n" for place in sorted(places))
    return f'\n{where}{flag}msgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n'


def findings_page(mo: bytes) -> str:
    """Return the page of the findings in the language of a catalogue."""
    own = read_catalogue(mo).translate
    known = {code.value: explanation for code, explanation in explanations().items()}
    lines = [own(line) for line in findings_markdown().partition("\n## ")[0].removeprefix("# ").splitlines()]
    lines[0] = f"# {lines[0]}"
    for level, title in re.findall(r"^(##+) (.*)", findings_markdown(), re.MULTILINE):
        code = title.partition(":")[0]
        if level == "##":
            lines += ["", f"## {own(title)}"]
            continue
        lines += ["", f"### {code}: {own(known[code].title)}", "", own(known[code].severity)]
        for question, answer in zip(QUESTIONS, known[code].answers, strict=True):
            lines += ["", f"**{own(question)}:** {own(answer)}"]
    return "\n".join(lines) + "\n"


def untranslated(po: Path) -> list[str]:
    """Return the messages of a catalogue that have no translation."""
    done = subprocess.run(["msgattrib", "--untranslated", "--no-wrap", po], check=True, capture_output=True, text=True)
    found = re.findall(r'^msgid ((?:"[^\n]*"\n)+)msgstr ""$', done.stdout, re.MULTILINE)
    texts = ("".join(json.loads(line) for line in lines.splitlines()) for lines in found)
    return [text for text in texts if text]  # the header has the empty message


PARTS = {
    "code": r"^```.*?^```$", "headings": r"^#+ ", "tables": r"^\|(?=[^\n]*\|$)", "lists": r"^\d+\. |^- ",
    "pictures": r"^!\[",
}  # fmt: skip
"""Parts that a translated page has in the same order as the English one."""


def outdated(page: Path, docs: Path) -> Iterator[str]:
    """Yield the differences between a translated page and the English pages in `docs` that it follows."""
    own, english = page.read_text(), ""
    for name, text, is_current, digest in followed(own, docs):
        if not is_current:
            yield f"docs/{name} has changed (git log -p docs/{name}); afterwards write sha256:{digest}"
        english += text if text.startswith("# ") or english else f"# \n{text}"
    for part, pattern in PARTS.items():
        if re.findall(pattern, own, re.MULTILINE | re.DOTALL) != re.findall(pattern, english, re.MULTILINE | re.DOTALL):
            yield f"the {part} differ"
    ours, theirs = ({*re.findall(r"`[^`\n]+`|AT\d{3}", text)} for text in (own, english))
    if ours != theirs:
        yield f"words of code that only one of the pages has: {', '.join(sorted(ours ^ theirs))}"


def print_remaining(code: str) -> None:
    """Print what a translator has to do for a language."""
    missing = untranslated(PO / f"{code}.po")
    print(f"po/{code}.po: {len(missing)} messages without a translation")
    for text in missing:
        print(f"  {text}")
    for page in sorted((ROOT / "docs" / code).glob("*.md")):
        for what in outdated(page, ROOT / "docs") if page.name != "findings.md" else ():
            print(f"docs/{code}/{page.name}: {what}")


def main() -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".pot") as pot:
        pot.write(HEADER + "".join(entry(text, places) for text, places in messages().items()))
        pot.flush()
        for code in LANGUAGES:
            po, mo = PO / f"{code}.po", ROOT / f"aligntool/locale/{code}/LC_MESSAGES/aligntool.mo"
            mo.parent.mkdir(parents=True, exist_ok=True)
            merge = ("msgmerge", "--quiet", "--no-fuzzy-matching", "--no-wrap", "--update", "--backup=none")
            subprocess.run([*merge, po, pot.name], check=True)
            subprocess.run(["msgattrib", "--no-obsolete", "--no-wrap", "-o", po, po], check=True)
            subprocess.run(["msgfmt", "--check", "--endianness=little", "-o", mo, po], check=True)
            page = ROOT / f"docs/{code}/findings.md"
            page.parent.mkdir(exist_ok=True)
            page.write_text(findings_page(mo.read_bytes()))
            print_remaining(code)


if __name__ == "__main__":
    sys.exit(main())
