"""An error in a row is refused with file, row and key; patterns behave like fnmatch."""

import time
from fnmatch import fnmatchcase
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aligntool.errors import Refused
from aligntool.inventory import DiskKind
from aligntool.recipes.drives import DriveDatabase, load_drives, parse_drives
from aligntool.recipes.schema import normal, parse_pattern
from tests.recipes.disks import disk, of_model

ROW = """
makers = ["ACME"]

[[drive]]
name = "Roadrunner"
match = ["RR-*"]
examples = ["ACME RR-1"]
page = "16KiB"
source = "https://example.org/rr"
confidence = "high"
"""


@pytest.mark.parametrize(
    ("before", "after", "complaint", "hint"),
    [
        ('page = "16KiB"', 'pgae = "16KiB"', "unknown key 'pgae'", "did you mean 'page'?"),
        ('page = "16KiB"', 'physical_sectors = "4KiB"', "unknown key", "'physical_sector'"),
        ('page = "16KiB"', 'page = "16KB"', "page: '16KB' is not a size", ""),
        ('page = "16KiB"', "page = 16384", "page must be a string", ""),
        ('page = "16KiB"', 'page = "12KiB"', "power of two", ""),
        ('page = "16KiB"', 'page = "1B"', "at least 512B", ""),
        ('page = "16KiB"', 'dram = "maybe"', "dram must be true, false", ""),
        ('page = "16KiB"', 'hybrid = "yes"', "hybrid must be true or false", ""),
        ('page = "16KiB"', 'distrust = "minimum_io"', "not a queue limit", "minimum_io_size"),
        ('page = "16KiB"', 'bus = "nmve"', "not a kind of disk", "nvme"),
        ('page = "16KiB"', 'capacity_min = "2TB"', "'2TB' is not a size", ""),
        ('confidence = "high"', 'confidence = "hihg"', "confidence cannot be 'hihg'", "did you mean 'high'?"),
        ('confidence = "high"', "", "confidence is missing", ""),
        ('source = "https://example.org/rr"', "", "source is missing", ""),
        ('source = "https://example.org/rr"', 'source = "  "', "source must be a string", ""),
        ('name = "Roadrunner"', "", "name is missing", ""),
        ('match = ["RR-*"]', "", "match is missing", ""),
        ('match = ["RR-*"]', 'match = ["RR-[12"]', "not a pattern", ""),
        ('match = ["RR-*"]', 'match = ["RR-[!]"]', "not a pattern", ""),
        ('match = ["RR-*"]', "match = [1]", "match must be a string or a list of strings", ""),
        ('examples = ["ACME RR-1"]', "", "examples is missing", ""),
        ('makers = ["ACME"]', 'maker = ["ACME"]', "unknown key 'maker'", "did you mean 'makers'?"),
        ("[[drive]]", "[[drives]]", "unknown key 'drives'", "did you mean 'drive'?"),
        ("[[drive]]", "[drive]", "drive must be a list of tables", "[[drive]]"),
        ("[[drive]]", "[[drive]", "not valid TOML", ""),
    ],
)
def test_an_error_in_a_row_is_refused_by_name(before: str, after: str, complaint: str, hint: str) -> None:
    assert before in ROW
    with pytest.raises(Refused) as refused:
        parse_drives([("recipes/drives/acme.toml", ROW.replace(before, after))])
    assert str(refused.value).startswith("recipes/drives/acme.toml")
    assert complaint in str(refused.value)
    assert hint in refused.value.hint


def test_the_row_used_for_the_errors_is_valid_itself() -> None:
    acme = parse_drives([("acme.toml", ROW)])
    assert of_model(acme.known(disk("ACME RR-9"))) == ["Roadrunner"]
    assert of_model(acme.known(disk("RR-9"))) == ["Roadrunner"]
    assert of_model(acme.known(disk("XRR-9"))) == []


def test_a_refusal_names_the_row() -> None:
    with pytest.raises(Refused, match=r'acme\.toml, drive "Roadrunner": unknown key'):
        parse_drives([("acme.toml", ROW.replace("page", "pages"))])


TEXTS = st.text("ab-1", max_size=12)
PIECES = st.sampled_from(["a", "b", "-", "1", "*", "?", "[ab]", "[!a]", "[a-b]", "[0-9]", "[!0-9b]"])


@example("a*b", "ab")
@example("?", "a")
@example("a[ab]", "ab")
@given(pattern=st.lists(PIECES, max_size=9).map("".join), text=TEXTS)
def test_a_pattern_matches_what_fnmatch_matches(pattern: str, text: str) -> None:
    assert parse_pattern(pattern).fits(text) == fnmatchcase(text, pattern)


@given(model=st.text(max_size=64), firmware=st.text(max_size=16), kind=st.sampled_from(DiskKind))
def test_any_model_name_is_accepted(model: str, firmware: str, kind: DiskKind) -> None:
    for known in load_once().known(disk(model, kind=kind, firmware=firmware)):
        assert known.citation


@cache
def load_once() -> DriveDatabase:
    return load_drives()


def test_a_long_hostile_model_name_is_matched_quickly() -> None:
    before = time.process_time()
    assert not parse_pattern("*a*a*a*a*a*a*a*b").fits("a" * 4000)
    assert time.process_time() - before < 1


@given(st.text(max_size=40))
def test_normalising_a_name_twice_changes_nothing(model: str) -> None:
    once = normal(model).removeprefix("ata ")
    assert " ".join(once.split()) == once
