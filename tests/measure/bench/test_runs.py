"""`aligntool bench` as a user types it: every figure is fio's own, and nothing is left behind."""

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from aligntool.errors import Refused, Stopped
from aligntool.linux.content import hole_share
from aligntool.measure.fio import Job, Pattern, fill_job, name_of, run_job
from aligntool.measure.results import to_json
from aligntool.measure.run import made_file, run_sweep, silence_words
from aligntool.units import MIB, mb_s
from tests.conftest import run
from tests.measure.bench.sample_results import result, series
from tests.run_aligntool import program, run_aligntool
from tests.schemas import check
from tests.thorough import when_thorough

ROOT = Path(__file__).parents[3]
PROFILE = """\
format = 1
kind = "bench"
summary = "short"
source = "for tests"
size = "8MiB"
runtime = 0.2
repeats = 3
[[test]]
access = "random"
block = "4KiB"
depth = [1, 8]
[[test]]
access = "sequential"
block = "64KiB"
threads = 2
do = "read"
"""
QUICK = ("--profile", "boot", "--runtime", "0.1", "--repeats", "1", "--span", "1MiB")
fio = pytest.mark.needs_tools("fio")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Return a folder to measure in, a profile, and a separate history."""
    (tmp_path / "short.toml").write_text(PROFILE)
    (tmp_path / "drive").mkdir()
    yield tmp_path


def bench(place: Path, *words: str | Path, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = run_aligntool("bench", *words, code=code, env=environment(place))
    assert "Traceback" not in done.stderr
    return done


def interrupted(
    place: Path, *words: str | Path, at: str, by: signal.Signals = signal.SIGINT, before: Callable[[], object] = int
) -> tuple[str, str]:
    """Run it and send a signal once it prints this; return its standard output and what it then printed to standard
    error.
    """
    with subprocess.Popen(
        program("bench", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(place)
    ) as child:
        assert child.stderr and child.stdout
        for line in child.stderr:
            if at in line:
                break
        before()
        child.send_signal(by)
        told, said = child.stdout.read(), child.stderr.read()
        assert child.wait() == 130 and "Traceback" not in said, said
    return told, said


def environment(place: Path) -> dict[str, str]:
    return os.environ | {"XDG_STATE_HOME": str(place / "state"), "COLUMNS": "120", "NO_COLOR": "1"}


@fio
def test_every_figure_is_the_one_that_fio_printed(place: Path) -> None:
    """The table, the JSON and the history, compared with the JSON that fio wrote in each run."""
    words = ("--profile", place / "short.toml", "--fio-output", place / "fio", "-o", place / "out.json")
    told = bench(place, place / "drive", *words)
    document = json.loads((place / "out.json").read_text())
    check(document)
    assert len(list((place / "fio").iterdir())) == 15
    for row in document["series"]:
        way = "write" if row["write"] else "read"
        jobs = [
            json.loads((place / "fio" / f"{row['title'].replace(' ', '-')}-{number}.json").read_text())["jobs"][0]
            for number in (1, 2, 3)
        ]
        for sample, job in zip(row["samples"], jobs, strict=True):
            side, percentiles = job[way], job[way]["clat_ns"]["percentile"]
            assert sample["bytes_per_s"] == side["bw_bytes"] and sample["iops"] == side["iops"]
            assert sample["moved"] == side["io_bytes"] and sample["runtime_s"] == side["runtime"] / 1000
            assert sample["p99_us"] == percentiles["99.000000"] / 1000
            assert sample["cpu"] == pytest.approx(job["usr_cpu"] + job["sys_cpu"])
            assert side["bw_bytes"] > 0 and job["job options"]["size"] in (str(8 * MIB), str(4 * MIB))
        rates = sorted(job[way]["bw_bytes"] / 1e6 for job in jobs)
        line = next(line for line in told.stdout.splitlines() if line.startswith(f"  {row['title']} "))
        cells = line.removeprefix(f"  {row['title']} ").split()
        assert cells[0] == mb_s(1e6 * rates[1])
        assert cells[1] == f"{mb_s(1e6 * rates[0])}–{mb_s(1e6 * rates[2])}"
        assert cells[2] == f"{median(job[way]['iops'] for job in jobs):,.0f}"
        for cell, name in zip(cells[3:6], ("50.000000", "99.000000", "99.900000"), strict=True):
            micro = median(job[way]["clat_ns"]["percentile"][name] / 1000 for job in jobs)
            assert cell == (f"{micro:.1f}" if micro < 1000 else f"{micro:,.0f}")
        assert cells[6] == f"{median(job['usr_cpu'] + job['sys_cpu'] for job in jobs):.0f}%"
    kept = list((place / "state/aligntool/bench").iterdir())
    assert len(kept) == 1 and json.loads(kept[0].read_text()) == document
    assert list((place / "drive").iterdir()) == []


def test_results_are_listed_shown_and_compared(place: Path) -> None:
    """With known figures: 100 and 50 MB/s, then ten times that and a fifth of it."""
    history = place / "state/aligntool/bench"
    history.mkdir(parents=True)
    a, b = history / "1.json", history / "2.json"
    apart = (-2, -1, 0, 1, 2)
    read, written = ([rate + each for each in apart] for rate in (100, 50))
    a.write_text(to_json(result(series(*(x * 1e6 for x in read)), series(*(x * 1e6 for x in written), write=True))))
    read, written = ([rate + each for each in apart] for rate in (1000, 10))
    b.write_text(to_json(result(series(*(x * 1e6 for x in read)), series(*(x * 1e6 for x in written), write=True))))
    listed = json.loads(bench(place, "list", "--json").stdout)
    assert [row["file"] for row in listed] == [str(a), str(b)]
    assert "RND4K Q1T1 read 100.0 MB/s" in bench(place, "list").stdout
    shown = bench(place, "show", a).stdout
    assert ["100.0", "98.0–102.0", "24,414"] in [line.split()[3:6] for line in shown.splitlines()]
    compared = json.loads(bench(place, "compare", a, b, "--json").stdout)["others"][0]["tests"]
    assert [(row["times"], row["verdict"]) for row in compared] == [(10.0, "faster"), (0.2, "slower")]
    assert compared[0]["log10"] == 1.0
    estimate = json.loads(run_aligntool("estimate", "boot", a, b, "--json", code=0).stdout)
    slow, fast = 40_553 * 4096 / 100e6 + 4_938 * 4096 / 50e6, 40_553 * 4096 / 1e9 + 4_938 * 4096 / 10e6
    assert estimate["gap_s"] == pytest.approx(slow - fast)
    bench(place, "compare", a, code=2)
    bench(place, "show", place / "short.toml", code=3)


@fio
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=when_thorough("takes 10 s"))])
def test_an_interruption_removes_the_test_file_and_keeps_the_measured_figures(
    place: Path, number: signal.Signals
) -> None:
    words = (
        place / "drive",
        "--profile",
        place / "short.toml",
        "--runtime",
        "0.2",
        "--repeats",
        "500",
        "-o",
        place / "out",
    )
    made: list[Path] = []
    told, _ = interrupted(
        place, *words, at="2 of 500", by=number, before=lambda: made.extend((place / "drive").iterdir())
    )
    assert made[0].name.startswith(".aligntool-bench-")
    assert "(incomplete)" in told and "RND4K Q1T1 read" in told
    assert list((place / "drive").iterdir()) == []
    document = json.loads((place / "out").read_text())
    assert document["complete"] is False and all(row["samples"] for row in document["series"])


def test_a_dry_run_prints_the_fio_commands_and_creates_nothing(place: Path) -> None:
    told = bench(place, place / "drive", "--profile", "boot", "--dry-run")
    lines = told.stdout.splitlines()
    assert len(lines) == 3 and all(line.startswith("fio --name=") for line in lines)
    assert list((place / "drive").iterdir()) == [] and not (place / "state").exists()


@fio
def test_printed_commands_measure_a_path_that_fio_would_misread(place: Path) -> None:
    """fio splits a name at colons and ends it at # (fio(1), filename)."""
    target = place / "a:b #1; x"
    target.write_bytes(os.urandom(MIB))
    lines = bench(place, target, *QUICK, "--dry-run").stdout.splitlines()
    assert lines[0] == f"ln -s '{target}' fio-target" and len(lines) > 1
    folder = place / "typed"
    folder.mkdir()
    for line in lines:
        done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert [file.name for file in folder.iterdir()] == ["fio-target"]


@fio
def test_the_warm_up_before_a_first_pass_uses_another_area(place: Path) -> None:
    """From the arguments of fio in each run, in the order in which it ended."""
    words = ("--profile", "boot", "--passes", "1,2", "--span", "256KiB", "--fio-output", place / "fio")
    told = bench(place, place / "drive", *words)
    assert "a file that was just written" in told.stderr and "each test over its own 256KiB" in told.stderr
    runs = [json.loads(file.read_text()) for file in (place / "fio").iterdir()]
    runs.sort(key=lambda one: one["timestamp_ms"])
    options = [one["jobs"][0]["job options"] for one in runs]
    assert [one["name"] for one in options] == [
        "warm-up", *["RND4K-Q1T1-read"] * 2, "warm-up", *["RND4K-Q1T1-write"] * 2
    ]  # fmt: skip
    places = [(int(one["offset"]), int(one["offset"]) + int(one["size"])) for one in options]
    first, second, beyond = (0, 256 * 1024), (256 * 1024, 512 * 1024), (512 * 1024, 512 * 1024 + MIB)
    assert places == [beyond, first, first, beyond, second, second]
    lines = bench(place, place / "drive", *words[:6], "--dry-run").stdout.splitlines()
    assert [line.split()[1] for line in lines] == [
        "--name=fill", "--name=warm-up", "--name=RND4K-Q1T1-read", "--name=RND4K-Q1T1-write"
    ]  # fmt: skip


def test_existing_files_are_never_overwritten(place: Path) -> None:
    precious = place / "drive" / "precious"
    precious.write_bytes(b"mine" * 4096)
    said = bench(place, precious, "--destructive", "--yes", "--profile", "boot", code=3).stderr
    assert "--destructive is for devices" in said
    told = bench(place, precious, "--profile", "boot", "--dry-run").stdout
    assert "--rw=randread" in told and "--rw=randwrite" not in told
    bench(place, place / "drive" / "sub" / "file", code=3)
    bench(place, "/dev/null", code=3)
    assert precious.read_bytes() == b"mine" * 4096 and not (place / "drive" / "sub").exists()


@fio
def test_an_existing_file_is_measured_and_not_changed(place: Path) -> None:
    precious = place / "drive" / "precious"
    precious.write_bytes(os.urandom(MIB))
    before = precious.read_bytes()
    told = bench(place, precious, *QUICK)
    figures = told.stdout.partition("left out")[0]
    assert "nothing is written" in told.stderr and " read " in figures and "T1 write" not in figures
    assert precious.read_bytes() == before


@fio
@pytest.mark.parametrize(("written", "words"), [(0, "all of what"), (256, "75 % of what"), (1024, "")])
def test_a_sparse_file_is_reported_by_its_share_of_allocated_blocks(place: Path, written: int, words: str) -> None:
    """Compared with the blocks that stat(1) counts."""
    sparse = place / "drive" / "sparse"
    with sparse.open("wb") as file:
        file.write(os.urandom(written * 1024))
        file.truncate(MIB)
        os.fsync(file.fileno())
    told = bench(place, sparse, *QUICK, "--json", "-o", place / "out.json")
    share = json.loads(told.stdout)["conditions"]["hole_share"]
    assert share == 1 - int(run("stat", "-c", "%b", sparse)) * 512 / MIB
    check(json.loads(told.stdout))
    shown = bench(place, "show", place / "out.json").stdout
    for said in (told.stderr, shown):
        assert ("warning: " + words in said) if words else "holes" not in said


def test_a_hole_between_data_counts_only_within_the_measured_span(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as data:
        data.write(os.urandom(65536))
        data.seek(131072)
        data.write(os.urandom(65536))
    assert hole_share(str(file), 192 * 1024) == 1 / 3
    assert hole_share(str(file), 128 * 1024) == 1 / 2
    assert hole_share(str(file), 64 * 1024) == 0
    assert hole_share(str(tmp_path / "none"), 64 * 1024) is None


@fio
def test_a_size_that_is_not_in_whole_blocks_is_rounded_down(place: Path) -> None:
    told = bench(
        place, place / "drive", "--profile", "boot", "--runtime", "0.1", "--repeats", "1", "--span", "9000", "--json"
    )
    assert json.loads(told.stdout)["settings"]["span"] == 8192
    said = bench(place, place / "drive", "--profile", "boot", "--span", "1000", code=3).stderr
    assert "do not fit into 1000B" in said and "a larger --span" in said


@fio
def test_a_missing_file_is_created_and_removed_again(place: Path) -> None:
    bench(place, place / "drive" / "new file", *QUICK)
    assert list((place / "drive").iterdir()) == []


def test_a_folder_in_memory_and_insufficient_free_space_are_refused(place: Path) -> None:
    if "tmpfs" in run("stat", "-f", "-c", "%T", "/dev/shm"):
        assert "/dev/shm is in memory (" in bench(place, "/dev/shm", code=3).stderr
    said = bench(place, place / "drive", "--span", "900PiB", code=3).stderr
    assert "not enough free space" in said
    assert list((place / "drive").iterdir()) == []


def test_an_existing_result_file_is_not_overwritten(place: Path) -> None:
    """`-o` with an existing result: refused before anything is measured."""
    (place / "old.json").write_text("old")
    said = bench(place, place / "drive", *QUICK, "-o", place / "old.json", code=3).stderr
    assert "already exists; nothing was measured" in said
    assert (place / "old.json").read_text() == "old" and list((place / "drive").iterdir()) == []


def test_mistyped_arguments_are_reported(place: Path) -> None:
    assert "lst not found" in bench(place, "lst", code=3).stderr
    assert "there is no recipe 'cristal'" in bench(place, place / "drive", "--profile", "cristal", code=3).stderr
    assert "is for a layout" in bench(place, place / "drive", "--profile", "desktop-uefi", code=3).stderr
    for words in (("--passes", "0,5"), ("--passes", "x"), ("--runtime", "0"), ("--repeats", "0"), ("--span", "1G")):
        bench(place, place / "drive", *words, code=2)


@fio
def test_a_file_that_cannot_be_allocated_is_one_error_and_no_file_remains(place: Path) -> None:
    """A limit on the size of files simulates a failing drive: the file cannot be filled."""
    code = (
        "import resource, signal, sys\n"
        "from aligntool.__main__ import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))\n"
        "sys.argv[0] = 'aligntool'\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "bench", str(place / "drive"), "--profile", str(place / "short.toml")],
        capture_output=True, text=True, check=False, env=environment(place), timeout=120,
    )  # fmt: skip
    assert done.returncode == 3 and "8MiB cannot be allocated" in done.stderr and "Traceback" not in done.stderr
    assert list((place / "drive").iterdir()) == []


# Devices


@fio
@pytest.mark.needs_root
def test_a_device_is_only_read(place: Path, sparse: Callable[..., Path], loop: Callable[..., Path]) -> None:
    image = sparse(32 * MIB)
    device = loop(image)
    assert stat.S_ISBLK(device.stat().st_mode)
    told = bench(place, device, *QUICK)
    assert "nothing is written" in told.stderr and "loop device" in told.stderr
    assert "RND4K Q1T1 write" in told.stdout.partition("left out")[2]
    assert image.stat().st_blocks == 0


@fio
@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "wipefs", "blkdiscard", "sfdisk")
def test_a_device_is_overwritten_only_if_empty_and_its_name_is_typed(
    place: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    image = sparse(32 * MIB)
    device = loop(image)
    words = (*QUICK, "--destructive")
    assert "there is no terminal for the confirmation" in bench(place, device, *words, code=3).stderr
    run("mkfs.ext4", "-q", "-L", "precious", device)
    before = image.read_bytes()
    said = bench(place, device, *words, "--yes", code=3).stderr
    assert re.search(r'not empty: ext4 "precious"', said)
    assert image.read_bytes() == before
    run("wipefs", "-qa", device)
    run("blkdiscard", "-z", device)
    emptied = image.read_bytes()
    assert answered(place, [str(device), *map(str, words)], "wrong\n") == 3
    assert answered(place, [str(device), *map(str, words)], f"{device}\n") == 0
    after = image.read_bytes()
    assert after[:MIB] != bytes(MIB) and after[MIB:] == emptied[MIB:]


@fio
@pytest.mark.needs_root
def test_only_unrecognised_data_must_be_named_before_they_are_overwritten(
    place: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    image = sparse(32 * MIB)
    device = loop(image)
    words = (*QUICK, "--destructive", "--yes")
    bench(place, device, *words)
    bench(place, device, *words)  # on its own test data
    with device.open("r+b") as raw:
        raw.seek(4096)
        raw.write(os.urandom(4096))
    before = image.read_bytes()
    said = bench(place, device, *words, code=3).stderr
    assert "is not empty: unrecognised data" in said and f"--wipe {device}" in said
    assert "the disk is" in bench(place, device, *words, "--wipe", f"{device}0", code=2).stderr
    assert "requires --destructive" in bench(place, device, *QUICK, "--wipe", device, code=2).stderr
    assert image.read_bytes() == before
    bench(place, device, *words, "--wipe", device)
    assert image.read_bytes() != before
    bench(place, device, *words)


@fio
@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4", "sfdisk", "partx")
def test_an_empty_partition_is_overwritten_and_its_neighbours_are_not(
    place: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    image = sparse(32 * MIB)
    device = loop(image)
    run("sfdisk", device, stdin="label: gpt\n2048,8192\n10240,40960\n", fails=True)
    run("partx", "-a", device, fails=True)
    empty, full = (device.with_name(f"{device.name}p{number}") for number in (1, 2))
    if not (empty.is_block_device() and full.is_block_device()):
        pytest.skip("this machine makes no nodes for the partitions of a loop device")
    words = (*QUICK, "--destructive", "--yes")
    run("mkfs.ext4", "-q", full)
    before = image.read_bytes()
    assert "not empty: partition 1" in bench(place, device, *words, code=3).stderr
    assert "partition 2 of" in bench(place, full, *words, code=3).stderr
    assert image.read_bytes() == before
    bench(place, empty, *words)
    after = image.read_bytes()
    assert after[MIB : 2 * MIB] != before[MIB : 2 * MIB]
    assert after[:MIB] == before[:MIB] and after[2 * MIB :] == before[2 * MIB :]


@fio
@pytest.mark.needs_root
def test_steady_state_writes_the_whole_device_in_rounds(
    place: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    steady = 'prepare = "twice"\nuntil_steady = true\nsize = "8MiB"\nruntime = 0.1\nrepeats = 6\n'
    rows = '[[test]]\naccess = "random"\nblock = "4KiB"\ndepth = 32\ndo = "write"\n'
    head = 'format = 1\nkind = "bench"\nsummary = "x"\nsource = "for tests"\n'
    (place / "steady.toml").write_text(head + steady + rows)
    image = sparse(16 * MIB)
    device = loop(image)
    told = bench(place, device, "--profile", place / "steady.toml", "--destructive", "--yes", "-o", place / "out")
    document = json.loads((place / "out").read_text())
    assert document["settings"]["span"] == 16 * MIB and document["settings"]["prepare"] == "twice"
    (row,) = document["series"]
    iops = [sample["iops"] for sample in row["samples"]]
    assert 5 <= len(iops) <= 6 and "steady" in told.stdout
    if len(iops) == 5:  # it ended early, so they must have been
        assert max(iops) - min(iops) <= 0.2 * sum(iops) / 5
    assert image.stat().st_blocks * 512 >= 16 * MIB


@fio
@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.ext4")
def test_content_created_while_the_confirmation_waits_is_not_overwritten(
    place: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    image = sparse(32 * MIB)
    device = loop(image)
    made: list[bytes] = []

    def meanwhile() -> None:
        run("mkfs.ext4", "-q", "-L", "precious", device)
        made.append(image.read_bytes())

    words = [str(device), *map(str, QUICK), "--destructive"]
    assert answered(place, words, f"{device}\n", meanwhile) == 3
    assert image.read_bytes() == made[0]


def answered(
    place: Path, words: list[str], answer: str, meanwhile: Callable[[], None] = lambda: None, until: str = ""
) -> int:
    """Answer on a terminal; return the exit code. `until`: interrupt once it prints this."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        program("bench", *words),
        stdin=follower, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(place),
    ) as child:  # fmt: skip
        os.close(follower)
        assert child.stderr
        said = ""
        while not said.endswith("to continue: ") and (letter := child.stderr.read(1)):
            said += letter
        meanwhile()
        os.write(leader, f"{answer}\x04".encode())  # the end of the input, after a wrong answer
        for line in child.stderr if until else ():
            if until in line:
                child.send_signal(signal.SIGINT)
                break
        child.stderr.read()
        code = child.wait()
    os.close(leader)
    return code


@pytest.mark.parametrize(("seconds", "shown"), [(9.9, None), (10, 10), (19.9, 10), (20, 20), (79, 40), (3600, 2560)])
def test_stalled_progress_is_reported_at_increasing_intervals(seconds: float, shown: int | None) -> None:
    words = silence_words("/dev/sdx", seconds, 10)
    assert words == "" if shown is None else f"for {shown} s: /dev/sdx may" in words


@fio
def test_a_refused_load_reports_whether_earlier_loads_have_written(tmp_path: Path) -> None:
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.write_bytes(bytes(MIB))
    reads, writes = (
        Job(name="job", path=str(there), pattern=pattern, block=4096, span=MIB, runtime_s=0.2, direct=False)
        for pattern in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE)
    )
    for jobs, wrote in (
        ([replace(writes, path=str(missing))], False),
        ([reads, replace(reads, path=str(missing))], False),
        ([writes, replace(reads, path=str(missing))], True),
    ):
        ran = run_sweep([(0, "job", job) for job in jobs], len(jobs), lambda *_: None)
        assert isinstance(ran.failure, Refused) and ran.wrote is wrote


def test_a_link_in_place_of_the_file_does_not_redirect_writes(tmp_path: Path) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    victim.write_bytes(bytes(MIB))
    with made_file(str(folder), MIB) as path:
        (file,) = folder.iterdir()
        assert name_of(path) == str(file) and file.stat().st_size == MIB
        moved = file.rename(tmp_path / "moved")
        file.symlink_to(victim)
        run_job(fill_job(path, MIB, direct=False))
    assert victim.read_bytes() == bytes(MIB) != moved.read_bytes()
    assert list(folder.iterdir()) == []


def test_a_message_of_fio_has_the_name_of_the_file_that_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of its descriptor, by which fio knows it."""
    with made_file(str(tmp_path), MIB) as path, pytest.raises(Stopped) as stopped:
        messages = f"fio: io_u error on file {path}: Input/output error"
        monkeypatch.setattr("aligntool.measure.fio._run", lambda *_: ("", messages, 1, False))
        run_job(fill_job(path, MIB))
    assert str(stopped.value).count(f" {tmp_path}/") == 2 and "/proc/" not in str(stopped.value)
