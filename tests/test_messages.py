"""Messages are English in every locale, as long as the translator is switched off; and its functions.

No test demands a translation: `make messages` lists what is missing or has changed.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from aligntool.render.lines import cell_width, columns, wrapped
from aligntool.render.translate import Catalogue, language, read_catalogue
from tests.conftest import run
from tests.run_aligntool import run_aligntool

ROOT = Path(__file__).parent.parent
MO = ROOT / "aligntool/locale/ja/LC_MESSAGES/aligntool.mo"


# The program in a Japanese locale


@pytest.fixture(scope="module")
def old_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a disk of 2005, like `aligntool demo`."""
    disk = tmp_path_factory.mktemp("messages") / "old.img"
    run_aligntool("demo", disk, code=0)
    return disk


@pytest.mark.parametrize(
    "words",
    [
        "audit -v --map old.img", "realign --dry-run old.img", "plan realign --json old.img", "status old.img",
        "resume old.img --yes", "realign old.img", "audit --format prometheus old.img", "report -o - old.img",
        "report old.img --chart start-old-img-1 --svg -", "explain AT101", "recipes list", "--help", "raid",
        "audit --help", "audit --bogus", "audi", "layout", "audit /nowhere",
    ],
)  # fmt: skip
def test_the_output_in_a_japanese_locale_is_the_english_one(old_disk: Path, words: str) -> None:
    english, *others = (
        run_aligntool(*words.split(), env=environment, cwd=old_disk.parent)
        for environment in (
            {"LC_ALL": "C.UTF-8"},
            {"LC_ALL": "ja_JP.UTF-8"},
            {"LC_ALL": "", "LANG": "ja_JP.UTF-8"},
            {"LC_ALL": "", "LANG": "en_US.UTF-8", "LANGUAGE": "ja"},
        )
    )
    assert english.stdout + english.stderr
    for other in others:
        assert other.returncode == english.returncode
        assert _without_time(other.stdout) == _without_time(english.stdout)
        assert other.stderr == english.stderr


def _without_time(text: str) -> str:
    return re.sub(
        r'"date": "[^"]*"|"[a-z_]*(id|uuid|guid|created|time)": "[^"]*"|\d\d:\d\d UTC|\d+(\.\d+)?(e[+-]?\d+)?$', "",
        text, flags=re.MULTILINE,
    )  # fmt: skip


# What `make messages` lists


def _listed(expression: str) -> list[str]:
    """Return a list that .ci/messages.py makes."""
    before = f"import json, sys; from pathlib import Path; sys.path.insert(0, {str(ROOT / '.ci')!r}); import messages"
    found: list[str] = json.loads(run(sys.executable, "-B", "-c", f"{before}; print(json.dumps([*{expression}]))"))
    return found


def test_the_messages_of_the_program_are_collected() -> None:
    found = _listed("messages.messages()")
    assert len(found) > 3000
    assert {"No disks found.", "partition {0}", "Reading the disks …"} <= set(found)


@pytest.mark.needs_tools("msgattrib")
def test_messages_without_a_translation_are_listed(tmp_path: Path) -> None:
    catalogue = tmp_path / "ja.po"
    catalogue.write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "assumed"\nmsgstr "仮定"\n\nmsgid "a \\"new\\" sentence"\nmsgstr ""\n'
    )
    assert _listed(f"messages.untranslated(Path({str(catalogue)!r}))") == ['a "new" sentence']


def test_a_translated_page_whose_english_page_has_changed_is_listed(tmp_path: Path) -> None:
    """The digest is that of sha256sum, of the words of the section with single spaces."""
    english, own = tmp_path / "page.md", tmp_path / "own.md"
    english.write_text("# Page\n\n## One\n\n- a `word`\n\n## Two\n\nmore\n")
    digest = run("sh", "-c", "printf '## One - a `word`' | sha256sum".replace("`", "\\140")).split()[0]
    own.write_text(f"<!-- follows docs/page.md (One) sha256:{digest} -->\n\n# 頁\n\n## 一\n\n- `word`\n")
    outdated = f"messages.outdated(Path({str(own)!r}), Path({str(tmp_path)!r}))"
    assert _listed(outdated) == []
    english.write_text(english.read_text().replace("- a `word`", "- another `term`\n- a `word`"))
    changed, lists, code = _listed(outdated)
    assert "docs/page.md has changed" in changed and lists == "the lists differ" and code.endswith(": `term`")


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


def test_the_catalogue_has_no_word_that_could_be_the_name_of_a_disk() -> None:
    """A question contains the name of the disk in a translated sentence; the name itself must not change."""
    words = (ROOT / "po" / "words.txt").read_text().splitlines()
    assert not [word for word in words if re.fullmatch(r"(sd|vd|nvme|md|mmcblk|loop)[a-z0-9]+|data|disk\.img", word)]


def test_no_name_stops_the_translation() -> None:
    catalogue = read_catalogue(MO.read_bytes())
    for name in ("{0}", "{9:d}", "%s", "a; b, c: d. e and f", "\x1b[31m", "\udcff", "(" * 500, "x of " * 300):
        text = f"partition 1 of {name} starts at sector 63 ({name}), {name} past a boundary of {name}"
        assert isinstance(catalogue.translate(text), str)
