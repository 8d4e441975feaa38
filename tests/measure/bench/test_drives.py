"""`aligntool bench` on drives whose answer is known: with and without a cache, serial and parallel.

The drives are nbdkit's own filters (delay, cache) over memory, and the serial drive of `tests/measure/unit`, through a
loop device and with real requests.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.units import MIB, significant
from tests.conftest import run
from tests.measure.bench.test_runs import answered
from tests.measure.unit.right_or_unknown import Answer, right_or_unknown
from tests.measure.unit.slow_drives import (
    aligntool,
    aligntool_first,
    device_over,
    nbdkit_file,
    needs_nbdkit,
    slow_drive,
)
from tests.thorough import THOROUGH, sample, when_thorough

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("fio"), needs_nbdkit]

# Larger than what `--destructive` reads whole to find data (READ_WHOLE): that would fill the cache before the runs.
DELAYED = ("memory", "4G", "rdelay=10ms", "wdelay=10ms")
CACHE = ("--filter=cache", "--filter=delay", *DELAYED, "cache=writethrough", "cache-on-read=true")
CACHED = (*CACHE, "cache-min-block-size=4096")  # data that were read are kept, and every write waits for the drive
NO_ANSWER = "can't tell whether there is a cache"
PROFILE = """\
format = 1
kind = "bench"
summary = "one request in flight and many"
source = "for tests"
runtime = 0.5
repeats = 5
[[test]]
access = "random"
block = "4KiB"
depth = [1, 32]
do = "read"
"""


@pytest.fixture(autouse=True)
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store results apart from those of this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def told(device: Path, *words: str | Path) -> str:
    return aligntool_first("bench", device, *words)


def says(right: str, wrong: str) -> Callable[[str], Answer]:
    """Match a statement about reads. Without any statement there would be no answer to `wrong` either."""

    def judge(text: str) -> Answer:
        said = " ".join(text.split()).replace(NO_ANSWER, "")
        return Answer.WRONG if wrong in said else Answer.RIGHT if right in said else Answer.UNKNOWN

    return judge


@pytest.mark.parametrize(
    ("drive", "right", "wrong"),
    [
        pytest.param(CACHED, "a cache keeps the data that was read", "a cache takes the writes", id="a hybrid drive"),
        pytest.param(
            ("--filter=delay", *DELAYED),
            "no cache shows",
            "a cache",
            id="without a cache",
            marks=when_thorough("times a drive for a minute, with nothing beside it"),
        ),
    ],
)
def test_passes_over_the_same_data_reveal_only_a_cache(
    tmp_path: Path, drive: tuple[str, ...], right: str, wrong: str
) -> None:
    out, fio = tmp_path / "out.json", tmp_path / "fio"
    words = ("--profile", "boot", "--passes", "1,5", "--span", "512KiB", "--destructive", "--yes")

    def measure() -> str:
        """Measure on a new drive: a second run would find the cache full."""
        out.unlink(missing_ok=True)
        with nbdkit_file(tmp_path, *drive) as file, device_over(file) as device:
            told(device, *words, "-o", out, "--fio-output", fio)
        return aligntool("bench", "show", without_other_load(out))[0]

    def judge(text: str) -> Answer:
        answer, certain = says(right, wrong)(text), text.count("no cache shows") == (1 if drive is CACHED else 2)
        return answer if certain or answer is Answer.WRONG else Answer.UNKNOWN

    said = " ".join(right_or_unknown(measure, judge).split())
    for title in ("RND4K Q1T1 read", "RND4K Q1T1 write"):
        verb = title.rpartition(" ")[2]
        sides = [
            json.loads((fio / f"{title.replace(' ', '-')}-{number}.json").read_text())["jobs"][0][verb]
            for number in range(1, 6)
        ]
        assert {side["io_bytes"] for side in sides} == {512 * 1024}
        first, whole = (
            sum(side["io_bytes"] for side in some) / sum(side["runtime"] for side in some) / 1000
            for some in (sides[:1], sides)
        )
        assert f"{title}: {significant(first)} MB/s over one pass, {significant(whole)} MB/s over 5 passes" in said


@when_thorough("times a drive for a minute, with nothing beside it")
def test_data_read_by_one_test_are_not_reused_by_the_next(tmp_path: Path) -> None:
    """Two tests that read, on a hybrid drive: each has a first pass that the cache does not answer."""
    (tmp_path / "two.toml").write_text(PROFILE)
    words = ("--profile", tmp_path / "two.toml", "--passes", "1,5", "--span", "512KiB")

    def measure() -> str:
        with nbdkit_file(tmp_path, *CACHED) as file, device_over(file) as device:
            return " ".join(told(device, *words).split())

    def judge(said: str) -> Answer:
        if said.count("a cache keeps the data that was read") == 2:
            return Answer.RIGHT
        return Answer.WRONG if "no cache shows" in said else Answer.UNKNOWN

    right_or_unknown(measure, judge)


GAIN, NONE = "the drive works on several requests at once", "no gain from a deep queue"


@when_thorough("times a drive for a minute, with nothing beside it")
def test_a_parallel_drive_gains_from_a_deep_queue(tmp_path: Path) -> None:
    with nbdkit_file(tmp_path, "--filter=delay", *DELAYED) as file, device_over(file) as device:
        _gains(tmp_path, device, GAIN, NONE)


@when_thorough("times a drive for a minute, with nothing beside it")
def test_a_serial_drive_gains_nothing_from_a_deep_queue(tmp_path: Path) -> None:
    with slow_drive(tmp_path, "base_us=10000", "rate=1") as file, device_over(file) as device:
        _gains(tmp_path, device, NONE, GAIN)


def _gains(folder: Path, device: Path, right: str, wrong: str) -> None:
    """Compute the gain from the medians of fio's own rates; the depth that the device offers is printed next to it."""
    (folder / "queue.toml").write_text(PROFILE)
    fio, out = folder / "fio", folder / "out.json"

    def measure() -> str:
        out.unlink(missing_ok=True)
        told(device, "--profile", folder / "queue.toml", "--span", "8MiB", "--fio-output", fio, "-o", out)
        return aligntool("bench", "show", without_other_load(out))[0]

    said = " ".join(right_or_unknown(measure, says(right, wrong)).split())
    one, deep = (
        sorted(
            json.loads((fio / f"RND4K-Q{depth}T1-read-{number}.json").read_text())["jobs"][0]["read"]["iops"]
            for number in range(1, 6)
        )[2]
        for depth in (1, 32)
    )
    assert f"RND4K Q32T1 read has {deep / one:.1f} times the IOPS of RND4K Q1T1 read" in said
    offered = Path(f"/sys/block/{device.name}/queue/nr_requests").read_text().strip()
    assert ("the device offers a depth of" in said) <= (f"a depth of {offered}" in said)


def without_other_load(file: Path) -> Path:
    """Return the same runs without the load of other programs: on a busy machine there is no verdict on the drive."""
    document = json.loads(file.read_text())
    for row in document["series"]:
        for one in row["samples"]:
            one["busy_cores"] = None
    idle = file.with_suffix(".idle.json")
    idle.write_text(json.dumps(document))
    return idle


def test_a_missing_device_is_not_mistaken_for_a_file_in_memory() -> None:
    _, said = aligntool("bench", "/dev/nothing-like-it", code=3)
    assert "/dev/nothing-like-it not found" in said and "memory" not in said


@sample(1)
@pytest.mark.parametrize("command", ["alignment", "span"])
@pytest.mark.needs_tools("mkswap", "blkdiscard")
def test_an_experiment_writes_to_a_device_only_after_its_name_was_typed(
    tmp_path: Path, sparse: Callable[..., Path], loop: Callable[..., Path], command: str
) -> None:
    image = sparse(32 * MIB)
    device = loop(image)
    some = ("--start", "32256") if command == "alignment" else ("--write", "--from", "8MiB")
    words = [command, str(device), *some, "--runtime", "0.1", "--destructive"]
    assert "there is no terminal for the confirmation" in aligntool("bench", *words, code=3)[1]
    run("mkswap", "-L", "precious", device)
    before = image.read_bytes()
    assert 'is not empty: swap "precious"' in aligntool("bench", *words, "--yes", code=3)[1]
    assert image.read_bytes() == before
    run("blkdiscard", "-z", device)
    before = image.read_bytes()
    assert answered(tmp_path, words, "wrong\n") == 3 and image.read_bytes() == before
    # A full run starts fio 60 times, as the one in a folder does (test_experiment_facts.py).
    until, code = ("sequential read", 4) if command == "alignment" and not THOROUGH else ("", 0)
    assert answered(tmp_path, words, f"{device}\n", until=until) == code and image.read_bytes() != before
