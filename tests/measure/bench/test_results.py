"""Verdicts and statistics on made-up figures whose answer is known."""

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import linear_regression

import pytest

from aligntool.measure.compare import Verdict, boot_drive, compare, depth_gains, doubts, result_notes
from aligntool.measure.results import (
    Conditions,
    DriveState,
    Result,
    as_ssd_score,
    from_json,
    room_words,
    steadiness,
    to_json,
    warnings_of,
)
from aligntool.render.bench import result_lines
from aligntool.render.lines import text_of
from aligntool.units import GIB, KIB, MIB
from tests.measure.bench.sample_results import result, series


def said(made: Result) -> str:
    return "\n".join(result_notes(made))


def row_of(made: Result, title: str) -> list[str]:
    """Return the words of a row of the table, after the name of the test."""
    (row,) = (line for line in text_of(result_lines(made, width=120)) if line.startswith(f"  {title} "))
    return row.removeprefix(f"  {title} ").split()


def test_the_median_is_reported_with_the_lowest_and_the_highest() -> None:
    made = series(300e6, 100e6, 500e6, 200e6, 400e6)
    assert (made.rate.median, made.rate.low, made.rate.high, made.rate.count) == (300e6, 100e6, 500e6, 5)
    assert made.iops.median == 300e6 / 4096
    assert (made.middle("p50_us"), made.middle("p99_us"), made.middle("p999_us")) == (40.0, 90.0, 200.0)


def test_used_cores_are_those_of_all_threads() -> None:
    assert series(1e6, threads=16, cpu=25).cores == 4.0


@pytest.mark.parametrize(("cpu", "bound"), [(94.9, False), (95.0, True), (100.0, True)])
def test_a_thread_that_uses_a_full_core_is_reported_as_cpu_bound(cpu: float, bound: bool) -> None:
    made = series(1e6, cpu=cpu)
    assert made.cpu_bound is bound
    assert ("CPU-bound: RND4K Q1T1 read" in said(result(made))) is bound


@pytest.mark.parametrize(("busy", "bound"), [(7.5, False), (7.6, True), (8.0, True)])
def test_a_full_machine_is_cpu_bound_though_no_thread_is_full(busy: float, bound: bool) -> None:
    """16 threads on 8 cores: each has half a core, and there are no more. The row also shows it, next to the figure."""
    made = result(series(*[1e6] * 5, threads=16, cpu=48, busy=busy))
    assert made.series[0].cpu_bound is bound and not made.series[0].thread_full
    assert ("All 8 cores were busy" in said(made)) is bound
    (row,) = (line for line in text_of(result_lines(made, width=120)) if line.startswith("  RND4K Q1T16"))
    assert row.endswith(" CPU-bound\n") is bound
    assert from_json(to_json(made), "x").series[0].cpu_bound is bound
    faster = result(series(*[2e6] * 5, threads=16))
    assert compare(faster, made)[0].verdict is (Verdict.CPU if bound else Verdict.SLOWER)
    assert compare(made, made)[0].verdict is (Verdict.CPU if bound else Verdict.NOISE)


def test_the_as_ssd_score_follows_the_published_formula() -> None:
    """Round numbers instead of the rates of a review of 2011, so that the sum can be checked by hand."""
    made = [
        series(500e6, random=False, block=16 * MIB), series(400e6, random=False, block=16 * MIB, write=True),
        series(30e6), series(90e6, write=True), series(300e6, threads=64), series(200e6, threads=64, write=True),
    ]  # fmt: skip
    score = as_ssd_score(made)
    assert score and score[:2] == (50 + 30 + 300, 40 + 90 + 200)
    assert score[2] == 400 * 0.15 + 500 * 0.1 + 30 * 2 + 90 + 200 + 300 * 1.5
    assert "380 read, 330 write, 910 in total" in said(result(*made, score="as-ssd"))
    assert as_ssd_score(made[:-1]) is None
    # The median latency of RND4K Q1T1 is 40 µs here.
    assert "AS SSD's access time: 0.040 ms read, 0.040 ms write" in said(result(*made, score="as-ssd"))
    assert "access time: 0.040 ms read" in said(result(made[2], score="as-ssd"))
    assert "access time" not in said(result(*made))


SOME, NONE, UNKNOWN = ("works on several requests at once (NCQ or", "no gain from a deep queue", "can't tell whether")


@pytest.mark.parametrize(
    ("one", "deep", "answer"),
    [
        ((1.0, 1.05, 1.1, 1.0, 1.1), (4.0, 4.2, 4.4, 4.1, 4.3), SOME),
        ((1.0, 1.05, 1.1, 1.0, 1.1), (1.0, 1.1, 1.2, 1.1, 1.0), NONE),
        ((1.0,) * 5, (1.15,) * 5, NONE),  # different, but by too little
        ((1.0,) * 5, (0.5,) * 5, NONE),
        ((0.1, 1.0, 1.0, 1.0, 3.0), (1.0,) * 5, NONE),  # whatever the noise with one request in flight
        ((1.0, 3.0, 9.0, 3.0, 3.0), (5.0, 6.0, 7.0, 6.0, 6.0), UNKNOWN),  # twice, within the noise
        ((1.0,) * 5, (30.0, 30.0, 30.0, 30.0, 0.9), UNKNOWN),  # thirty times, and one run that was disturbed
        ((1.0,) * 5, (1.0, 1.0, 1.0, 30.0, 30.0), UNKNOWN),
        ((1.0,) * 5, (1.15, 1.15, 1.15, 1.15, 2.0), UNKNOWN),
    ],
)
def test_the_effect_of_a_deep_queue_is_a_gain_none_or_unknown(
    one: tuple[float, ...], deep: tuple[float, ...], answer: str
) -> None:
    between = (series(*[2e6] * 5, depth=2), series(*[3.8e6] * 5, depth=4))
    made = result(series(*(each * 1e6 for each in one)), *between, series(*(each * 1e6 for each in deep), depth=32))
    found = said(made)
    assert "the device offers a depth of 32" in found
    assert [words for words in (SOME, NONE, UNKNOWN) if words in found] == [answer]


def test_a_deep_queue_is_not_judged_by_unsuitable_measurements() -> None:
    """Through the page cache, by passes over the same data, or by fewer than five runs."""
    one, deep = series(*[1e6] * 5), series(*[8e6] * 5, depth=32)
    made = result(one, deep)
    assert "times the IOPS" in said(made)
    buffered = replace(made, settings=replace(made.settings, direct=False))
    for other in (buffered, result(one, deep, passes=(1, 5)), result(series(*[1e6] * 4), deep)):
        assert not list(depth_gains(other)) and "times the IOPS" not in said(other)


def test_the_gain_of_a_deep_queue_is_the_ratio_of_the_medians() -> None:
    deep = series(8e6, 9e6, 7e6, 8e6, 8e6, depth=32)
    gains = list(depth_gains(result(series(1e6, 2e6, 3e6, 2e6, 2e6), deep, series(*[5e6] * 5, depth=4))))
    assert [gain.times for gain in gains] == [4.0]
    others = (series(*[8e6] * 5, depth=32, threads=4), series(*[9e6] * 5, depth=32, write=True))
    assert not list(depth_gains(result(series(*[1e6] * 5), *others)))
    between = (series(*[1.3e6] * 5, depth=2), series(*[1.9e6] * 5, depth=4))
    bound = said(result(series(*[1e6] * 5, busy=0.2), *between, series(*[2e6] * 5, depth=32, cpu=99)))
    assert "2.0 times" in bound and "could do more: the processor limited it" in bound
    bound = said(result(series(*[1e6] * 5), series(*[1e6] * 5, depth=32, cpu=99)))
    assert "the processor limited it, so command queueing" in bound


@pytest.mark.parametrize(
    ("depths", "words"),
    [
        ((32,), "; the device offers a depth of 32"),
        ((None, 32, 31, None), "; the drives below md0 offer a depth of 31 or more (sdc)"),
        ((None, None), ""),
    ],
)
def test_an_array_offers_the_depth_of_its_members(depths: tuple[int | None, ...], words: str) -> None:
    drives = tuple(
        DriveState(name, queue_depth=depth, kind="md" if name == "md0" and len(depths) > 1 else "ata")
        for name, depth in zip(("md0", "sdb", "sdc", "sdd"), depths, strict=False)
    )
    between = (series(*[2e6] * 5, depth=2), series(*[4e6] * 5, depth=4))
    made = result(series(*[1e6] * 5), *between, series(*[8e6] * 5, depth=32))
    made = replace(made, conditions=replace(made.conditions, drives=drives))
    (line,) = (line for line in result_notes(made) if "8.0 times" in line)
    assert line.endswith("(NCQ or its like)" + words)


def test_a_machine_busy_with_other_programs_is_reported_and_still_compared() -> None:
    """Rows with 8 % of a core, on 8 cores that are all busy: none of that is caused by this load."""
    made = result(*(series(*[1e6] * 5, cpu=cpu, busy=8, depth=depth) for cpu, depth in ((0, 1), (8, 4))))
    assert [(each.cpu_bound, each.busy_machine, each.held_back) for each in made.series] == [
        (False, True, "busy machine")
    ] * 2
    assert "CPU-bound" not in said(made) and "busy machine: RND4K Q1T1 read" in said(made)
    rows = [line for line in text_of(result_lines(made, width=120)) if line.startswith("  RND4K")]
    assert all("busy machine" in row and "CPU" not in row for row in rows)
    faster = result(*(series(*[2e6] * 5, depth=depth) for depth in (1, 4)))
    assert {each.verdict for each in compare(faster, made)} == {Verdict.SLOWER}
    assert {each.verdict for each in compare(made, made)} == {Verdict.NOISE}
    assert any("busy machine" in doubt for doubt in doubts(made)) and not list(doubts(faster))


def test_on_a_busy_machine_the_effect_of_command_queueing_is_unknown() -> None:
    quiet = [series(*[rate * 1e6] * 5, depth=depth) for rate, depth in ((1, 1), (2, 2), (4, 4), (30, 32))]
    assert "works on several" in said(result(*quiet))
    for place in range(3):
        busy = [
            series(*[rate * 1e6] * 5, depth=depth, busy=8 if at == place else 0.5)
            for at, (rate, depth) in enumerate(((1, 1), (2, 2), (4, 4), (30, 32)))
        ]
        assert "can't tell whether the drive works on several" in said(result(*busy))
    slow = result(series(*[1e6] * 5), series(*[1e6] * 5, depth=32, busy=8))
    assert "no gain" not in said(slow) and "the machine was busy" in said(slow)


def noisy(rates: Sequence[float], noise: float, rng: random.Random) -> list[float]:
    return [1e6 * rate * max(rng.gauss(1, noise), 0.2) for rate in rates]


@pytest.mark.parametrize("count", range(2, 12))
def test_the_verdict_on_passes_is_right_or_unknown(count: int) -> None:
    """Drives with a cache of 3 to 40 times the rate, and without; one pass in ten is disturbed."""
    rng = random.Random(count)
    right = {True: 0, False: 0}
    for _ in range(200):
        for hybrid in (True, False):
            times = rng.uniform(3, 40) if hybrid else 1
            rates = [57, *[57 * times] * (count - 1)]
            disturbed = [
                rate * (rng.uniform(0.1, 0.9) if at and rng.random() < 0.1 else 1) for at, rate in enumerate(rates)
            ]
            found = said(result(series(*noisy(disturbed, 0.05, rng)), passes=(1, count)))
            claims = ["no cache shows" in found, "a cache keeps" in found]
            assert not (claims[0] if hybrid else claims[1]), (disturbed, found)
            right[hybrid] += claims[1] if hybrid else claims[0]
    assert (min(right.values()) > 40) is (count > 2), right


def test_a_hybrid_drive_is_recognised_by_its_later_passes() -> None:
    """Read once at 1 MB/s, then from the cache at 30; written at the same rate each time."""
    made = result(series(1e6, 30e6, 30e6, 30e6, 30e6), series(2e6, 2e6, 2.1e6, 1.9e6, 2e6, write=True), passes=(1, 5))
    lines = list(result_notes(made))
    assert "the figures of each test are those of its first pass" in lines[0]
    assert (
        "1.00 MB/s over one pass" in lines[1]
        and "30.0 times as fast (30.0 to 30.0): a cache keeps the data that was read" in lines[1]
    )
    # Each pass took a second here, so five passes together have the mean of the rates.
    assert f"{(1 + 4 * 30) / 5:.1f} MB/s over 5 passes" in lines[1]
    assert "no cache shows" in lines[2]


def test_passes_do_not_count_as_repeats() -> None:
    """The table shows the first pass. The boot, the AS SSD score and the gain of threads ignore passes."""
    as_ssd = [
        series(*rates, random=random, block=block, threads=threads, write=write)
        for write in (False, True)
        for rates, random, block, threads in (
            ((5e6, 500e6, 500e6), False, 16 * MIB, 1),
            ((0.4e6, 30e6, 30e6), True, 4 * KIB, 1),
            ((1e6, 90e6, 90e6), True, 4 * KIB, 64),
        )
    ]
    threads = [series(1e6, 80e6, 80e6, threads=count) for count in (2, 4)]
    made, repeated = (result(*as_ssd, *threads, score="as-ssd", passes=passes) for passes in ((1, 3), ()))
    assert row_of(made, "RND4K Q1T1 read")[:3] == ["0.400", "one", "run"]
    assert row_of(made, "SEQ16M Q1T1 write")[:3] == ["5.00", "one", "run"]
    assert boot_drive(made) is None and boot_drive(repeated) is not None
    for words in ("for a system", "AS SSD", "has the most IOPS"):
        assert words in said(repeated) and words not in said(made)
    only_read = (series(0.4e6, 30e6, 30e6),)
    assert "for a system" in said(result(*only_read)) and "for a system" not in said(result(*only_read, passes=(1, 3)))


def test_a_slow_pass_among_fast_ones_makes_the_cache_unknown() -> None:
    for rates in ((57, 200, 200, 155, 49), (57, 200, 200, 155, 80), (57, 20, 58, 57, 57), (57, 60, 200, 57, 57)):
        found = said(result(series(*(rate * 1e6 for rate in rates)), passes=(1, 5)))
        assert "can't tell whether there is a cache" in found and "no cache shows" not in found


def test_a_cache_that_may_have_been_full_before_is_not_excluded() -> None:
    """A file in a folder was just written. Blocks that were never written are slow to write once."""
    read, written = series(*[1e6] * 3), series(1e6, 30e6, 30e6, write=True)
    for kind, caveat in (("folder", True), ("device", False)):
        told = said(result(read, passes=(1, 3), kind=kind))
        assert "no cache shows" in told
        assert ("no cache shows, but a file that was just written is in a cache" in told) is caveat
    made = result(written, passes=(1, 3), kind="device")
    assert said(made).endswith("a cache takes the writes")
    fresh = replace(made, settings=replace(made.settings, prepare="none"))
    assert said(fresh).endswith("a cache takes the writes, or unwritten blocks are slower to write")


def test_passes_are_weighted_by_their_time() -> None:
    made = series(1e6, 3e6)
    assert made.of_passes(1) == 1e6 and made.of_passes(2) == 2e6 and made.of_passes(3) is None


def test_the_drives_of_the_article_have_the_latencies_of_the_article() -> None:
    """E3: 100 MB/s is 40.96 µs a read; 300 MB/s 13.65 µs."""
    slow = boot_drive(result(series(100e6), series(20e6, write=True)))
    assert slow and float(slow.read_s) == pytest.approx(40.96e-6) and float(slow.write_s) == pytest.approx(204.8e-6)
    assert boot_drive(result(series(100e6), series(20e6, write=True, depth=32))) is None


def test_the_sufficient_number_of_threads_is_the_lowest_within_the_noise() -> None:
    made = result(
        *(
            series(*[low * 1e9] * 4, high * 1e9, threads=threads)
            for low, high, threads in ((1, 1.01, 1), (1.9, 2, 2), (2.9, 3.1, 4), (3, 3.2, 8))
        )
    )
    assert "RND4K Q1T8 read has the most IOPS" in said(made) and "more than 4 threads: within the noise" in said(made)


@pytest.mark.parametrize("runs", range(1, 5))
def test_with_few_runs_the_sufficient_number_of_threads_is_unknown(runs: int) -> None:
    """IOMeter's 1, 2 and 4 workers with --repeats 1."""
    made = result(*(series(*[rate * 1e9] * runs, threads=n) for rate, n in ((1, 1), (2, 2), (1.9, 4))))
    assert "within the noise" not in said(made) and "can't tell how many threads are enough" in said(made)


def test_a_gain_up_to_the_most_threads_is_reported_as_not_exhausted() -> None:
    made = result(*(series(rate * 1e9, threads=threads) for rate, threads in ((1, 1), (1.9, 2), (3.5, 4))))
    assert "more than 4 threads were not tried" in said(made)


def test_runs_that_differ_widely_are_reported_as_noisy() -> None:
    assert "differ by more than 25%: RND4K Q1T1 read" in said(result(series(100e6, 90e6, 120e6)))
    assert "apart" not in said(result(series(100e6, 95e6, 110e6)))
    assert "apart" not in said(result(series(100e6)))


# Steady state


@pytest.mark.parametrize(
    ("rounds", "steady", "excursion", "slope"),
    [
        ([100] * 5, True, 0, 0),
        ([500, 300, 100, 100, 100, 100, 100], True, 0, 0),  # only the last five count
        ([90, 110, 90, 110, 100], True, 0.20, 0.08),  # exactly 20 % apart, hardly a trend
        ([89, 110, 90, 110, 100], False, 21 / 99.8, None),
        ([95, 97.5, 100, 102.5, 105], True, 0.10, 0.10),  # a straight line that rises by exactly 10 %
        ([94, 97, 100, 103, 106], False, 0.12, 0.12),
        ([106, 103, 100, 97, 94], False, 0.12, 0.12),  # and one that falls
        ([0, 0, 0, 0, 0], False, 0, 0),
    ],
)
def test_steady_state_is_defined_as_by_snia(
    rounds: list[float], steady: bool, excursion: float, slope: float | None
) -> None:
    found = steadiness(rounds)
    assert found and found.steady is steady and found.rounds == len(rounds)
    assert found.excursion == pytest.approx(excursion)
    assert slope is None or found.slope == pytest.approx(slope, abs=1e-9)
    fitted = linear_regression(range(5), rounds[-5:]).slope  # the fit of the standard library
    assert found.slope * found.average == pytest.approx(abs(fitted) * 4, abs=1e-9)


def test_with_fewer_than_five_rounds_the_steady_state_is_unknown() -> None:
    assert steadiness([100, 100, 100, 100]) is None
    assert "is unknown" in said(result(series(1e6, 1e6), steady=True))
    assert "RND4K Q1T1 read: steady after 6 rounds" in said(result(series(*[1e6] * 6), steady=True))
    assert "NOT steady" in said(result(series(1e6, 2e6, 3e6, 4e6, 5e6), steady=True))


def test_the_figures_of_a_steady_drive_are_those_of_its_last_five_rounds() -> None:
    """Before that, a fresh drive is faster: SNIA counts only the rounds of the window."""
    fresh, rest = (900e6, 800e6, 700e6, 600e6, 500e6, 400e6), (100e6, 101e6, 102e6, 99e6, 98e6)
    made = result(series(*fresh, *rest, depth=32, write=True), steady=True)
    (only,) = made.series
    assert (only.rate.median, only.rate.low, only.rate.high, only.rate.count) == (100e6, 98e6, 102e6, 5)
    assert only.rates == rest and only.iops.median == 100e6 / 4096 and only.steady is True
    assert len(from_json(to_json(made), "x").series[0].samples) == 11
    assert row_of(made, "RND4K Q32T1 write")[:2] == ["100.0", "98.0–102.0"]
    assert "the figures of each test are those of its last 5 rounds" in said(made)
    busy = replace(only, samples=tuple(replace(each, cpu=99 if each.number < 7 else 10) for each in only.samples))
    assert busy.cpu == 10


def test_rounds_that_did_not_become_steady_are_marked_next_to_the_figure() -> None:
    for rounds, steady in (((1e6,) * 4, False), ((1e6, 2e6, 3e6, 4e6, 5e6), False), ((1e6,) * 5, True)):
        made = result(series(*rounds), steady=True)
        assert made.series[0].steady is steady
        assert (row_of(made, "RND4K Q1T1 read")[-2:] == ["NOT", "steady"]) is not steady
    assert result(series(1e6, 5e6)).series[0].steady is None


@pytest.mark.parametrize(("kind", "told"), [("folder", True), ("device", False)])
def test_a_steady_file_is_not_reported_as_a_steady_drive(kind: str, told: bool) -> None:
    made = result(series(*[1e6] * 5), steady=True, kind=kind, span=16 * GIB)
    assert ("measured on a file of 16GiB, which does not represent the whole drive" in said(made)) is told
    assert "of the whole drive" not in said(result(series(*[1e6] * 5)))


# What invalidates a measurement


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Conditions(), ""),
        (Conditions(governor="performance", load=0.1, cores=8, filesystem="ext4", free=9, room=10), ""),
        (Conditions(governor="powersave"), "governor is powersave"),
        (Conditions(load=5.0, cores=8), "busy with other work (load 5 on 8 cores)"),
        (Conditions(on_battery=True), "battery"),
        (Conditions(filesystem="btrfs"), "writes every block to a new place"),
        (Conditions(filesystem="ext4", mount_options="rw,compress=zstd"), "may compress"),
        (Conditions(filesystem="nfs4"), "not a local file system"),
        (Conditions(filesystem="fuse.sshfs"), "not a local file system"),
        (Conditions(filesystem="overlay"), "overlay"),
        (Conditions(filesystem="ext4", free=5 * GIB, room=100 * GIB), "95 % full"),
        (Conditions(drives=(DriveState("md0", array_action="resync"),)), "md0 is busy with a resync"),
        (Conditions(drives=(DriveState("md0", array_action="idle", array_degraded=True),)), "md0 is degraded"),
        (Conditions(drives=(DriveState("nvme0n1", link="8 GT/s x2", link_slowed=True),)), "8 GT/s x2"),
        (Conditions(drives=(DriveState("nvme0n1", kind="nvme", temperature_after_c=81.0),)), "81 °C"),
        (Conditions(drives=(DriveState("nvme0n1", rotational=False, scheduler="bfq"),)), "scheduler bfq"),
        (Conditions(drives=(DriveState("sda", rotational=True, scheduler="bfq"),)), ""),
        (Conditions(drives=(DriveState("loop0", kind="loop"),)), "loop device"),
    ],
)
def test_conditions_that_invalidate_a_measurement_are_reported(seen: Conditions, words: str) -> None:
    found = "\n".join(warnings_of(seen, direct=True))
    assert words in found if words else found == ""


def test_a_run_through_the_page_cache_is_the_first_warning() -> None:
    assert "page cache" in next(warnings_of(Conditions(on_battery=True), direct=False))


@pytest.mark.parametrize(
    ("needed", "free", "fits"),
    [(GIB, 3 * GIB, True), (GIB, GIB, False), (95 * MIB, 100 * MIB, True), (96 * MIB, 100 * MIB, False), (0, 0, True)],
)
def test_a_file_system_is_not_filled_completely(needed: int, free: int, fits: bool) -> None:
    assert (room_words(needed, free) is None) is fits


def test_block_sizes_in_test_names_follow_the_usual_notation() -> None:
    assert series(1e6, block=512).test.name == "RND512 Q1T1"
    assert series(1e6, random=False, block=128 * KIB, depth=32).test.title == "SEQ128K Q32T1 read"
    assert series(1e6, random=False, block=MIB, depth=8, threads=2, write=True).test.title == "SEQ1M Q8T2 write"


def test_a_drive_that_was_only_read_is_rated_for_a_system_by_its_single_reads() -> None:
    """And one on which both were measured, by the boot of the article: 40,553 reads and 4,938 writes of 4 KiB."""
    deep, read, write = (series(900e6, depth=32), series(40e6, 50e6, 60e6), series(99e6, 100e6, 101e6, write=True))
    (said,) = (line for line in result_notes(result(deep, read)) if line.startswith("for a system"))
    assert "50.0 MB/s read one at a time" in said and "writes were not measured" in said
    (said,) = (line for line in result_notes(result(deep, read, write)) if line.startswith("for a system"))
    assert f"{(40_553 / 50e6 + 4_938 / 100e6) * 4096:.1f} s" in said
    assert not any(line.startswith("for a system") for line in result_notes(result(deep)))
