"""Profiles: the fio jobs that result, compared with runs of fio that were written by hand."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.measure.fio import fio_options
from aligntool.measure.results import Data
from aligntool.measure.schedule import (
    SPAN_OF_PASSES,
    BenchOptions,
    BenchPlan,
    Target,
    TargetKind,
    filling,
    job_of,
    plan_bench,
    rounds_of,
    warm_up,
)
from aligntool.recipes.goals import BenchGoal, BenchTest, load_recipes, parse_recipe, recipe
from aligntool.units import GIB, KIB, MIB
from tests.conftest import run
from tests.thorough import sample

FOLDER = Target("/srv", TargetKind.FOLDER, "/srv", free=1 << 40)
DISK = Target("/dev/sdx", TargetKind.DEVICE, "/dev/sdx", size=64 * GIB)


def goal_of(name: str) -> BenchGoal:
    goal = recipe(name, "bench").goal
    assert isinstance(goal, BenchGoal)
    return goal


def plan_of(name: str, target: Target = FOLDER, wish: BenchOptions | None = None) -> BenchPlan:
    return plan_bench(name, goal_of(name), target, wish or BenchOptions())


# As the makers and the articles describe them: SEQ or RND, bytes, depth, threads; "read" or "write" if only one is
# measured. Then the seconds of a run and the span.
ATTO = "512,1k,2k,4k,8k,16k,32k,64k,128k,256k,512k,1m,2m,4m,8m,12m,16m,24m,32m,48m,64m"
PUBLISHED = {
    "crystaldiskmark": ("seq 1m 8 1, seq 1m 1 1, rnd 4k 32 1, rnd 4k 1 1", 5, "1g"),
    "crystaldiskmark-nvme": ("seq 1m 8 1, seq 128k 32 1, rnd 4k 32 16, rnd 4k 1 1", 5, "1g"),
    "peak": ("seq 1m 8 1, rnd 4k 32 16", 5, "1g"),
    "real-world": ("seq 1m 1 1, rnd 4k 1 1", 5, "1g"),
    "amorphousdiskmark": ("seq 128k 32 1, rnd 4k 32 1, seq 1m 1 1, rnd 4k 1 1", 5, "1g"),
    "as-ssd": ("seq 16m 1 1, rnd 4k 1 1, rnd 4k 1 64", 5, "1g"),
    "atto": (", ".join(f"seq {size} 4 1" for size in ATTO.split(",")), 1, "256m"),
    "iometer": ("seq 128k 32 1, rnd 4k 32 1, rnd 4k 32 2, rnd 4k 32 4", 6, "1g"),
    "threads": (", ".join(f"rnd 4k 32 {threads} read" for threads in (1, 2, 4, 8, 16, 32)), 3, "1g"),
    "boot": ("rnd 4k 1 1", 5, "1g"),
    "steady": ("rnd 4k 32 1 write, rnd 4k 32 1 read", 60, "16g"),
}


def by_hand() -> list[list[str]]:
    """Return the fio options of each published test as an expert would type them."""
    jobs = []
    for tests, seconds, size in PUBLISHED.values():
        for words in tests.split(", "):
            access, block, depth, threads, *only = words.split()
            for way in only or ("read", "write"):
                rw = way if access == "seq" else f"rand{way}"
                jobs.append(
                    [
                        "--name=hand", "--ioengine=libaio", "--direct=1", f"--rw={rw}", f"--bs={block}",
                        f"--iodepth={depth}", f"--numjobs={threads}", "--time_based", f"--runtime={seconds}",
                        f"--size={size}",
                    ]
                )  # fmt: skip
    return jobs


@pytest.mark.needs_tools("fio")
def test_fio_reads_the_profiles_as_it_reads_options_written_by_hand() -> None:
    """fio itself prints how it understood each job (`--debug=parse`)."""
    assert set(PUBLISHED) == {each.name for each in load_recipes() if each.kind == "bench"}
    ours = []
    for name in PUBLISHED:
        plan = plan_of(name)
        for test in plan.tests:
            ours += [word for word in fio_options(job_of(plan, test, "/nowhere")) if word != "--readonly"]
    hand = by_hand()
    found = understood([word for job in hand for word in job])
    assert len(found) == len(hand) == 98
    ours_found = understood(ours)
    for one in ours_found:
        each = int(one["numjobs"])  # has its part of the span
        one["size"] = str(int(one["size"]) * (each if one["rw"] in ("read", "write") else 1))
    for one, other in zip(ours_found, found, strict=True):
        one["size"], other["size"] = (
            str(int(each["size"]) // int(each["bs"]) * int(each["bs"])) for each in (one, other)
        )  # fio omits a request that does not fit
    assert ours_found == found


@sample(2)
@pytest.mark.needs_tools("fio")
@pytest.mark.parametrize(
    ("profile", "title", "hand"),
    [
        ("crystaldiskmark", "SEQ1M Q8T1 read", "--rw=read --bs=1m --iodepth=8"),
        ("crystaldiskmark", "RND4K Q32T1 write", "--rw=randwrite --bs=4k --iodepth=32"),
        ("boot", "RND4K Q1T1 read", "--rw=randread --bs=4k --iodepth=1"),
        ("as-ssd", "SEQ16M Q1T1 write", "--rw=write --bs=16m --iodepth=1"),
        ("atto", "SEQ512 Q4T1 read", "--rw=read --bs=512 --iodepth=4"),
        ("atto", "SEQ12M Q4T1 write", "--rw=write --bs=12m --iodepth=4"),
        ("threads", "RND4K Q32T1 read", "--rw=randread --bs=4k --iodepth=32"),
        ("steady", "RND4K Q32T1 write", "--rw=randwrite --bs=4k --iodepth=32"),
    ],
)
def test_a_run_sends_the_same_requests_as_one_that_was_written_by_hand(
    tmp_path: Path, profile: str, title: str, hand: str
) -> None:
    """fio's own log of the requests of both: reads or writes, sizes, places, and the span that they cover.

    Each run covers the span once, without a limit of time: on a busy machine some tenths of a second hold one request.
    """
    path = tmp_path / "file"
    path.write_bytes(bytes(32 * MIB))
    plan = plan_of(profile, replace(FOLDER, direct=False), BenchOptions(size=32 * MIB, runtime_s=0.4))
    (test,) = (test for test in plan.tests if test.title == title)
    common = (f"--filename={path}", "--ioengine=libaio", "--direct=0", "--size=32m")
    options = fio_options(job_of(plan, test, str(path)))
    timed = [option for option in options if option.split("=")[0] in ("--time_based", "--runtime")]
    assert len(timed) == 2
    ours = requests(tmp_path / "ours", [option for option in options if option not in timed])
    theirs = requests(tmp_path / "hand", ("--name=hand", "--thread", "--end_fsync=1", *common, *hand.split()))
    assert {(do, length) for do, _, length in ours} == {(do, length) for do, _, length in theirs}
    assert {(do, length) for do, _, length in ours} == {("write" if test.write else "read", test.block)}
    whole = 32 * MIB // test.block  # requests of one way over the span
    places, others = ([offset for _, offset, _ in found] for found in (ours, theirs))
    in_order = [at * test.block for at in range(whole)]
    assert sorted(places) == sorted(others) == in_order  # each block once
    assert (places == in_order, others == in_order) == (not test.random, not test.random)


def requests(log: Path, words: Sequence[str]) -> list[tuple[str, int, int]]:
    run("fio", *words, f"--write_iolog={log}")
    found = []
    for line in log.read_text().splitlines():
        *_, do, offset, length = ("", *line.split())[-4:]
        if do in ("read", "write"):
            found.append((do, int(offset), int(length)))
    assert found
    return found


def understood(words: list[str]) -> list[dict[str, str]]:
    said = run("fio", "--parse-only", "--debug=parse", *words)
    jobs: list[dict[str, str]] = []
    option = ""
    for line in said.splitlines():
        if found := re.search(r" handle_option=(\w+), ptr=(.*)", line):
            option = found[1]
            if option == "name":
                jobs.append({})
            elif option in ("rw", "bs", "ioengine", "iodepth", "numjobs", "direct", "time_based", "runtime", "size"):
                jobs[-1][option] = found[2]
        elif (found := re.search(r"ret=0, out=(\d+)", line)) and option in jobs[-1]:
            jobs[-1][option] = found[1]  # as a number, in bytes or microseconds
    return jobs


def test_the_atto_sweep_has_all_of_its_sizes_at_depth_4() -> None:
    """0.5 KiB to 64 MiB, as its window lists them."""
    kib = (0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    mib = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
    sizes = [round(size * KIB) for size in kib] + [size * MIB for size in mib]
    assert len(sizes) == 21
    for write in (False, True):
        assert [test.block for test in goal_of("atto").tests if test.write is write] == sizes
    assert {(test.depth, test.threads, test.random) for test in goal_of("atto").tests} == {(4, 1, False)}


def test_the_thread_sweep_only_reads() -> None:
    goal = goal_of("threads")
    assert [test.threads for test in goal.tests] == [1, 2, 4, 8, 16, 32] and not goal.writes


def test_the_steady_state_profile_follows_the_snia_specification() -> None:
    goal = goal_of("steady")
    assert (goal.prepare, goal.until_steady, goal.repeats, goal.runtime_s) == ("twice", True, 25, 60)


def test_every_profile_names_its_source_and_can_be_planned() -> None:
    profiles = [each for each in load_recipes() if each.kind == "bench"]
    assert len(profiles) == 11
    for each in profiles:
        assert each.source and plan_of(each.name).tests


# Where the tests run


def test_a_device_is_only_read_unless_destructive_is_given() -> None:
    plan = plan_of("crystaldiskmark", DISK)
    assert not plan.writes and plan.fills == 0 and len(plan.tests) == 4 and len(plan.skipped) == 4
    assert all("--readonly" in fio_options(job_of(plan, test, "/dev/sdx")) for test in plan.tests)
    given = plan_of("crystaldiskmark", DISK, BenchOptions(destructive=True))
    assert given.writes and len(given.tests) == 8 and not given.skipped


def test_mixed_tests_are_added_to_the_others_and_write() -> None:
    """CrystalDiskMark's mix is 70 % reads and 30 % writes."""
    plan = plan_of("crystaldiskmark", wish=BenchOptions(mix=70))
    mixed = [test for test in plan.tests if test.reads is not None]
    assert [test.title for test in mixed] == [
        "SEQ1M Q8T1 mix70", "SEQ1M Q1T1 mix70", "RND4K Q32T1 mix70", "RND4K Q1T1 mix70",
    ]  # fmt: skip
    assert plan.tests[:-4] == plan_of("crystaldiskmark").tests
    words = [fio_options(job_of(plan, test, "/srv/x")) for test in mixed]
    assert all({"--rwmixread=70", "--unified_rw_reporting=1"} <= set(each) for each in words)
    patterns = [word for each in words for word in each if word.startswith("--rw=")]
    assert patterns == ["--rw=rw"] * 2 + ["--rw=randrw"] * 2
    assert all("--readonly" not in each for each in words)
    read_only = plan_of("crystaldiskmark", DISK, BenchOptions(mix=70))
    assert not any(test.reads for test in read_only.tests) and any("mix70" in each for each in read_only.skipped)


def test_zeros_are_written_only_if_they_were_requested() -> None:
    for data in Data:
        plan = plan_of("crystaldiskmark", wish=BenchOptions(data=data))
        jobs = [filling(plan, "/srv/x"), *(job_of(plan, test, "/srv/x") for test in plan.tests)]
        for job in jobs:
            assert ("--zero_buffers=1" in fio_options(job)) is (data is Data.ZERO and job.writes)
            assert ("--readonly" in fio_options(job)) is not job.writes


def test_the_announced_time_includes_the_pauses() -> None:
    plain, paused = (plan_of("real-world", wish=BenchOptions(pause_s=pause)) for pause in (0, 5))
    runs = plain.rounds * len(plain.measured)
    assert paused.seconds(rotational=False) - plain.seconds(rotational=False) == pytest.approx(5 * runs)


def test_an_existing_file_is_only_read() -> None:
    assert not plan_of("iometer", Target("x", TargetKind.FILE, "x", size=GIB)).writes


def test_steady_state_uses_the_whole_device_and_overwrites_it_twice() -> None:
    plan = plan_of("steady", DISK, BenchOptions(destructive=True))
    assert plan.settings.span == 64 * GIB and plan.fills == 2 and plan.settings.prepare == "twice"
    assert plan_of("steady").settings.span == 16 * GIB
    assert plan_of("crystaldiskmark", DISK, BenchOptions(destructive=True)).settings.span == GIB


def test_a_device_with_blocks_of_4_kib_gets_no_smaller_requests() -> None:
    plan = plan_of("atto", replace(DISK, logical_block=4096))
    assert min(test.block for test in plan.tests) == 4096
    assert any(
        "SEQ512 Q4T1 read: the device accepts only multiples of its logical blocks of 4KiB" in why
        for why in plan.skipped
    )


@pytest.mark.parametrize(
    ("name", "target", "wish", "why"),
    [
        ("boot", replace(DISK, size=GIB), BenchOptions(size=2 * GIB), "has 1GiB, but --span is 2GiB"),
        ("boot", replace(FOLDER), BenchOptions(size=512), "do not fit into 512B"),
        ("peak", Target("x", TargetKind.FILE, "x", size=100), BenchOptions(), "do not fit"),
    ],
)
def test_an_impossible_benchmark_is_refused(name: str, target: Target, wish: BenchOptions, why: str) -> None:
    with pytest.raises(Refused, match=why):
        plan_of(name, target, wish)


def test_tests_are_interleaved_and_every_other_round_is_reversed() -> None:
    plan = plan_of("real-world", wish=BenchOptions(repeats=3))
    rounds = list(rounds_of(plan))
    assert [number for number, _ in rounds] == [1, 2, 3]
    assert rounds[0][1] == plan.tests == rounds[2][1] and rounds[1][1] == plan.tests[::-1]


def test_passes_follow_one_another_in_the_same_order_over_the_same_data() -> None:
    plan = plan_of("real-world", wish=BenchOptions(passes=(1, 5)))
    rounds = list(rounds_of(plan))
    assert [number for number, _ in rounds] == [1, 2, 3, 4, 5] * 4
    assert all(tests == (plan.tests[place // 5],) for place, (_, tests) in enumerate(rounds))
    words = fio_options(job_of(plan, BenchTest(True, 4 * KIB, 1, 1, False), "/srv/x"))
    assert f"--size={SPAN_OF_PASSES}" in words and not any(word.startswith("--time_based") for word in words)
    assert "--randrepeat=1" in words and any(word.startswith("--randseed=") for word in words)


@pytest.mark.parametrize("target", [FOLDER, replace(DISK, size=GIB)])
def test_a_first_pass_reads_data_that_no_other_test_has_read(target: Target) -> None:
    """Each has 64 MiB of its own, one after the other, and the area that wakes the drive is behind all of them."""
    plan = plan_of("real-world", target, BenchOptions(passes=(1, 5), destructive=target is not FOLDER))
    jobs = [job_of(plan, test, "/srv/x") for test in plan.tests]
    assert [(job.offset, job.span) for job in jobs] == [(64 * MIB * at, 64 * MIB) for at in range(4)]
    warm = warm_up(plan, "/srv/x")
    assert warm.offset == 4 * 64 * MIB and warm.offset + warm.span == plan.room and not warm.writes
    assert filling(plan, "/srv/x").span == plan.room
    assert all(job_of(plan_of("real-world"), test, "/srv/x").offset == 0 for test in plan.tests)


def test_tests_in_passes_share_the_space_of_a_device() -> None:
    """A disk of 9 MiB: 1 MiB to wake it, 4 MiB for each of two tests, and all 8 MiB where one is left."""
    disk = replace(DISK, size=9 * MIB)
    both = plan_of("boot", disk, BenchOptions(passes=(5,), destructive=True))
    only = plan_of("boot", disk, BenchOptions(passes=(5,)))
    assert (both.settings.span, both.room) == (4 * MIB, 9 * MIB)
    assert (only.settings.span, only.room) == (8 * MIB, 9 * MIB)
    with pytest.raises(Refused, match="has 9MiB, 4MiB for each test, but --span is 5MiB"):
        plan_of("boot", disk, BenchOptions(size=5 * MIB, passes=(5,), destructive=True))
    with pytest.raises(Refused, match="do not fit"):
        plan_of("boot", replace(disk, size=MIB), BenchOptions(passes=(5,)))


@pytest.mark.needs_tools("fio")
def test_a_pass_touches_every_block_once_and_always_in_the_same_order(tmp_path: Path) -> None:
    """Checked by fio's own iolog."""
    path, orders = tmp_path / "file", []
    path.write_bytes(b"x" * MIB)
    plan = plan_of("boot", replace(FOLDER, direct=False), BenchOptions(size=MIB, passes=(1, 2)))
    for number in range(2):
        log = tmp_path / f"log{number}"
        run("fio", *fio_options(job_of(plan, plan.tests[0], str(path))), f"--write_iolog={log}")
        orders.append([int(line.split()[-2]) for line in log.read_text().splitlines() if " read " in line])
    assert orders[0] == orders[1] != sorted(orders[0])
    assert sorted(orders[0]) == list(range(0, MIB, 4 * KIB))


# User-defined recipes

GOOD = """\
format = 1
kind = "bench"
summary = "mine"
source = "made up"
size = "64MiB"
runtime = 0.5
repeats = 2
[[test]]
access = "random"
block = ["4KiB", "8KiB"]
depth = [1, 4]
do = "read"
"""


def test_a_list_of_values_is_expanded_to_one_test_for_each() -> None:
    goal = parse_recipe("mine.toml", GOOD).goal
    assert isinstance(goal, BenchGoal) and (goal.size, goal.runtime_s, goal.repeats) == (64 * MIB, 0.5, 2)
    assert [(test.block, test.depth) for test in goal.tests] == [(4096, 1), (4096, 4), (8192, 1), (8192, 4)]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('access = "random"', "", "access is missing"),
        ('access = "random"', 'access = "rnd"', "access cannot be 'rnd'"),
        ("depth = [1, 4]", "depth = 0", "depth must be a number from 1 to 1024"),
        ("depth = [1, 4]", "depth = []", "empty list"),
        ("depth = [1, 4]", "depth = true", "depth must be a number"),
        ("depth = [1, 4]", "dept = 1", "unknown key 'dept'"),
        ('["4KiB", "8KiB"]', '"4K"', "is not a size"),
        ('["4KiB", "8KiB"]', '"1000B"', "multiple of 512B"),
        ('["4KiB", "8KiB"]', '"128MiB"', "up to 64MiB"),
        ('do = "read"', 'do = "trim"', "do: 'trim' is not a direction"),
        ("repeats = 2", "repeats = 2.5", "whole number"),
        ("runtime = 0.5", "runtime = 0", "from 0.1 to 86400"),
        ('size = "64MiB"', 'size = "4KiB"', "smaller than the requests"),
        ('kind = "bench"', 'kind = "raid"\nlevel = "raid1"', "unknown key"),
        ('summary = "mine"', 'summary = "mine"\ndevice = "/dev/sda"', "unknown key 'device'"),
    ],
)
def test_a_mistake_in_a_recipe_is_refused(before: str, after: str, why: str) -> None:
    assert before in GOOD
    with pytest.raises(Refused, match=re.escape(why)):
        parse_recipe("mine.toml", GOOD.replace(before, after))


def test_a_benchmark_without_tests_or_with_partitions_is_refused() -> None:
    with pytest.raises(Refused, match="needs tests"):
        parse_recipe("mine.toml", GOOD.partition("[[test]]")[0])
    with pytest.raises(Refused, match="cannot have a \\[\\[part\\]\\]"):
        parse_recipe("mine.toml", GOOD + '[[part]]\nsize = "rest"\nrole = "linux"\n')
    with pytest.raises(Refused, match="only a recipe for a benchmark"):
        parse_recipe(
            "x.toml", 'format = 1\nkind = "realign"\nsummary = "x"\nsource = "y"\n[[test]]\naccess = "random"\n'
        )
