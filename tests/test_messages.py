"""The translated messages: complete, and of the same program.

The messages come from the source itself (.ci/messages.py), the checks of the catalogue from gettext.
"""

import ast
import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path

import click
import pytest
import typer

from aligntool.audit.report import Code
from aligntool.cli.app import COMMANDS
from aligntool.render.lines import cell_width, columns, wrapped
from aligntool.render.translate import Catalogue, language, read_catalogue
from tests.conftest import run
from tests.run_aligntool import run_aligntool
from tests.test_docs import section
from tests.thorough import when_thorough

ROOT = Path(__file__).parent.parent
PO, MO = ROOT / "po" / "ja.po", ROOT / "aligntool/locale/ja/LC_MESSAGES/aligntool.mo"
JA = {"LC_ALL": "ja_JP.UTF-8"}
MOST_CELLS = 80

pytestmark = pytest.mark.needs_tools("msgfmt")


@pytest.fixture(scope="module")
def old_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a disk of 2005, like `aligntool demo`."""
    disk = tmp_path_factory.mktemp("messages") / "old.img"
    run_aligntool("demo", disk, code=0)
    return disk


# The catalogue


def test_every_message_of_the_program_is_in_the_catalogue_and_has_a_translation() -> None:
    """`python .ci/messages.py` adds new messages to po/ja.po; then they need a msgstr."""
    code = "import json, messages; print(json.dumps([*messages.messages()]))"
    found = run(sys.executable, "-B", "-c", f"import sys; sys.path.insert(0, {str(ROOT / '.ci')!r}); {code}")
    wanted = set(json.loads(found))
    assert len(wanted) > 3000
    read = _entries()
    assert not sorted(wanted - read.keys())
    assert not sorted(read.keys() - wanted)
    assert not sorted(english for english, own in read.items() if not own)


def test_the_japanese_page_of_findings_is_generated_from_the_catalogue() -> None:
    code = f"import messages, pathlib; print(messages.findings_page(pathlib.Path({str(MO)!r}).read_bytes()), end='')"
    made = run(sys.executable, "-B", "-c", f"import sys; sys.path.insert(0, {str(ROOT / '.ci')!r}); {code}")
    assert made == (ROOT / "docs" / "ja" / "findings.md").read_text()
    assert len(re.findall(r"^### AT", made, re.MULTILINE)) == len(Code)


PAGES = [page for page in sorted((ROOT / "docs" / "ja").glob("*.md")) if page.name != "findings.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_japanese_page_corresponds_to_the_current_english_page(page: Path) -> None:
    """Its first lines name the page, or some sections of it, with the SHA-256 of their words."""
    own, english = page.read_text(), ""
    followed = r"^<!-- follows docs/(\S+)(?: \((.*)\))? sha256:(\S+) -->$"
    for name, sections, digest in re.findall(followed, own, re.MULTILINE):
        text = (ROOT / "docs" / name).read_text()
        if sections:
            text = "".join(f"## {title}\n{section(text, title)}" for title in sections.split(", "))
        now = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
        assert digest == now, (
            f"docs/{name} has changed: translate what is new (git log -p docs/{name}) in docs/ja/{page.name}, "
            f"then write sha256:{now} there"
        )
        english += text if not sections or english else f"# \n{text}"
    for part in (r"^```.*?^```$", r"^#+ ", r"^\|(?=[^\n]*\|$)", r"^\d+\. |^- ", r"^!\["):  # each in the same order
        assert re.findall(part, own, re.MULTILINE | re.DOTALL) == re.findall(part, english, re.MULTILINE | re.DOTALL)
    words = [set(re.findall(r"`[^`\n]+`|AT\d{3}", text)) for text in (english, own)]
    assert words[0] == words[1]  # commands, options, names


def _entries() -> dict[str, str]:
    text = PO.read_text()
    found = re.findall(r'^msgid ((?:"[^\n]*"\n)+)msgstr ((?:"[^\n]*"\n)+)', f"{text}\n", re.MULTILINE)
    read = {_joined(english): _joined(own) for english, own in found}
    read.pop("")
    return read


def _joined(lines: str) -> str:
    return "".join(json.loads(line) for line in lines.splitlines())


def test_the_catalogue_passes_msgfmt_and_is_the_compiled_one_of_the_program(tmp_path: Path) -> None:
    made = tmp_path / "aligntool.mo"
    done = subprocess.run(
        ["msgfmt", "--check", "--endianness=little", "-o", made, PO], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert made.read_bytes() == MO.read_bytes()


# The function that prints translated text

CATALOGUE = Catalogue(
    {
        "{0} starts at {1}, {2}": "{0}は{1}から始まる、{2}",
        "{0} past a boundary of {1}": "{1}の境界から{0}後ろ",
        "partition {0}": "パーティション{0}",
        "sector {0}": "セクタ{0}",
        "{0:d} errors": "エラー{0:d}件",
        "{0:d} warnings": "警告{0:d}件",
        "; and {0} more": "; ほか{0}件",
        'label "{0}"': 'ラベル"{0}"',
        "assumed": "仮定",
        "name: {0}": "名前: {0}",
    }
)


@pytest.mark.parametrize(
    ("english", "own"),
    [
        ("partition 1 starts at sector 63, 512B past a boundary of 4KiB",
         "パーティション1はセクタ63から始まる、4KiBの境界から512B後ろ"),
        ("  - partition 1 starts at sector 63, somewhere", "  - パーティション1はセクタ63から始まる、somewhere"),
        ("3 errors, 10 warnings", "エラー3件、警告10件"),
        ("AT101 errors", "AT101 errors"),  # one has to be a number
        ("3 errors; and 2 more", "エラー3件; ほか2件"),
        ("4KiB (assumed)", "4KiB (仮定)"),
        ('label "assumed"', 'ラベル"assumed"'),  # text in quotes belongs to the user
        ("name: {0}", "名前: {0}"),
        ("name: {braces} {{", "名前: {braces} {{"),
        ("$ aligntool assumed", "$ aligntool assumed"),
        ("sudo aligntool resume sector 1", "sudo aligntool resume sector 1"),
        ("", ""),
        ("no such sentence", "no such sentence"),
        ("assumed" * 1000, "assumed" * 1000),
    ],
)  # fmt: skip
def test_a_text_is_translated_part_by_part(english: str, own: str) -> None:
    assert CATALOGUE.translate(english) == own


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"LANG": "ja_JP.UTF-8"}, "ja"),
        ({"LANG": "ja_JP.UTF-8", "LC_ALL": "C.UTF-8"}, None),
        ({"LANG": "ja_JP.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, None),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "fr:ja"}, "ja"),
        ({"LANG": "ja_JP.UTF-8", "LANGUAGE": "en:ja"}, None),
        ({"LANG": "C", "LANGUAGE": "ja"}, None),  # as in gettext, the C locale has no translations
        ({"LC_ALL": "", "LANG": "ja"}, "ja"),
        ({}, None),
    ],
)
def test_the_language_is_chosen_as_gettext_does(environment: dict[str, str], wanted: str | None) -> None:
    assert language(environment) == wanted


def test_wide_characters_are_counted_by_their_cells_in_lines_and_columns() -> None:
    text = "  - パーティション1はセクタ63から始まる(物理セクタ)。GRUBはそのまま残る、これは長い文である。"
    lines = list(wrapped(text, 30, "    "))
    assert len(lines) > 2 and "".join(line.strip() for line in lines).replace(" ", "") == text.replace(" ", "")
    assert max(map(cell_width, lines)) <= 31  # a full stop may exceed the width by one
    assert not any(line.strip()[0] in "、。)" or line.endswith("(") for line in lines)
    assert {cell_width(row) for row in columns([("開始", "63"), ("a", "2048")])} == {10}


# The program in Japanese


def test_an_audit_and_a_plan_are_completely_translated_and_fit_into_80_cells(old_disk: Path) -> None:
    for words in (("audit", "-v", "--map", old_disk.name), ("realign", "--dry-run", old_disk.name)):
        done = run_aligntool(*words, env=JA, cwd=old_disk.parent)
        assert not list(_english(done.stdout))
        assert max(map(cell_width, done.stdout.splitlines())) <= MOST_CELLS


@when_thorough("every output of a captured machine")
def test_a_captured_machine_with_every_kind_of_layer_is_completely_translated() -> None:
    capture = ROOT / "tests" / "machines" / "md-on-misaligned-partitions.tar.xz"
    said = run_aligntool("audit", "-v", "--sysroot", capture, env=JA | {"COLUMNS": "80"}).stdout
    assert "has no bitmap" in run_aligntool("audit", "-v", "--sysroot", capture, env={"COLUMNS": "200"}).stdout
    assert len(said.splitlines()) > 300 and "ビットマップがない" in said
    assert not [
        line
        for line in said.splitlines()
        if re.search(r"[a-z]{3,} [a-z]{3,}", line) and not re.search("→|scsi_debug", line)
    ]


NAMES = re.compile(
    r"\$ .*|→ .*|aligntool( [a-z]+)?|\"[^\"]*\"|\S*[/._?=]\S*|hidden sectors|"
    r"(dos|gpt|ntfs|vfat|ext3|swap|bootrec|bcdboot|dumpe2fs|partclone|root|info|old|img|AT)"
)


def _english(text: str) -> Iterator[str]:
    """Yield the lines with lower-case words that are not names, commands or labels."""
    for line in text.splitlines():
        if re.search(r"(?<![\dA-Za-z])[a-z]{3,}", NAMES.sub("", line)):
            yield line


@pytest.mark.parametrize("name", [*COMMANDS])
def test_the_help_of_every_command_is_translated_completely(name: str) -> None:
    done = run_aligntool(*name.split(), "--help", env=JA | {"COLUMNS": "80"}, code=0)
    assert COMMANDS[name][2] not in done.stdout  # its first line
    assert "…" not in done.stdout
    assert not re.findall(r"Usage:|\[OPTIONS\]|COMMAND|Arguments|Options|Commands|required|default|Show", done.stdout)
    assert not re.findall(
        r"(?m)[ぁ-ん] (?=[ぁ-ん]+。)|│ +[。、)]", done.stdout
    )  # no space within a word, no line of a dot
    assert max(map(cell_width, done.stdout.splitlines())) <= MOST_CELLS


def test_the_help_of_the_program_and_of_groups_is_translated() -> None:
    for words in ((), ("--help",), ("raid",), ("plan", "--help")):
        said = run_aligntool(*words, env=JA | {"COLUMNS": "80"}).stdout
        assert not re.findall(r"Usage:|\[OPTIONS\]|COMMAND \[|Options|Commands|Show|Print|Plan|…", said)
        assert "オプション" in said and max(map(cell_width, said.splitlines())) <= MOST_CELLS


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("audit --bogus", "オプション--bogusはない"),
        ("audit --chek", "--help"),
        ("audi", "コマンド'audi'はない。'audit'のことか。"),
        ("raid bogus", "コマンド'bogus'はない。"),
        ("layout", "引数'DISK'がない。"),
        ("resume a b c", "余分な引数がある(b c)"),
        ("raid create --level", "オプション'--level'には値が必要である。"),
        ("status --json=1", "オプション'--json'に値は付かない。"),
        ("fleet --fail-on x y", "'--fail-on'の値が正しくない: 'x'は'error', 'warning', 'never'のどれでもな"),
        ("report", "値が正しくない: ページのファイルの指定がない"),
        ("plan realign --layers --shrink x", "値が正しくない: --layersは何も移動しない"),
    ],
)
def test_a_usage_error_is_translated_and_has_the_same_exit_code(words: str, own: str) -> None:
    done = run_aligntool(*words.split(), env=JA | {"COLUMNS": "80"}, code=2)
    english = run_aligntool(*words.split(), env={"LC_ALL": "C.UTF-8", "COLUMNS": "80"}, code=2)
    assert own in done.stderr and "─ エラー ─" in done.stderr and "─ Error ─" in english.stderr
    assert not re.findall(r"(?m)(?<!')\b(?:[A-Z][a-z]+|is|of|for|not|takes?|value|the)\b", done.stderr)
    assert done.stdout == english.stdout == ""
    assert max(map(cell_width, done.stderr.splitlines())) <= MOST_CELLS


# Texts of typer and click in the installed versions: typer may bring its own click, without gettext.
PACKAGES = [Path(click.__file__).parent, Path(typer.__file__).parent, Path(typer.__file__).parent / "_click"]
SHOWN = r"_|ngettext|fail|BadParameter|BadOptionUsage|BadArgumentUsage|UsageError"
NEVER_SHOWN = (
    r"(Type|Value|Runtime|Attribute)Error|__repr__|"  # errors of a program
    r"show|get_help_(record|extra)|_?(typer_)?format_(options|commands|help_text)|_?get_default_string|"  # without rich
    r".*File|FileError|Path|DateTime|UUIDParameterType"  # kinds of parameters that aligntool does not use
)
UNSEEN = {
    "(deprecated) ", "(Deprecated) {text}", "deprecated", "[env var: {}]", "Positional arguments",
    "DeprecationWarning: The command {name!r} is deprecated.{extra_message}",
    "DeprecationWarning: The {param_type} {name!r} is deprecated.{extra_message}",
    "{value!r} is not {choice}.", "Missing {param_type}", "Missing {x}",
    "Option {x} requires {x}",  # which is "Option {x} requires an argument.": see the usage errors above
}  # fmt: skip
"""No command is deprecated, has a choice of one or an environment variable."""


def _texts_of_typer(tree: ast.AST) -> Iterator[str]:
    """Yield texts for gettext, and those in calls that report a usage error."""
    for node in ast.iter_child_nodes(tree):
        called = getattr(node, "func", node)
        name = getattr(called, "id", getattr(called, "attr", getattr(called, "name", "")))
        if re.fullmatch(NEVER_SHOWN, name or ""):
            continue
        if isinstance(node, ast.Call) and re.fullmatch(SHOWN, name):
            yield from (_english_of(part) for arg in node.args for part in _strings(arg))
        elif name == "format_message":
            yield from map(_english_of, _strings(node))
        yield from _texts_of_typer(node)


def _strings(tree: ast.AST) -> Iterator[ast.expr]:
    if isinstance(tree, ast.JoinedStr) or (isinstance(tree, ast.Constant) and isinstance(tree.value, str)):
        yield tree
    elif not (isinstance(tree, ast.Compare) or getattr(getattr(tree, "func", None), "attr", "") == "join"):
        for node in ast.iter_child_nodes(tree):
            yield from _strings(node)


def _english_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{x}" for part in node.values)


@pytest.mark.parametrize("package", [each for each in PACKAGES if each.is_dir()], ids=lambda path: path.name)
def test_every_text_of_typer_and_click_that_a_user_can_see_is_translated(package: Path) -> None:
    """A new version may have new ones: add them to po/typer.txt, then `make messages`."""
    names = ("core", "exceptions", "parser", "types", "_types", "rich_utils")
    trees = [ast.parse(path.read_text()) for name in names if (path := package / f"{name}.py").is_file()]
    found = {text for tree in trees for text in _texts_of_typer(tree)} - UNSEEN
    assert len(found) > 8
    known, own = _entries(), read_catalogue(MO.read_bytes()).translate
    before = {"(": "No such option: '--1' "}  # text in parentheses follows other text
    said = {
        text: known.get(text) or own(before.get(text[:1], "") + re.sub(r"\{\w[^}]*\}", "'1'", text)) for text in found
    }
    assert not {text: own for text, own in said.items() if re.search(r"[A-Za-z]{3}", re.sub(r"\[.*\]|\{.*\}", "", own))}


def test_machine_readable_output_is_the_same_in_every_language(old_disk: Path) -> None:
    cases: list[tuple[str | Path, ...]] = [
        ("audit", "--json", old_disk), ("audit", "--format", "prometheus", old_disk), ("audit", "-q", "/nonexistent"),
        ("plan", "realign", "--json", old_disk), ("realign", "--json", "--dry-run", old_disk),
        ("recipes", "list", "--json"), ("schema", "audit"), ("resume", "--json", "--yes", old_disk),
        ("audit", "--bogus"),
    ]  # fmt: skip
    for words in cases:
        english, own = run_aligntool(*words), run_aligntool(*words, env=JA)
        assert english.returncode == own.returncode
        assert _without_time(english.stdout) == _without_time(own.stdout)


def _without_time(text: str) -> str:
    return re.sub(r'"date": "[^"]*"|"[a-z_]*(id|uuid|guid|created|time)": "[^"]*"|\d+(\.\d+)?(e[+-]?\d+)?$', "",
                  text, flags=re.MULTILINE)  # fmt: skip


TEXTS = re.compile(r"<(?:code|style)\b.*?</(?:code|style)>|<[^>]*>", re.DOTALL)
CAPTURES = [ROOT / "tests" / "machines" / f"{name}.tar.xz" for name in ("nvme-behind-switch", "sata-usb-and-sd-card")]


def _page(*words: str | Path, env: Mapping[str, str], cwd: Path) -> tuple[str, Counter[str], list[str]]:
    """Return a page as text, without the numbers in pictures and without tags."""
    page = run_aligntool(*words, "-o", "-", env=env, cwd=cwd, code=0).stdout
    outside = re.sub(r"<svg.*?</svg>|\d\d:\d\d UTC", "", page, flags=re.DOTALL)
    tags = [re.sub(r' aria-label="[^"]*"| lang="\w+"', "", tag) for tag in TEXTS.findall(outside)]
    return page, Counter(re.findall(r"\d[\d,.]*\d", unescape(TEXTS.sub(" ", outside)))), tags


@when_thorough("two reports")
def test_a_page_is_translated_and_has_the_same_parts_and_numbers(old_disk: Path) -> None:
    bench = (word for kind in ("-alignment", "-span", "")
             for word in ("--bench", ROOT / "tests" / "golden" / "v1" / f"bench{kind}.json"))  # fmt: skip
    cases: list[tuple[str | Path, ...]] = [
        ("report", old_disk.name), ("report", "--sysroot", CAPTURES[0], *bench),
        ("fleet", "--fail-on", "never", *CAPTURES),
    ]  # fmt: skip
    for words in cases:
        _, english, parts = _page(*words, env={"LC_ALL": "C.UTF-8"}, cwd=old_disk.parent)
        page, own, own_parts = _page(*words, env=JA, cwd=old_disk.parent)
        assert page.startswith('<!DOCTYPE html>\n<html lang="ja">') and own_parts == parts
        assert not english - own
        assert all(text.isascii() for text in re.findall(r"<code>([^<]*)</code>", page))  # what is typed
        texts = [unescape(text).strip() for text in (*TEXTS.split(page), *re.findall(r'aria-label="([^"]*)"', page))]
        left = [text for text in texts if re.search(r"[a-z]{3,} [a-z]{3,}", MADE_UP.sub("", NAMES.sub("", text)))]
        assert not left
        alone = {word for text in texts for word in re.findall(r"(?<![\w-])[a-z]{4,}\b", text)}
        assert not alone & {"page", "partition", "disks", "findings", "starts", "size", "range", "error", "halves"}


# Names: of commands, of devices, and those that are made up for the results.
MADE_UP = re.compile(r"bench [a-z]+|(QEMU|Virtio|PCI|XIO3130|MegaRAID|ICH9R).*|a test|A processor")


@when_thorough("every picture")
def test_a_picture_is_translated_and_a_long_title_fits_into_it(old_disk: Path) -> None:
    done = run_aligntool(
        "report", old_disk.name, "--chart", "start-old-img-1", "--svg", "-", env=JA, cwd=old_disk.parent, code=0
    )
    lines = re.findall(r'<text x="14"[^>]*>([^<]*)</text>', done.stdout)
    assert "パーティション1の開始位置" in lines[0] and len(lines) > 2
    assert max(map(cell_width, lines)) * 0.58 * 11.5 <= 460


def test_errors_and_hints_are_translated_and_commands_are_not(old_disk: Path) -> None:
    done = run_aligntool("resume", old_disk, "--yes", env=JA, code=3)
    assert "途中の移動はない" in done.stderr and "aligntool" in done.stderr
    asked = run_aligntool("realign", old_disk, env=JA, code=3)
    assert "何も書き込んでいない" in asked.stderr and "--yes" in asked.stderr


def test_a_sentence_that_begins_with_a_command_is_translated() -> None:
    for words, own in (
        ("audit /nowhere", "このマシンのディスクの一覧: aligntool audit"),
        ("drives none", "すべての行の一覧"),
    ):
        assert own in run_aligntool(*words.split(), env=JA, code=3).stderr


def test_the_catalogue_has_no_word_that_could_be_the_name_of_a_disk() -> None:
    """A question contains the name of the disk in a translated sentence; the name itself must not change."""
    words = (ROOT / "po" / "words.txt").read_text().splitlines()
    assert not [word for word in words if re.fullmatch(r"(sd|vd|nvme|md|mmcblk|loop)[a-z0-9]+|data|disk\.img", word)]


def test_no_name_stops_the_translation() -> None:
    catalogue = read_catalogue(MO.read_bytes())
    for name in ("{0}", "{9:d}", "%s", "a; b, c: d. e and f", "\x1b[31m", "\udcff", "(" * 500, "x of " * 300):
        text = f"partition 1 of {name} starts at sector 63 ({name}), {name} past a boundary of {name}"
        assert isinstance(catalogue.translate(text), str)
