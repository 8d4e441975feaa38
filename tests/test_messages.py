"""Some pages are in the user's language: the first one, and explanations of findings. All else is in English.

No test demands a translation: `make messages` lists what is missing or has changed. The tests translate each template
to itself in brackets.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path

import pytest

from aligntool.render.lines import cell_width, columns, wrapped
from aligntool.render.translate import catalogue, language, translated, use_catalogue
from tests.conftest import run
from tests.run_aligntool import run_aligntool

ROOT = Path(__file__).parent.parent
HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'


def _po(translations: dict[str, str]) -> str:
    """Return a catalogue as translators write it."""
    texts = (
        (json.dumps(text, ensure_ascii=False), json.dumps(own, ensure_ascii=False))
        for text, own in translations.items()
    )
    return HEADER + "".join(f"\nmsgid {text}\nmsgstr {own}\n" for text, own in texts)


def _listed(expression: str) -> list[str]:
    """Return a list that .ci/messages.py makes."""
    before = f"import json, sys; from pathlib import Path; sys.path.insert(0, {str(ROOT / '.ci')!r}); import messages"
    found: list[str] = json.loads(run(sys.executable, "-B", "-c", f"{before}; print(json.dumps([*{expression}]))"))
    return found


# The program with a catalogue, as packages contain it


@pytest.fixture(scope="module")
def say(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that runs a program with a Japanese catalogue, and returns its output."""
    tree = tmp_path_factory.mktemp("messages")
    package = tree / "aligntool"
    package.mkdir()
    for path in (ROOT / "aligntool").iterdir():
        if path.name not in ("__pycache__", "locale"):
            (package / path.name).symlink_to(path)
    (tree / "recipes").symlink_to(ROOT / "recipes")
    run_aligntool("demo", tree / "old.img", code=0)
    folder = package / "locale" / "ja" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    marked = {
        text: re.sub(r"^(.*\S)(\s*)$", r"⟦\1⟧\2", text, flags=re.DOTALL) for text in _listed("messages.messages()")
    }
    (tree / "ja.po").write_text(_po(marked))
    run("msgfmt", "--check", "-o", folder / "aligntool.mo", tree / "ja.po")

    def say(words: str, **environment: str) -> str:
        names = {"PYTHONPATH": str(tree), "LC_ALL": "ja_JP.UTF-8", "PYTHONUTF8": "1"} | environment
        done = subprocess.run(
            [sys.executable, "-B", "-m", "aligntool", *words.split()],
            cwd=tree, env=os.environ | names, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    return say


@pytest.mark.needs_tools("msgfmt")
@pytest.mark.parametrize(
    ("page", "other_words"),
    [
        ("", ""),
        ("explain", r"AT\d{3}|queue-depth"),
        ("explain AT101", "AT101"),
        ("explain queue-depth", r"QD\d|\[[-#]+\]|→ .*"),
    ],
)
def test_every_sentence_of_a_translated_page_is_looked_up(say: Callable[..., str], page: str, other_words: str) -> None:
    text = say(page)
    assert text.count("⟦") == text.count("⟧") > 0
    rest = re.sub("⟦[^⟦⟧]*⟧", "", text)
    assert re.sub(other_words, "", rest).split() == []
    english = say(page, LC_ALL="C.UTF-8")
    assert re.sub("[⟦⟧]", "", text).split() == english.split()


@pytest.mark.needs_tools("msgfmt")
@pytest.mark.parametrize("words", ["audit -v old.img", "audit --json old.img", "report -o - old.img", "explain --help"])
def test_other_output_is_english_in_every_locale(say: Callable[..., str], words: str) -> None:
    assert _without_time(say(words)) == _without_time(say(words, LC_ALL="C.UTF-8"))


def _without_time(text: str) -> str:
    return re.sub(r'"date": "[^"]*"|\d\d:\d\d UTC', "", text)


def test_only_modules_whose_pages_are_whole_translate() -> None:
    """Elsewhere, a page would be in two languages: docs/decisions/0060."""
    sources = (ROOT / "aligntool").rglob("*.py")
    found = {path.relative_to(ROOT).as_posix() for path in sources if "translated(" in path.read_text()}
    assert found == {"aligntool/cli/app.py", "aligntool/render/recipes.py", "aligntool/render/translate.py"}


def test_without_a_catalogue_explanations_are_english() -> None:
    english, japanese = (run_aligntool("explain", "AT101", env={"LC_ALL": code}) for code in ("C.UTF-8", "ja_JP.UTF-8"))
    assert japanese.stdout == english.stdout != ""
    assert type(catalogue("xx")) is NullTranslations


# A template and its values


@pytest.fixture
def with_translations(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], None]]:
    def use(translations: dict[str, str]) -> None:
        (tmp_path / "ja.po").write_text(_po(translations))
        run("msgfmt", "-o", tmp_path / "ja.mo", tmp_path / "ja.po")
        use_catalogue(GNUTranslations(BytesIO((tmp_path / "ja.mo").read_bytes())))

    yield use
    use_catalogue(NullTranslations())


@pytest.mark.needs_tools("msgfmt")
def test_a_template_is_looked_up_and_gets_its_values(with_translations: Callable[[dict[str, str]], None]) -> None:
    with_translations(
        {"{part} of {disk:>4} has {count:,} bytes": "{count:,}バイト、{disk:>4}の{part}", "an error": "エラー"}
    )
    text = translated("{part} of {disk:>4} has {count:,} bytes", part="{disk}", disk="sda", count=4096)
    assert text == "4,096バイト、 sdaの{disk}"
    assert translated("an error") == "エラー"
    assert translated("no {such} sentence", such="{0}") == "no {0} sentence"
    assert translated("no sentence with {braces") == "no sentence with {braces"


@pytest.mark.needs_tools("msgfmt")
@pytest.mark.parametrize(
    "own",
    ["{disk", "disk}", "{disk", "{disks}", "{}", "{0}", "{disk!r}", "{disk.name}", "{disk[0]}", "{disk:d}", "", "-"],
)
def test_a_translation_with_other_fields_is_not_used(
    own: str, with_translations: Callable[[dict[str, str]], None]
) -> None:
    with_translations({"look at {disk}": own})
    assert translated("look at {disk}", disk="sda") == "look at sda"
    assert translated("look at {disk}") == "look at {disk}"


# What `make messages` lists


@pytest.mark.needs_tools("msgfmt")
def test_templates_that_are_shown_in_english_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "ja.po"
    file.write_text(_po({"assumed": "仮定", 'a "new" sentence': "", "look at {disk}": "{disks}"}))
    templates = ["assumed", 'a "new" sentence', "look at {disk}", "added since"]
    assert _listed(f"messages.untranslated(Path({str(file)!r}), {templates})") == templates[1:]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "ja").glob("*.md")), ids=lambda page: page.stem)
def test_each_translated_page_says_first_which_version_it_follows(page: Path) -> None:
    found = re.match(r"<!-- follows docs/(\S+?\.md)( \([^)]+\))? sha256:[0-9a-f]{64} -->\n", page.read_text())
    assert found and (ROOT / "docs" / found[1]).is_file()


def test_the_page_of_findings_is_made_with_the_version_that_it_follows() -> None:
    words = " ".join((ROOT / "docs" / "findings.md").read_text().split())
    done = subprocess.run(["sha256sum"], input=words, capture_output=True, text=True, check=True)
    head = f"<!-- follows docs/findings.md sha256:{done.stdout.split()[0]} -->"
    assert _listed("messages.findings_page()")[0] == head


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


@pytest.mark.needs_tools("msgfmt", "msgunfmt")
def test_the_catalogues_of_packages_have_the_translations(tmp_path: Path) -> None:
    run("env", f"--chdir={ROOT}", ".ci/catalogues", tmp_path)
    files = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*.mo")}
    assert set(files) == {"aligntool/locale/ja/LC_MESSAGES/aligntool.mo"}
    file = files["aligntool/locale/ja/LC_MESSAGES/aligntool.mo"]
    po = run("msgunfmt", file)
    assert po.count("\nmsgid ") == (ROOT / "po" / "ja.po").read_text().count("\nmsgid ")


# The user's language, and lines in it


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
