"""The overhead benchmark on figures whose answer is known, and a run of it."""

import pytest

from aligntool.units import MIB
from tests.bench.fio_overhead import MEMORY, Once, measured, table
from tests.thorough import when_thorough


def test_rounds_are_compared_pair_by_pair() -> None:
    pairs = [
        (Once(11.0, {"a": 90.0, "b": 1.0}), Once(10.0, {"a": 100.0, "b": 2.0})),
        (Once(24.0, {"a": 110.0, "b": 1.0}), Once(20.0, {"a": 100.0, "b": 2.0})),
        (Once(6.0, {"a": 1.0, "b": 1.0}), Once(5.0, {"a": 1.0, "b": 2.0})),
    ]
    said = table(pairs, 5)
    assert "3 interleaved repeats, 2 jobs of 5 s" in said
    assert "to the prompt | 1.20 (1.10–1.20) |" in said
    assert "| IOPS of a | 1.00 (0.90–1.10) |" in said and "| IOPS of b | 0.50 (0.50–0.50) |" in said
    assert "A job takes 0.50 s more" in said


@pytest.mark.needs_root
@pytest.mark.needs_tools("fio", "losetup")
@when_thorough("is a benchmark")
def test_both_methods_run_the_same_jobs() -> None:
    if not MEMORY.is_dir():
        pytest.skip("there is no /dev/shm here")
    ((ours, theirs),) = measured(1, 0.1, 16 * MIB)
    jobs = {"RND4K-Q1T1-read", "RND4K-Q32T1-read", "SEQ1M-Q8T1-read"}
    assert set(ours.iops) == set(theirs.iops) == jobs
    assert all(rate > 0 for each in (ours, theirs) for rate in (*each.iops.values(), each.wall))
