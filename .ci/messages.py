"""Bring the catalogues of translations up to date: python .ci/messages.py.

Makes every page that is translated, and collects the templates that are looked up for it. Merges these into
po/LANGUAGE.po (gettext's msgmerge), and writes the page of findings in that language,
docs/LANGUAGE/findings.md. Then prints what a translator has to do: templates that are shown in English, and
pages in docs/LANGUAGE that do not correspond to the English page. Neither is an error.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path

from translated_pages import digest_of, followed

from aligntool.audit.report import QUESTIONS, explanations, findings_markdown
from aligntool.cli.app import FIRST_PAGE
from aligntool.render.recipes import TOPIC, explain_lines, explain_topic, list_lines
from aligntool.render.translate import LANGUAGES, translated, use_catalogue

ROOT = Path(__file__).resolve().parent.parent
PO = ROOT / "po"
HEADER = r"""msgid ""
msgstr ""
"Project-Id-Version: aligntool\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"""


class Recorder(NullTranslations):
    """A catalogue without translations that records what is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def gettext(self, message: str) -> str:
        self.found[message] = None
        return message


def pages() -> Iterator[tuple[str, Iterable[object]]]:
    """Yield the name of each page that is translated, and its lines, which are made when they are read."""
    yield "aligntool", (translated(text) for text in (FIRST_PAGE,))
    yield "aligntool explain", list_lines(width=80)
    for code in explanations():
        yield f"aligntool explain {code}", explain_lines(code, width=80)
    yield f"aligntool explain {TOPIC}", explain_topic(width=80)
    yield "docs/findings.md", findings_page()


def messages() -> dict[str, str]:
    """Return every template that is looked up, with the first page that has it."""
    found: dict[str, str] = {}
    for name, lines in pages():
        recorder = Recorder()
        use_catalogue(recorder)
        list(lines)
        for text in recorder.found:
            found.setdefault(text, name)
    return found


def findings_page() -> Iterator[str]:
    """Yield the lines of the page of the findings in the chosen language."""
    yield f"<!-- follows docs/findings.md sha256:{digest_of(findings_markdown())} -->"
    title, *lines = findings_markdown().partition("\n## ")[0].removeprefix("# ").splitlines()
    yield f"# {translated(title)}"
    yield from (line and translated(line) for line in lines)
    known = {code.value: explanation for code, explanation in explanations().items()}
    for level, title in re.findall(r"^(##+) (.*)", findings_markdown(), re.MULTILINE):
        code = title.partition(":")[0]
        yield ""
        if level == "##":
            yield f"## {translated(title)}"
            continue
        yield f"### {code}: {translated(known[code].title)}"
        yield ""
        yield translated(known[code].severity)
        for question, answer in zip(QUESTIONS, known[code].answers, strict=True):
            yield ""
            yield f"**{translated(question)}:** {translated(answer)}"


def entry(text: str, place: str) -> str:
    flag = "#, python-brace-format\n" if re.search(r"\{\w", text) else ""
    return f'\n#. {place}\n{flag}msgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n'


def compiled(po: Path) -> GNUTranslations:
    """Return the translations of a catalogue."""
    done = subprocess.run(["msgfmt", "--check", "-o", "-", po], check=True, capture_output=True)
    return GNUTranslations(BytesIO(done.stdout))


def untranslated(po: Path, templates: Iterable[str]) -> list[str]:
    """Return the templates that are shown in English."""
    use_catalogue(compiled(po))
    return [text for text in templates if translated(text) == text]


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
        if re.findall(pattern, own, re.MULTILINE | re.DOTALL) != re.findall(
            pattern, english, re.MULTILINE | re.DOTALL
        ):
            yield f"the {part} differ"
    ours, theirs = ({*re.findall(r"`[^`\n]+`|AT\d{3}", text)} for text in (own, english))
    if ours != theirs:
        yield f"words of code that only one of the pages has: {', '.join(sorted(ours ^ theirs))}"


def print_remaining(code: str, templates: Iterable[str]) -> None:
    """Print what a translator has to do for a language."""
    missing = untranslated(PO / f"{code}.po", templates)
    print(f"po/{code}.po: {len(missing)} messages without a translation")
    for text in missing:
        print(f"  {text}")
    for page in sorted((ROOT / "docs" / code).glob("*.md")):
        for what in outdated(page, ROOT / "docs") if page.name != "findings.md" else ():
            print(f"docs/{code}/{page.name}: {what}")


def main() -> None:
    found = messages()
    with tempfile.NamedTemporaryFile("w", suffix=".pot") as pot:
        pot.write(HEADER + "".join(entry(text, place) for text, place in found.items()))
        pot.flush()
        for code in LANGUAGES:
            po = PO / f"{code}.po"
            merge = ("msgmerge", "--quiet", "--no-fuzzy-matching", "--no-wrap", "--update", "--backup=none")
            subprocess.run([*merge, po, pot.name], check=True)
            subprocess.run(["msgattrib", "--no-obsolete", "--no-wrap", "-o", po, po], check=True)
            use_catalogue(compiled(po))
            (ROOT / f"docs/{code}/findings.md").write_text("\n".join(findings_page()) + "\n")
            print_remaining(code, found)


if __name__ == "__main__":
    sys.exit(main())
