"""The recommended chunk compared with the published table and rules, for any level, members and workload."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.report import Grid, GridKind, Severity
from aligntool.inventory import Source
from aligntool.raid.chunks import Evidence, Stripes, judge_chunk, recommend_chunk
from aligntool.raid.levels import LEVELS, WORKLOADS, data_members
from aligntool.units import KIB, MIB, is_power_of_two


def grid(size: int, source: Source = Source.REPORTED) -> Grid:
    return Grid(GridKind.UNIT, size, 0, source, "NVMe NPWG", Severity.WARNING)


def stripes(
    level: str, members: int, workload: str = "general", *, page: int = 16 * KIB, unit: int = 4 * KIB
) -> Stripes:
    layout = "n2" if level == "raid10" else ""
    data = data_members(LEVELS[level], members, layout)
    return Stripes(LEVELS[level], data, workload, page, (grid(unit),))


# Rows of the decision table of the research on NVMe arrays (docs/raid.md).
CASES = [
    ("raid0", 2, "general", 512),
    ("raid0", 4, "boot", 512),
    ("raid10", 4, "general", 512),
    ("raid0", 2, "sequential", 512),
    ("raid0", 4, "sequential", 512),
    ("raid0", 12, "sequential", 512),
    ("raid10", 4, "database", 512),
    ("raid0", 4, "lsm", 1024),
    ("raid10", 8, "vm", 256),
    ("raid5", 4, "general", 128),
    ("raid5", 9, "general", 128),  # 8 data members: exactly 1 MiB
    ("raid5", 10, "general", 64),
    ("raid6", 18, "general", 64),
    ("raid6", 19, "general", 32),
    ("raid5", 3, "sequential", 512),
    ("raid5", 4, "database", 256),
    ("raid6", 6, "sequential", 256),
]


@pytest.mark.parametrize(("level", "members", "workload", "kib"), CASES)
def test_the_recommended_chunk_is_that_of_the_table(level: str, members: int, workload: str, kib: int) -> None:
    assert recommend_chunk(stripes(level, members, workload)).size == kib * KIB


def test_for_a_database_with_large_pages_the_chunk_is_four_pages_unless_limited() -> None:
    assert recommend_chunk(stripes("raid10", 4, "database", page=256 * KIB)).size == MIB
    assert recommend_chunk(stripes("raid5", 4, "database", page=512 * KIB)).size == MIB  # two: never fewer


def test_a_raid1_has_no_chunk() -> None:
    assert recommend_chunk(stripes("raid1", 2)).size is None


@given(
    level=st.sampled_from(["raid0", "raid10", "raid5", "raid6"]),
    members=st.integers(4, 40),
    workload=st.sampled_from(WORKLOADS),
    page=st.sampled_from([4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB]),
    unit=st.sampled_from([512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB]),
)
def test_the_recommended_chunk_satisfies_every_rule_that_can_be_satisfied(
    level: str, members: int, workload: str, page: int, unit: int
) -> None:
    asked = stripes(level, members, workload, page=page, unit=unit)
    advice = recommend_chunk(asked)
    size = advice.size or 0
    assert is_power_of_two(size) and size >= 16 * KIB and size % unit == 0
    if workload == "database":
        assert size >= 2 * page
    if LEVELS[level].parity and size * asked.data > MIB:
        # The only rule that may yield, and only to the minimums.
        assert size == max(16 * KIB, unit, 2 * page if workload == "database" else 0)
        assert [rule.kept for rule in judge_chunk(size, asked)].count(False) == 1
    else:
        assert all(rule.kept for rule in judge_chunk(size, asked))


@pytest.mark.parametrize(
    ("chunk", "level", "broken"),
    [
        (4 * KIB, "raid0", "at least 16KiB"),
        (24 * KIB, "raid0", "power of two"),
        (512 * KIB, "raid5", "at most 1MiB"),
        (32 * KIB, "raid0", "indirection unit of 64KiB"),
    ],
)
def test_a_requested_chunk_is_judged_by_the_same_rules(chunk: int, level: str, broken: str) -> None:
    rules = judge_chunk(chunk, stripes(level, 4, unit=64 * KIB if chunk == 32 * KIB else 4 * KIB))
    assert [rule for rule in rules if not rule.kept and broken in rule.sentence]
    assert all(rule.kept for rule in judge_chunk(256 * KIB, stripes(level, 4)))


def test_an_unpublished_rule_is_reported_as_a_rule_of_thumb() -> None:
    """The 4 KiB figure, md's largest request and ScyllaDB's setup are published; the rules derived from
    them are not.
    """
    for level, workload in (("raid0", "general"), ("raid5", "general"), ("raid6", "sequential"), ("raid5", "lsm")):
        assert recommend_chunk(stripes(level, 4, workload)).evidence is Evidence.RULE
    least = next(rule for rule in judge_chunk(64 * KIB, stripes("raid0", 4)) if "16KiB" in rule.sentence)
    assert least.evidence is Evidence.RULE and "were not measured" in least.sentence
    assert recommend_chunk(stripes("raid6", 100)).evidence is Evidence.RULE  # the minimum of 16 KiB
    assert recommend_chunk(stripes("raid5", 9, unit=256 * KIB)).evidence is Evidence.REPORTED  # the drives' own


def test_conflicting_rules_are_reported() -> None:
    """RAID5 of nine drives with a unit of 256 KiB: a stripe of 2 MiB, and no smaller chunk."""
    asked_of = stripes("raid5", 9, unit=256 * KIB)
    size = recommend_chunk(asked_of).size or 0
    (broken,) = [rule for rule in judge_chunk(size, asked_of) if not rule.kept]
    assert (size, broken.conflict) == (256 * KIB, "a multiple of the members' indirection unit of 256KiB")
    asked = judge_chunk(512 * KIB, stripes("raid5", 9))
    assert [rule.conflict for rule in asked if not rule.kept] == [""]


def test_the_evidence_follows_from_the_source_of_the_unit() -> None:
    def strength(source: Source) -> Evidence:
        asked = Stripes(LEVELS["raid0"], 2, "general", 16 * KIB, (grid(16 * KIB, source),))
        return next(rule.evidence for rule in judge_chunk(64 * KIB, asked) if "indirection" in rule.sentence)

    assert strength(Source.REPORTED) is Evidence.REPORTED
    assert strength(Source.MEASURED) is Evidence.MEASURED
    assert strength(Source.KNOWN) is Evidence.PUBLISHED
    assert strength(Source.ASSUMED) is Evidence.RULE


@pytest.mark.parametrize("level", ["raid0", "raid10", "raid5", "raid6"])
@pytest.mark.parametrize("workload", ["database", "sequential"])
@pytest.mark.parametrize("members", [4, 6, 12])
def test_mdadms_default_chunk_is_used_where_it_was_measured_as_faster(level: str, workload: str, members: int) -> None:
    """docs/benchmarks.md, Chunks: 0.77 and 0.80 of its rate for `sequential`, 0.92 and 0.97 for `database`.

    RAID5 and RAID6 use a smaller one only where md's largest request requires it, and the reason names the measurement.
    """
    asked = stripes(level, members, workload)
    advice = recommend_chunk(asked)
    assert advice.size is not None
    assert advice.size == 512 * KIB or advice.size * asked.data <= MIB < 2 * advice.size * asked.data
    assert "aligntool raid tune" in advice.reason
    assert all(rule.kept for rule in judge_chunk(advice.size, asked))
