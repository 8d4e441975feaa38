"""Jobs as fio understands them and figures as it reports them, against fio's own JSON."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.errors import Refused, Stopped
from aligntool.linux.held import held
from aligntool.measure.fio import Job, Pattern, fill_job, fio_options, is_plain, read_fio, run_job
from aligntool.units import KIB, MIB
from tests.conftest import is_blank, run

SIZE = 8 * MIB
fio = pytest.mark.needs_tools("fio")


def job(path: Path, **words: object) -> Job:
    plain = Job(
        name="one", path=str(path), pattern=Pattern.RANDOM_READ, block=4 * KIB, span=SIZE, runtime_s=0.3, direct=False
    )
    return replace(plain, **words)  # type: ignore[arg-type]


@fio
@pytest.mark.parametrize("name", ["disk.img", "a:b #c;d $x ${HOME} é 'q' \\.img", "new\nline.img"])
def test_the_reported_figures_are_those_of_fio(sparse: Callable[..., Path], name: str) -> None:
    path = sparse(SIZE, name)
    kept: list[str] = []
    measured = run_job(job(path, pattern=Pattern.RANDOM_MIXED, read_share=70, depth=4, threads=2), keep=kept.append)
    said = json.loads(kept[0])
    told = said["jobs"][0]
    assert measured.fio_version == said["fio version"]
    assert measured.thread_cpu == told["usr_cpu"] + told["sys_cpu"]
    for side, words in ((measured.read, told["read"]), (measured.write, told["write"])):
        assert side is not None
        assert side.bytes_per_s == words["bw_bytes"]
        assert side.iops == words["iops"]
        assert side.moved == words["io_bytes"]
        percentiles = words["clat_ns"]["percentile"]
        assert side.p50_us == percentiles["50.000000"] / 1000
        assert side.p99_us == percentiles["99.000000"] / 1000
        assert side.p999_us == percentiles["99.900000"] / 1000
    assert path.stat().st_size == SIZE


@fio
def test_a_file_is_filled_with_incompressible_data(sparse: Callable[..., Path]) -> None:
    path = sparse(SIZE)
    told: list[float] = []
    measured = run_job(fill_job(str(path), SIZE, direct=False), tell=told.append)
    assert measured.write and measured.write.moved == SIZE and measured.read is None
    packed = subprocess.run(["gzip", "-c", path], stdout=subprocess.PIPE, check=True).stdout
    assert len(packed) > SIZE * 0.95
    assert told == sorted(told) and all(0 <= share <= 1 for share in told)


@fio
def test_fio_gets_what_is_held_and_not_another_file_of_its_name(sparse: Callable[..., Path]) -> None:
    path, other = sparse(SIZE), sparse(SIZE, "other.img")
    with held(str(path)):
        run_job(fill_job(str(path), SIZE, direct=False))
        assert not is_blank(path)
        path.rename(path.with_name("kept.img"))
        other.rename(path)
        with pytest.raises(Refused, match="something replaced it"):
            run_job(fill_job(str(path), SIZE, direct=False))
    assert is_blank(path)


@fio
def test_zeros_overwrite_other_data_in_a_file(sparse: Callable[..., Path]) -> None:
    path = sparse(SIZE)
    path.write_bytes(b"x" * SIZE)
    run_job(fill_job(str(path), SIZE, direct=False, zeros=True))
    assert is_blank(path)
    run_job(job(path, pattern=Pattern.RANDOM_WRITE, zeros=True))
    assert is_blank(path)


@fio
def test_the_total_of_a_mixed_job_is_the_sum_of_its_reads_and_writes(sparse: Callable[..., Path]) -> None:
    """One pass over the file in one order: as many requests, of which about 70 % are reads."""
    kept: list[str] = []
    mixed = job(sparse(SIZE), pattern=Pattern.RANDOM_MIXED, read_share=70, runtime_s=None, seed=1)
    for together in (False, True):
        measured = run_job(replace(mixed, together=together), keep=kept.append)
    told = json.loads(kept[0])["jobs"][0]
    assert measured.read is None and measured.write is not None
    assert measured.write.moved == told["read"]["io_bytes"] + told["write"]["io_bytes"] == SIZE
    assert told["read"]["total_ios"] / (SIZE / (4 * KIB)) == pytest.approx(0.7, abs=0.05)
    assert measured.write.p50_us is not None and measured.write.iops > 0


@fio
def test_sequential_threads_each_have_a_part_of_the_span(tmp_path: Path, sparse: Callable[..., Path]) -> None:
    """fio's own iolog shows where each of them was."""
    path, log = sparse(SIZE), tmp_path / "log"
    words = fio_options(job(path, pattern=Pattern.READ, threads=2, block=64 * KIB, offset=4 * KIB, span=SIZE - MIB))
    words = tuple(word for word in words if not word.startswith(("--time_based", "--runtime")))
    run("fio", *words, f"--write_iolog={log}")
    found = sorted(
        int(line.split()[-2])
        for each in tmp_path.glob("log*")
        for line in each.read_text().splitlines()
        if " read " in line
    )
    assert found == [4 * KIB + step * 64 * KIB for step in range((SIZE - MIB) // (64 * KIB))]


@fio
def test_fio_is_never_started_on_a_file_that_is_too_short(sparse: Callable[..., Path]) -> None:
    """fio would delete the file and create another one."""
    path = sparse(SIZE)
    before = path.stat()
    for words in ({"span": SIZE + 1}, {"offset": 4 * KIB}, {"offset": -4096}, {"block": 2 * SIZE}):
        with pytest.raises(Refused, match="8MiB"):
            run_job(job(path, pattern=Pattern.RANDOM_WRITE, **words))
    for other in (path.parent, path.parent / "missing" / "file", Path("/dev/null")):
        with pytest.raises(Refused):
            run_job(job(other, pattern=Pattern.RANDOM_WRITE))
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_blocks) == (before.st_ino, before.st_mtime_ns, 0)
    assert not (path.parent / "missing").exists()


@fio
def test_a_failure_of_fio_is_one_sentence_and_is_a_refusal_only_before_a_write(sparse: Callable[..., Path]) -> None:
    path = sparse(SIZE)
    with pytest.raises(Refused, match="engine no_such_engine not loadable") as refused:
        run_job(job(path, engine="no_such_engine"))
    assert "\n" not in str(refused.value) and refused.value.hint
    with pytest.raises(Stopped, match="fio failed at one on"):
        run_job(job(path, engine="no_such_engine", pattern=Pattern.RANDOM_WRITE))


@fio
def test_a_read_job_does_not_allow_fio_to_write(sparse: Callable[..., Path]) -> None:
    path = sparse(SIZE)
    words = [word for word in fio_options(job(path)) if not word.startswith("--rw=")]
    done = subprocess.run(["fio", *words, "--rw=randwrite"], capture_output=True, text=True, check=False)
    assert done.returncode and "read-only mode" in done.stdout + done.stderr
    assert path.stat().st_blocks == 0


INTERRUPTED = """
import sys
from aligntool.measure.fio import FioInterrupted, run_job
from aligntool.measure.fio import Job, Pattern
def tell(share):
    if share > 0:
        print("running", flush=True)
job = Job(name="one", path=sys.argv[1], pattern=Pattern.RANDOM_READ, block=4096, span=int(sys.argv[2]), direct=False,
          runtime_s=600, engine="psync")
try:
    run_job(job, tell=tell)
except FioInterrupted as error:
    print("kept", error.measured.read.moved > 0, error.measured.read.runtime_s < 300)
"""


@fio
def test_ctrl_c_ends_fio_and_keeps_the_measured_figures(sparse: Callable[..., Path]) -> None:
    path = sparse(SIZE)
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(path), str(SIZE)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "running\n"
        below = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        assert len(below) == 1
        while _has_read(below[0]) < SIZE:  # fio needs a moment before it counts
            assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        rest = [line for line in child.stdout if line != "running\n"]
        assert child.wait() == 0
    assert rest == ["kept True True\n"]
    assert not Path(f"/proc/{below[0]}").exists()


@fio
def test_fio_does_not_outlive_the_process_that_started_it(sparse: Callable[..., Path]) -> None:
    path = sparse(SIZE)
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(path), str(SIZE)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdout.readline() == "running\n"
        (below,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        child.kill()
        child.wait()
    for _ in range(100):
        if not Path(f"/proc/{below}").exists() or "State:\tZ" in Path(f"/proc/{below}/status").read_text():
            return
        time.sleep(0.1)
    raise AssertionError("fio still runs")


def _has_read(process: str) -> int:
    """Return the bytes read, as the kernel counted them (proc_pid_io(5))."""
    return int(Path(f"/proc/{process}/io").read_text().split()[1])


def test_without_fio_the_package_is_named(sparse: Callable[..., Path]) -> None:
    """In a process of its own, whose PATH and whose usual folders have no fio."""
    code = (
        "import sys\n"
        "from aligntool.errors import Refused\n"
        "from aligntool.measure.fio import Job, Pattern\n"
        "from aligntool.measure.fio import run_job\n"
        "try:\n"
        "    run_job(Job(name='one', path=sys.argv[1], pattern=Pattern.READ, block=512, span=512))\n"
        "except Refused as error:\n"
        "    print(error, '/', error.hint)\n"
    )
    if any((Path(folder) / "fio").exists() for folder in ("/usr/local/sbin", "/usr/sbin", "/sbin")):
        pytest.skip("fio lies among the administrator's programs here, where it is always found")
    done = subprocess.run(
        [sys.executable, "-c", code, sparse(SIZE)], capture_output=True, text=True, check=True,
        env=os.environ | {"PATH": "/nonexistent"},
    )  # fmt: skip
    assert "not installed" in done.stdout and "install the package fio" in done.stdout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no figures"),
        ("fio: something\n", "no figures"),
        ("{", "is not its JSON"),
        ("[" * 10**5, "no figures"),
        ('{"a":' + "[" * 10**5, "is not its JSON"),
        ("{}", "jobs: not a list"),
        ('{"jobs": []}', "no figures for a job"),
        ('{"jobs": [3]}', "not an object"),
        ('{"jobs": [{"read": []}]}', "read: not an object"),
        ('{"jobs": [{"read": {"total_ios": "x"}}]}', "total_ios: not a whole number"),
        ('{"jobs": [{"read": {"total_ios": NaN}}]}', "NaN is not a number"),
        ('{"jobs": [{"read": {"total_ios": 1, "io_bytes": 1, "bw_bytes": -1}}]}', "bw_bytes: -1 is out of range"),
        ('{"jobs": [{"read": {"total_ios": 1, "io_bytes": 1, "bw_bytes": 1e999}}]}', "bw_bytes: inf is out of range"),
    ],
)
def test_invalid_output_of_fio_is_reported(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_fio(text)


@pytest.mark.parametrize("name", ["/a b", "/a:b", "/a#b", "/a;b", "/a$b", "relative", "/a\\b", "/a\nb", ""])
def test_a_name_that_fio_would_misread_is_not_plain(name: str) -> None:
    assert not is_plain(name)
    assert is_plain("/dev/mapper/vg-data_1")
