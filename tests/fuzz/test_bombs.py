"""Every command on files that are as expensive as possible: processor time, memory, and what is said of the rest."""

import json
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.contents.layers import Contents, read_contents, read_layers
from aligntool.errors import Refused
from aligntool.formats.reader import AREAS, BYTES, ITEMS, LEVELS, MOST, PARTITIONS, WORDS, Budget, OverBudgetError
from aligntool.linux.block import ReadOnlyDevice
from aligntool.mover.journal import unpack
from aligntool.mover.journal_search import find_journal
from aligntool.mover.left_journals import find_left
from aligntool.units import GIB, KIB, MIB, Extent
from tests.fuzz import bombs
from tests.fuzz.bombs import BOMBS, DISKS, Bomb, cost_of
from tests.fuzz.campaign import limited
from tests.fuzz.handmade_layers import LVM_TEXT
from tests.fuzz.sparse import SparseDisk
from tests.fuzz.worst_cases import lvm_at
from tests.thorough import THOROUGH, sample

MOST_COMMANDS = 3  # of a file in `make test`
CUT = ("many_volumes", "nested_volumes", "adjacent_entries")
Saved = Callable[[SparseDisk], Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Write a disk as an image file."""

    def write(disk: SparseDisk) -> Path:
        path = tmp_path / "disk.img"
        bombs.image(path, disk)
        return path

    return write


@sample(8)
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_no_command_takes_long_or_much_memory(bomb: Bomb, tmp_path: Path) -> None:
    some = random.Random(bomb.name).sample(bomb.commands, min(len(bomb.commands), 99 if THOROUGH else MOST_COMMANDS))
    costs = list(replace(bomb, commands=tuple(some)).costs(tmp_path))
    assert [(command, cost, tail) for command, cost, tail in costs if not cost.is_allowed] == []
    assert [tail for _, _, tail in costs if "Traceback" in tail] == []


def seen_of(disk: SparseDisk) -> Contents:
    with limited(bombs.SECONDS):
        return read_contents(disk.reader(), sector_size=512)


@pytest.mark.parametrize("name", CUT)
def test_what_was_not_looked_at_is_a_finding_and_unknown(name: str, saved: Saved, tmp_path: Path) -> None:
    path, output = saved(DISKS[name]()), tmp_path / "audit.json"
    cost, tail = cost_of(["audit", "--json", "-o", output, path])
    assert (cost.code, "not everything was looked at" in tail) == (3, True)
    found = json.loads(output.read_text())
    assert [finding["code"] for finding in found["findings"]].count("AT902") == 1
    (disk,) = found["disks"]
    assert {part["verdict"]["answer"] for part in disk["partitions"] if not part["content_read"]} == {"unknown"}


@sample(4)
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize(
    "words", [("realign",), ("layout", "--part", "rest:linux"), ("convert", "--sector-size", "4096")]
)
def test_no_change_of_a_disk_that_was_cut_off_is_planned(name: str, words: tuple[str, ...], saved: Saved) -> None:
    cost, tail = cost_of(["plan", *words, saved(DISKS[name]())])
    assert cost.code == 3, tail


class CountingDevice(ReadOnlyDevice):
    """Counts what is read of an image."""

    reads = 0

    def read(self, offset: int, length: int) -> bytes:
        self.reads += 1
        return super().read(offset, length)


def test_holes_of_an_image_are_not_searched_for_a_journal(saved: Saved) -> None:
    with saved(bombs.damaged_table()).open("rb") as file:
        device = CountingDevice(file.fileno())
        assert find_journal(device, None) is None
        assert find_left(device) is None
    assert 0 < device.reads < 5000


@pytest.mark.parametrize("number", range(len(bombs.INDEXES)))
def test_a_body_of_a_journal_fills_neither_memory_nor_time(number: int) -> None:
    index = bombs.INDEXES[number]
    body = zlib.compress(len(index).to_bytes(8, "little") + index, 9)
    assert len(body) < 64 * KIB
    with limited(bombs.SECONDS), pytest.raises(Refused):
        unpack(body, MIB)


@pytest.mark.parametrize("make", [bombs.one_dotted_key, bombs.dotted_keys])
def test_a_recipe_of_dotted_keys_is_one_clear_refusal(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    make(path)
    cost, tail = cost_of(["recipes", "check", path])
    assert cost.is_allowed
    assert (cost.code, tail.count("\n")) == (3, 1), tail
    assert "line 1 has more than 100 dots" in tail


@pytest.mark.parametrize(
    ("what", "left", "name"),
    [
        (WORDS, 100, "many_volumes"),
        (WORDS, 100, "many_headers"),
        (AREAS, 3, "nested_volumes"),
        (LEVELS, 1, "nested_volumes"),
        (BYTES, 1000, "volumes_to_look_into"),
    ],
)
def test_every_reader_spends_the_budget_of_its_disk(what: str, left: int, name: str) -> None:
    extent = Extent(bombs.FIRST * 512, 7800 * 512)
    reader = DISKS[name]().reader()
    with pytest.raises(OverBudgetError, match=what):
        read_layers(reader, extent, sector_size=512, budget=Budget({**MOST, what: left}))


def test_the_budget_is_that_of_the_decision() -> None:
    text = (Path(__file__).parents[2] / "docs/decisions/0055-one-budget-for-each-disk.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([0-9][^|]*?) \|", text, re.MULTILINE))
    stated = [int(most.removesuffix(" MiB").replace(",", "")) * (MIB if "MiB" in most else 1) for most in rows.values()]
    assert stated == [MOST[what] for what in (PARTITIONS, BYTES, AREAS, LEVELS, WORDS, ITEMS)]


@pytest.mark.parametrize(("what", "name"), [(PARTITIONS, "many_segments"), (ITEMS, "everything_at_once")])
def test_what_all_partitions_have_together_is_limited(what: str, name: str) -> None:
    assert [gap.why for gap in seen_of(DISKS[name]()).unseen if f" {what}, which" in gap.why]


def test_equal_extents_are_searched_once() -> None:
    start, length = bombs.FIRST, 60_000
    pieces = lvm_at(start * 512, bombs.lvm_text(50, 2))
    read = []
    for copies in (1, 100):
        reader = bombs.over([(start, start + length)] * copies, pieces, size=64 * MIB).reader()
        seen = read_contents(reader, sector_size=512)
        assert len({part.content for part in seen.partitions}) == 1
        assert len(seen.partitions[0].content[0].segments) == 100
        read.append(reader.bytes_read)
    assert read[1] < 2 * read[0]


def test_the_largest_honest_disk_is_looked_at_as_a_whole() -> None:
    """128 partitions, each a physical volume, one of them with 1000 volumes of four segments."""
    size, each = 64 * GIB, 900_000
    places = [(4096 + each * number, 4096 + each * (number + 1) - 1) for number in range(128)]
    pieces = lvm_at(places[0][0] * 512, bombs.lvm_text(1000, 4, length=8))
    for first, _ in places[1:]:
        pieces += lvm_at(first * 512, LVM_TEXT)
    seen = seen_of(bombs.over(places, pieces, size=size))
    assert seen.unseen == ()
    assert [part.content_read for part in seen.partitions] == [True] * 128
    (layer,) = seen.partitions[0].content
    assert len(layer.segments) == 4000
    assert not [problem for problem in layer.problems if "to the end" in problem]
