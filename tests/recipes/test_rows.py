"""Every row of the drive database is valid, and no two of them match the same drive."""

import re
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from aligntool.inventory import DiskKind, Source
from aligntool.recipes.drives import DriveDatabase, DriveRow, load_chipsets, load_drives
from aligntool.recipes.goals import load_recipes
from aligntool.recipes.schema import normal
from tests.recipes.disks import disk, of_model
from tests.recipes.menu import menu

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted((RECIPES / "drives").glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_row_has_a_source_and_a_confidence(file: Path) -> None:
    parsed = tomllib.loads(file.read_text())
    rows = [*parsed.get("drive", []), *parsed.get("class", [])]
    assert rows
    for row in rows:
        assert len(row["source"]) > 10, row["name"]
        assert row["confidence"] in ("high", "medium", "low"), row["name"]


def test_every_row_of_every_file_is_loaded(database: DriveDatabase) -> None:
    written = [tomllib.loads(file.read_text()) for file in FILES]
    assert len(database.rows) == sum(len(each.get("drive", [])) for each in written)
    assert len(database.classes) == sum(len(each.get("class", [])) for each in written)
    assert len({row.name for row in database.rows}) == len(database.rows)


def test_every_row_is_found_by_its_examples_and_by_its_name(database: DriveDatabase) -> None:
    for row in database.rows:
        for example in row.examples:
            kind = row.buses[0] if row.buses else DiskKind.ATA
            firmware = re.sub(r"\[(.).*?\]", r"\1", row.firmware[0]).replace("*", "1") if row.firmware else None
            assert of_model(database.known(disk(example, kind=kind, firmware=firmware)))[0] == row.name, example
        assert row.name in of_model(database.search(row.name)), row.name


def test_no_model_matches_two_rows_of_the_same_rank(database: DriveDatabase) -> None:
    for place, row in enumerate(database.rows):
        for other in database.rows[place + 1 :]:
            if bool(row.firmware) != bool(other.firmware) or not _overlap(row.buses, other.buses):
                continue
            if row.firmware and not _some_text_fits_both(row.firmware, other.firmware):
                continue
            assert not _some_text_fits_both(_spelled(row), _spelled(other)), f"{row.name} / {other.name}"


def _overlap(buses: tuple[DiskKind, ...], others: tuple[DiskKind, ...]) -> bool:
    return not buses or not others or bool(set(buses) & set(others))


def _spelled(row: DriveRow) -> tuple[str, ...]:
    return (*row.match, *(f"{maker} {pattern}" for maker in row.makers for pattern in row.match))


def _some_text_fits_both(patterns: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(_meet(_words(one), _words(other)) for one in patterns for other in others)


@cache
def _words(pattern: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\[!?.[^]]*\]|.", normal(pattern)))


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether a text exists that both globs match, by the tails that still have to match."""
    seen, todo = set(), [(0, 0)]
    while todo:
        i, j = todo.pop()
        if (i, j) in seen:
            continue
        seen.add((i, j))
        if i == len(one) and j == len(other):
            return True
        if i < len(one) and one[i] == "*":
            todo += [(i + 1, j), *([(i, j + 1)] if j < len(other) else [])]
        if j < len(other) and other[j] == "*":
            todo += [(i, j + 1), *([(i + 1, j)] if i < len(one) else [])]
        if i < len(one) and j < len(other) and "*" not in (one[i], other[j]) and _share(one[i], other[j]):
            todo.append((i + 1, j + 1))
    return False


@cache
def _share(token: str, other: str) -> bool:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789 -./"
    return any(fnmatchcase(letter, token) and fnmatchcase(letter, other) for letter in letters)


def test_the_check_for_rows_that_overlap_finds_an_overlap() -> None:
    assert _some_text_fits_both(("WD??EARS*",), ("WD20*",))
    assert not _some_text_fits_both(("WD??EARS*",), ("WD??EARX*",))


def test_the_menu_in_the_repository_is_current() -> None:
    written = (RECIPES / "README.md").read_text()
    current = menu(load_recipes(), load_drives(), load_chipsets())
    assert written == current, "run: python -m tests.recipes.menu > recipes/README.md"


def test_each_of_a_thousand_models_is_matched_by_its_own_name(database: DriveDatabase) -> None:
    """The pre-check common to all patterns accepts no wrong model and rejects no right one."""
    for number in range(1000):
        lying = disk(f"WDC WD{number % 100:02}EARS-{number:05}", size=500 * 1000**3, rotational=True)
        honest = disk(f"WDC WD{number % 100:02}ZZZZ-{number:05}", size=500 * 1000**3, rotational=True)
        assert [row.physical_block_size for row in database.known(lying)][:1] == [4096]
        assert not any(row.source is Source.KNOWN for row in database.known(honest))
