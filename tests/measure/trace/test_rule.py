"""Sequential access, straddling, queue depth: the rules, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.report import units_touched
from aligntool.errors import Refused
from aligntool.measure.trace import MOST_SOURCES, UNTIMED, Boundary, Event, Kind, Moment, Pattern, read_pattern

KINDS = {"R": Kind.READ, "W": Kind.WRITE, "D": Kind.DISCARD, "F": Kind.FLUSH}


def events(text: str) -> list[Event]:
    """Parse "R0+8 W8+8 F b:R0+8": kind, start and length; a source in front."""
    found: list[Event] = []
    for word in text.split():
        source, _, command = word.rpartition(":")
        start, _, length = command[1:].partition("+")
        found.append((Moment.ISSUED, KINDS[command[0]], source.encode(), int(start or 0), int(length or 0), UNTIMED))
    return found


def sequential(pattern: Pattern) -> dict[str, int]:
    return {row.kind.value: row.sequential for row in pattern.rows if row.sequential}


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param("R0+8", {}, id="the first command goes on nowhere"),
        pytest.param("R0+8 R8+8 R16+4", {"read": 2}, id="a run of reads"),
        pytest.param("W0+8 W8+8", {"write": 1}, id="a run of writes"),
        pytest.param("D0+8 D8+8", {"discard": 1}, id="a run of discards"),
        pytest.param("R0+8 W8+8", {}, id="another kind at the right place"),
        pytest.param("R0+8 W8+8 R8+8", {}, id="another kind in between"),
        pytest.param("W0+8 F W8+8", {}, id="a flush in between"),
        pytest.param("R8+8 R0+8", {}, id="downwards"),
        pytest.param("R0+8 R0+8", {}, id="the same again"),
        pytest.param("R0+8 R9+8", {}, id="a gap"),
        pytest.param("R0+8 R7+8", {}, id="an overlap"),
        pytest.param("R0+8 R8+1 R9+100", {"read": 2}, id="any length"),
        pytest.param("a:R0+8 b:R8+8", {}, id="on another drive"),
        pytest.param("a:R0+8 b:R0+8 a:R8+8 b:R8+8", {"read": 2}, id="two drives, each a run"),
    ],
)
def test_a_command_is_sequential_if_it_continues_one_of_the_same_kind_upwards(
    log: str, expected: dict[str, int]
) -> None:
    pattern = read_pattern(events(log))
    assert sequential(pattern) == expected
    for row in pattern.rows:
        assert row.sequential + row.random == (0 if row.kind is Kind.FLUSH else row.count)


def test_six_of_the_reads_in_the_articles_boot_are_sequential() -> None:
    run = [(Moment.ISSUED, Kind.READ, b"", 512 * at, 512, UNTIMED) for at in range(7)]
    rest = [(Moment.ISSUED, Kind.READ, b"", 4096 * (at * 7919 % 40_546 * 2 + 10), 512, UNTIMED) for at in range(40_546)]
    (row,) = read_pattern([*run, *rest]).rows
    assert (row.count, row.sequential, row.random) == (40_553, 6, 40_547)


@given(
    st.integers(0, 1 << 20), st.integers(1, 1 << 20), st.sampled_from((512, 4096, 16384, 12288)), st.integers(0, 4095)
)
def test_a_straddling_command_touches_one_unit_more_than_its_size_requires(
    start: int, length: int, grid: int, phase: int
) -> None:
    pattern = read_pattern([(Moment.ISSUED, Kind.READ, b"", start, length, UNTIMED)], [Boundary("", grid, phase)])
    (crossing,) = pattern.rows[0].crossings
    touched = units_touched(length, grid, (start - phase) % grid)
    assert crossing.off == ((start - phase) % grid > 0)
    assert crossing.straddling == (touched > -(-length // grid))


def test_a_log_of_too_many_devices_is_refused() -> None:
    log = ((Moment.ISSUED, Kind.READ, b"%d" % number, 0, 512, UNTIMED) for number in range(MOST_SOURCES + 1))
    with pytest.raises(Refused, match="more than"):
        read_pattern(log)


def test_a_log_without_commands_is_refused() -> None:
    with pytest.raises(Refused, match="no command"):
        read_pattern([(Moment.COMPLETED, Kind.READ, b"", 0, 512, UNTIMED)])


def test_commands_without_completion_neither_fill_the_memory_nor_count_forever() -> None:
    lost = [(Moment.ISSUED, Kind.READ, b"", 512 * at, 512, UNTIMED) for at in range(70_000)]
    ended = [(Moment.COMPLETED, Kind.READ, b"", 512 * at, 512, UNTIMED) for at in range(70_000)]
    last = [(Moment.ISSUED, Kind.READ, b"", 0, 512, UNTIMED)]
    depths = read_pattern([*lost, *ended, *last]).depths
    assert depths is not None
    assert len(depths) == 17  # 65,536 and no more
    assert depths[0] == 3  # the first, the first after forgetting, and the last
