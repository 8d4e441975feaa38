"""The documentation matches the program: commands, options, findings, exit codes, metrics, fields."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aligntool.audit.report import QUESTIONS, Code, explanations, findings_markdown
from aligntool.cli.app import COMMANDS as TABLE
from aligntool.errors import ExitCode
from aligntool.render.prometheus import METRICS
from aligntool.render.recipes import glossary, glossary_markdown, refusals, refusals_markdown, term_key
from tests.commands import whole_program
from tests.thorough import when_thorough

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Return every command as typed: "audit", and of groups "plan" and "plan realign"."""
    for name, command in group.commands.items():
        yield before + name, command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")


COMMANDS = dict(_commands(whole_program()))
EVERYWHERE = ("help", "color", "no_pager", "unconfined")


def section(page: str, title: str) -> str:
    """Return the text of one `## title` of a page; for a command of a group, the group's section if it has none."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None and title.count(" ") > 1:
        return section(page, title.rpartition(" ")[0])
    assert found, f"docs/cli.md has no section {title!r}"
    return found[1]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_of_every_command_is_documented(name: str) -> None:
    text = section((DOCS / "cli.md").read_text(), f"aligntool {name}")
    for parameter in COMMANDS[name].params:
        if parameter.name in EVERYWHERE:
            continue
        words = parameter.opts if parameter.param_type_name == "option" else [name.split()[-1]]
        for word in [*words, *parameter.secondary_opts]:
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text), f"{word} of {name} is not in docs/cli.md"


def test_the_options_of_every_command_are_documented_once() -> None:
    text = section((DOCS / "cli.md").read_text(), "Options of every command")
    shared = [parameter for parameter in COMMANDS["audit"].params if parameter.name in EVERYWHERE]
    assert [f"| `{parameter.opts[0]}" in text for parameter in shared] == [True] * (len(EVERYWHERE) - 1)
    for name, command in COMMANDS.items():
        if not hasattr(command, "commands"):
            assert {"color", "no_pager", "unconfined"} <= {parameter.name for parameter in command.params}, name


@pytest.mark.parametrize("columns", [60, 120])
@pytest.mark.parametrize("words", ["realign", "raid create", "plan", ""])
def test_help_cuts_no_option_and_no_command(words: str, columns: int) -> None:
    run = [sys.executable, "-m", "aligntool", *words.split(), "--help"]
    text = subprocess.run(
        run, env={**os.environ, "COLUMNS": str(columns)}, capture_output=True, text=True, check=True
    ).stdout
    command = COMMANDS[words] if words else whole_program()
    for parameter in command.params:
        assert parameter.param_type_name != "option" or parameter.opts[0] in text
    for name in getattr(command, "commands", ()):
        assert re.search(rf"^  {name} ", text, re.MULTILINE)
    assert not re.search(r"[a-z]\.\.\.|…", text)
    assert max(map(len, text.splitlines())) <= columns


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_documented_option_exists(name: str) -> None:
    text = section((DOCS / "cli.md").read_text(), f"aligntool {name}")
    below = [command for other, command in COMMANDS.items() if f"{other} ".startswith(f"{name} ")]
    real = {word for command in below for parameter in command.params for word in parameter.opts}
    rows = re.findall(r"^\| (`-.*?) \|", text, re.MULTILINE)
    for word in re.findall(r"(?<!\w)(--?[a-z][a-z-]*)", " ".join(rows)):
        assert word in real, f"docs/cli.md names {word}, which {name} does not have"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_help_text_with_an_example_and_every_option_one(name: str) -> None:
    command = COMMANDS[name]
    assert f"Example: aligntool {name}" in command.help or f"Example: sudo aligntool {name}" in command.help
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} of {name} has no help"


def test_the_help_of_a_group_is_the_first_line_of_each_command() -> None:
    """The command table has the line for a list that loads no command."""
    loaded = {name: command.help for name, command in COMMANDS.items() if not hasattr(command, "commands")}
    assert {name: text.split("\n")[0] for name, text in loaded.items()} == {name: row[2] for name, row in TABLE.items()}


def test_every_finding_code_has_an_explanation_and_every_explanation_a_code() -> None:
    page = findings_markdown()
    assert re.findall(r"^### (\w+)", page, re.MULTILINE) == [code.value for code in Code]
    assert list(explanations()) == list(Code), "a section lacks one of the parts that every section has"
    for code, text in explanations().items():
        assert len(text.answers) == len(QUESTIONS), code
        assert not any("**" in answer or "# " in answer for answer in text.answers), code


@when_thorough("`make man` writes it")
def test_the_page_of_findings_is_current() -> None:
    written = (DOCS / "findings.md").read_text()
    assert written == findings_markdown(), "run: aligntool explain --markdown > docs/findings.md"


def test_the_page_of_the_glossary_is_that_of_the_program() -> None:
    assert (DOCS / "glossary.md").read_text() == glossary_markdown(), "run: cp aligntool/render/glossary.md docs/"
    bold = [
        term for line in re.findall(r"^\*\*(.+)\*\*", glossary_markdown(), re.MULTILINE) for term in line.split(", ")
    ]
    assert len(bold) > 60 and all(term_key(term) in glossary() for term in bold)


def test_the_page_of_refusals_is_that_of_the_program() -> None:
    assert (DOCS / "refusals.md").read_text() == refusals_markdown(), "run: cp aligntool/render/refusals.md docs/"
    documented = re.findall(r"^\| `([a-z0-9-]+)` \|", refusals_markdown(), re.MULTILINE)
    assert list(refusals()) == documented


def test_every_finding_code_is_used_by_a_rule() -> None:
    rules = "\n".join(path.read_text() for path in (ROOT / "aligntool" / "audit").glob("*.py"))
    for code in Code:
        assert f"Code.{code.name}" in rules, f"{code} is documented, and no rule gives it"


def test_every_exit_code_is_documented_with_its_meaning() -> None:
    text = section((DOCS / "cli.md").read_text(), "Exit codes")
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == [
        int(code) for code in ExitCode
    ]


def test_the_codes_of_refusals_are_documented_and_no_others() -> None:
    code = "\n".join(file.read_text() for file in (ROOT / "aligntool").rglob("*.py"))
    used = re.findall(r"""\bRefusal\(\s*"([a-z0-9-]+)",|\bcode(?:: str)? ?= ?"([a-z-]+)"[,)]""", code)
    made = len(re.findall(r"\bRefusal\((?!code)", code))
    assert made == sum(bool(first) for first, _ in used), "the code of a refusal is a word at its place"
    documented = re.findall(r"^\| `([a-z0-9-]+)` \|", (DOCS / "refusals.md").read_text(), re.MULTILINE)
    assert documented == sorted({first or second for first, second in used})


def test_every_metric_is_documented() -> None:
    text = (DOCS / "monitoring.md").read_text()
    assert set(re.findall(r"^\| `(aligntool_\w+)`", text, re.MULTILINE)) == set(METRICS)


def test_the_json_page_names_every_part_of_the_document() -> None:
    page = (DOCS / "json.md").read_text()
    schema = json.loads((ROOT / "aligntool" / "schemas" / "audit.json").read_text())
    for name in schema["properties"]:
        assert f"`{name}" in page or name == "aligntool", f"docs/json.md does not mention {name}"


def test_every_schema_of_a_document_is_named_on_the_json_page() -> None:
    page = (DOCS / "json.md").read_text()
    sources = "\n".join(path.read_text() for path in (ROOT / "aligntool").rglob("*.py"))
    names = set(re.findall(r'(?:"schema": |SCHEMA = |document_text\()"(aligntool\.[\w.-]+)"', sources))
    assert len(names) > 8
    assert sorted(name for name in names if f"`{name}`" not in page and f'`"{name}"`' not in page) == []


def test_links_between_pages_have_existing_targets() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md"), *ROOT.glob("[cr]*/README.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"


@pytest.mark.parametrize("folder", ["", "decisions", "ja"])
def test_every_page_is_in_the_list_of_its_folder(folder: str) -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)[)#]", (DOCS / folder / "README.md").read_text())
    assert {page.name for page in (DOCS / folder).glob("*.md")} - set(listed) == {"README.md"}


# The manual pages, which `make man` generates from the pages in docs/, also for each package.


@when_thorough("packages are made with new ones")
def test_the_manual_pages_are_those_of_docs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / ".ci" / "man.py", tmp_path], check=True, cwd=ROOT)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.[15]")}
    kept = {path.relative_to(DOCS / "man"): path.read_text() for path in (DOCS / "man").rglob("*") if path.is_file()}
    assert made == kept, "type: make man"


@when_thorough("packages are made with new ones")
def test_the_completion_files_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / ".ci" / "completion.py", tmp_path], check=True, cwd=ROOT)
    kept = ROOT / "aligntool" / "cli" / "completions"
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in kept.iterdir()}, "type: make man"


@pytest.mark.needs_tools("man")
@pytest.mark.parametrize("page", sorted((DOCS / "man").rglob("*.[15]")), ids=lambda page: page.name)
def test_man_shows_a_page_without_a_warning_and_with_all_its_options(page: Path) -> None:
    done = subprocess.run(
        ["man", "--warnings=w", "-E", "UTF-8", "-l", page],
        capture_output=True, text=True, check=False, env=os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"[\u2010\u2212]\n\s*", "", done.stdout)  # hyphenated words
    assert "NAME" in shown
    word = page.stem.removeprefix("aligntool").removeprefix("-")
    if page.suffix == ".1" and word:
        own = [command for name, command in COMMANDS.items() if name.split(" ")[0] == word]
        own_options = [each for command in own for each in command.params if each.name not in EVERYWHERE]
        options = {text for each in own_options for text in each.opts if text.startswith("--")}
        # Options that a page does not list are in docs/cli.md: those of every command.
        listed = set(re.findall(r"--[a-z][a-z-]*", shown))
        assert options <= listed
