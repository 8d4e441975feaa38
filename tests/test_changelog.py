"""News fragments: the files of changelog.d, which become a section of CHANGELOG.md at a release."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import run

ROOT = Path(__file__).parent.parent
FRAGMENTS = sorted(path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in SETTINGS["type"]]
NAME = re.compile(rf"\+[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")


def faults(name: str, text: str) -> list[str]:
    """Return what is wrong with a fragment of this name and text."""
    lines = text.splitlines()
    links = [target for target in re.findall(r"\]\(([^)#:]+)", text) if not (ROOT / target).exists()]
    checks = {
        f"the name is not +NAME.KIND.md with one of {', '.join(KINDS)}": not NAME.fullmatch(name),
        "it is not one paragraph of one to five lines": not 1 <= len(lines) <= 5 or not all(map(str.strip, lines)),
        "it does not end with a full stop and a line feed": not text.endswith(".\n"),
        "it begins with a bullet or a heading": text.startswith(("-", "*", "#")),
        f"links do not start at the top of the repository: {links}": bool(links),
    }
    return [fault for fault, found in checks.items() if found]


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_every_fragment_has_a_valid_name_and_form(fragment: Path) -> None:
    assert faults(fragment.name, fragment.read_text()) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exfat.fixed.md", "`realign`: fixed.\n"), ("+exfat.bugfix.md", "`realign`: fixed.\n"),
        ("+Ex_fat.fixed.md", "`realign`: fixed.\n"), ("+exfat.fixed.md", ""), ("+exfat.fixed.md", "- A point.\n"),
        ("+exfat.fixed.md", "No stop\n"), ("+exfat.fixed.md", "Two.\n\nParagraphs.\n"),
        ("+exfat.fixed.md", "A [page](../docs/cli.md).\n"),
    ],
)  # fmt: skip
def test_a_malformed_fragment_is_found(name: str, text: str) -> None:
    assert faults(name, text)


def test_the_kinds_are_those_that_contributing_lists() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text()
    table = page.partition("## To record a change\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == KINDS


def test_a_release_has_the_text_of_every_fragment_by_kind(tmp_path: Path) -> None:
    pytest.importorskip("towncrier", reason="towncrier is not installed; `make test` installs it")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    (tmp_path / "changelog.d" / "+a.fixed.md").write_text("`audit`: a repair.\n")
    (tmp_path / "changelog.d" / "+b.loss.md").write_text("`realign`: a loss.\nIts remedy.\n")
    before = (tmp_path / "CHANGELOG.md").read_text()
    run(
        sys.executable, "-m", "towncrier", "build", "--yes", "--dir", tmp_path,
        "--version", "9.8.7", "--date", "2026-12-24",
    )  # fmt: skip
    after = (tmp_path / "CHANGELOG.md").read_text()
    head, found, rest = after.partition("## [9.8.7] - 2026-12-24\n")
    assert found and head.strip() and before.startswith(head.rstrip())
    release = rest[: rest.index("\n## [")]
    assert release.index("### Loss of data") < release.index("- `realign`: a loss.") < release.index("### Fixed")
    assert "- `audit`: a repair." in release
    assert all(text.read_text().splitlines()[0] in release for text in FRAGMENTS)
    assert [path.name for path in (tmp_path / "changelog.d").iterdir()] == ["README.md"]
