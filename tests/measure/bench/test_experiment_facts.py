"""What `bench alignment` and `bench span` store with the figures: settings, disk, conditions, completeness."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aligntool.errors import Refused
from aligntool.measure.alignment import MOST_RUNS, Knee, Load, Rate, places_of, refuse_too_many
from aligntool.measure.fio import Job, Pattern
from aligntool.measure.results import Conditions
from aligntool.measure.run import run_sweep
from aligntool.measure.sweeps import Setting, Spans, Starts, piece_words
from aligntool.render.report.page import show_experiment
from aligntool.units import GIB, KIB, MIB, Extent
from tests.conftest import run, unmount
from tests.measure.bench.test_runs import bench, interrupted
from tests.schemas import check
from tests.thorough import sample, when_thorough

ROOT = Path(__file__).parents[3]
ALIGNMENT = ("alignment", "--unit", "4KiB", "--start", "32256", "--runtime", "0.1", "--size", "32MiB")
SPAN = ("span", "--from", "8MiB", "--runtime", "0.1", "--size", "16MiB")
fio = pytest.mark.needs_tools("fio")
both = pytest.mark.parametrize("words", [ALIGNMENT, SPAN], ids=["alignment", "span"])
one = pytest.mark.parametrize(
    "words", [pytest.param(ALIGNMENT, marks=when_thorough("runs fio 80 times")), SPAN], ids=["alignment", "span"]
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "drive").mkdir()
    yield tmp_path


def valid(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    check(document)
    return document


@sample(1)
@pytest.mark.needs_tools("fio", "findmnt")
@one
def test_the_conditions_of_a_run_are_stored_with_its_result(place: Path, words: tuple[str, ...]) -> None:
    """Compared with what the system's own tools report."""
    found = valid(bench(place, *words, place / "drive", "--json", "-o", place / "kept.json").stdout)
    assert found == json.loads((place / "kept.json").read_text())
    size = int(words[-1].removesuffix("MiB")) * MIB
    settings = found["settings"]
    assert (settings["kind"], settings["size"], settings["runtime_s"]) == ("folder", size, 0.1)
    assert settings["direct"] is True and settings["engine"] == "libaio" and 0 < settings["piece"] <= size
    assert settings["repeats"] == 5
    seen = found["conditions"]
    assert (seen["kernel"], seen["fio"]) == (os.uname().release, run("fio", "--version").strip())
    # In a chroot whose root is not a mount point, neither can determine it.
    assert seen["filesystem"] == (run("findmnt", "-no", "FSTYPE", "-T", place / "drive", fails=True).strip() or None)
    assert found["complete"] is True
    shown = bench(place, "show", place / "kept.json").stdout
    assert f"{settings['repeats']} repeats of 0.1 s, direct I/O, engine libaio" in shown
    assert seen["kernel"] in shown and seen["fio"] in shown and "incomplete" not in shown


@sample(1)
@fio
@pytest.mark.needs_root
@one
def test_the_disk_is_identified_as_the_system_identifies_it(
    place: Path, words: tuple[str, ...], loop: Any, sparse: Any
) -> None:
    device = loop(sparse(32 * MIB))
    found = valid(bench(place, *words[:-2], device, "--json").stdout)
    size = int(run("blockdev", "--getsize64", device))
    assert (found["disk"]["name"], found["disk"]["path"], found["disk"]["size"]) == (device.name, str(device), size)
    assert (found["settings"]["kind"], found["settings"]["size"], found["settings"]["piece"]) == ("device", size, size)
    (drive,) = found["conditions"]["drives"]
    scheduler = Path(f"/sys/block/{device.name}/queue/scheduler").read_text()
    assert drive["name"] == device.name and f"[{drive['scheduler']}]" in f"[{scheduler.strip()}]{scheduler}"
    assert any("is a loop device" in each for each in found["warnings"])
    listed = bench(place, "list")
    assert f"  {device}  {device.name}  " in listed.stdout
    assert json.loads(bench(place, "list", "--json").stdout)[0]["drive"] == device.name


@sample(1)
@fio
@both
def test_an_interrupted_experiment_is_marked_incomplete_in_every_output(
    place: Path, words: tuple[str | Path, ...]
) -> None:
    words = (*words, "--repeats", "500", place / "drive", "-o", place / "kept.json")
    told, _ = interrupted(place, *words, at="2 of 500")
    assert "(incomplete)" in told
    assert list((place / "drive").iterdir()) == []
    document = valid((place / "kept.json").read_text())
    assert document["complete"] is False and (document.get("rates") or document["curve"])
    assert "(incomplete)" in bench(place, "show", place / "kept.json").stdout
    assert "(incomplete)" in bench(place, "list").stdout
    assert json.loads(bench(place, "list", "--json").stdout)[0]["complete"] is False


@fio
def test_an_experiment_without_a_complete_run_is_not_stored(place: Path) -> None:
    words = ("alignment", "--unit", "4KiB", "--runtime", "60", "--size", "32MiB", place / "drive")
    assert interrupted(place, *words, at="1 of 5")[0] == ""
    assert not (place / "state").exists() and list((place / "drive").iterdir()) == []


@fio
def test_progress_moves_while_fio_runs_and_shows_the_remaining_time(place: Path) -> None:
    file = place / "file"
    file.write_bytes(os.urandom(MIB))
    job = Job(name="x", path=str(file), pattern=Pattern.RANDOM_READ, block=4 * KIB, span=MIB, runtime_s=1.0)
    told: list[tuple[str, float, float | None]] = []
    swept = run_sweep([(1, "one", job), (2, "two", job)], 2, lambda *each: told.append(each))
    assert swept.complete and len(swept.runs) == 2
    first = [(share, left) for title, share, left in told if title == "one"]
    assert len(first) >= 4 and [share for share, _ in first] == sorted(share for share, _ in first)
    assert first[0][0] == 0 and 0 < first[1][0] < first[-1][0] <= 0.5
    lefts = [left for _, left in first if left is not None]
    assert len(lefts) == len(first) and 2 <= lefts[0] < 5 and lefts[-1] < lefts[0]


@pytest.mark.parametrize("complete", [True, False])
def test_the_report_shows_the_conditions_and_whether_it_is_complete(complete: bool) -> None:
    seen = Conditions(kernel="6.1.0-made-up", fio="fio-3.33", governor="powersave")
    setting = Setting("folder", 256 * MIB, 120 * MIB, 1.5, 5, True, "libaio")
    load = Load(Pattern.RANDOM_READ, 4 * KIB, 1)
    rates = tuple(Rate(load, each, 0, 100.0) for each in places_of(Extent(0, GIB), 4 * KIB, 512))
    starts = Starts("", "/srv", 4 * KIB, "--unit", rates, conditions=seen, setting=setting, complete=complete)
    knee = Knee(None, None, 1.0, 1.0, "no knee up to 1MiB")
    spans = Spans("", "/srv", False, knee, {MIB: [1.0]}, None, conditions=seen, setting=setting, complete=complete)
    for found in (starts, spans):
        shown = show_experiment(found, 1)
        assert ("incomplete" in shown.summary) is not complete
        assert any("120MiB of 256MiB lie in one piece" in note for note in shown.notes)
        assert any("governor is powersave" in note for note in shown.notes)
        told = dict(shown.conditions)
        assert told["kernel"] == "6.1.0-made-up"
        assert told["runs"] == "256MiB, 5 repeats of 1.5 s, direct I/O, engine libaio"


def test_the_measured_part_of_a_fragmented_file_is_reported(tmp_path: Path) -> None:
    setting = Setting("folder", 256 * MIB, 120 * MIB, 1.0, 5, True, "libaio")
    words = "120MiB of 256MiB lie in one piece on the disk, and only those are worked on"
    assert piece_words(setting) == (words,)
    assert words in Starts("", "/srv", 4096, "", (), setting=setting).warnings
    assert piece_words(Setting("folder", 256 * MIB, 256 * MIB, 1.0, 5, True, "libaio")) == ()


@pytest.mark.needs_root
@pytest.mark.needs_tools("fio", "mkfs.ext4", "mount", "filefrag")
def test_the_measured_fragment_is_the_longest_that_filefrag_shows(place: Path, loop: Any, sparse: Any) -> None:
    """A file system that was full, from which every second file and some consecutive ones were then removed."""
    device, folder = loop(sparse(96 * MIB)), place / "drive"
    run("mkfs.ext4", "-q", "-m", "0", device)
    try:
        run("mount", device, folder)
    except AssertionError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        files = list(filled(folder))
        for number, file in enumerate(files):
            if number % 2 or 20 <= number < 34:
                file.unlink()
        os.sync()
        shown: list[str] = []
        interrupted(
            place, *ALIGNMENT[:-1], "30MiB", folder, "-o", place / "kept.json", at="2 of 5",
            before=lambda: shown.append(run("filefrag", "-v", "-b1", next(folder.glob(".aligntool-bench-*")))),
        )  # fmt: skip
        found = valid((place / "kept.json").read_text())
    finally:
        unmount(folder)
    assert found["settings"]["size"] == 30 * MIB
    assert found["settings"]["piece"] == longest_piece(shown[0]) < 30 * MIB
    assert "of 30MiB lie in one piece" in found["warnings"][0]


def filled(folder: Path) -> Iterator[Path]:
    """Write files of a mebibyte until the file system is full."""
    for number in range(1000):
        file = folder / str(number)
        try:
            with file.open("wb") as opened:
                opened.write(bytes(MIB))
                os.fsync(opened.fileno())
        except OSError:
            return
        yield file


def longest_piece(shown: str) -> int:
    """Return the bytes of the longest piece: extents that are adjacent on the disk and in the file are one piece."""
    extents = [line.split(":") for line in shown.splitlines() if ".." in line]
    longest, length, end = 0, 0, -1
    for _, _, physical, size, *_ in extents:
        first, last = (int(number) for number in physical.split(".."))
        length = length + int(size) if first == end + 1 else int(size)
        longest, end = max(longest, length), last
    return longest


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("alignment", "--unit", "1GiB", "--size", "64MiB"), "64MiB is too small to start at several places"),
        (("span", "--from", "64MiB", "--size", "64MiB"), "two spans need 128MiB in one piece"),
    ],
)
def test_an_impossible_measurement_is_refused_before_a_file_is_filled(
    place: Path, words: tuple[str, ...], why: str
) -> None:
    said = bench(place, *words, place / "drive", code=3).stderr
    assert why in said and "filling" not in said


def test_the_size_that_the_refusal_suggests_is_sufficient() -> None:
    with pytest.raises(Refused) as refused:
        places_of(Extent(7 * MIB + 512, 64 * MIB), GIB, 512)
    size = refused.value.hint.split("--size ")[1].split(" ")[0]
    assert size.endswith("MiB")
    for start in (0, 512, 7 * MIB + 512, GIB - 512):
        places_of(Extent(start, int(size.removesuffix("MiB")) * MIB), GIB, 512)


@pytest.mark.parametrize("command", ["alignment", "span"])
def test_fewer_repeats_than_a_verdict_requires_are_refused(place: Path, command: str) -> None:
    said = bench(place, command, "--repeats", "4", place / "drive", code=2).stderr
    assert "invalid value for '--repeats'" in said and "5" in said


def test_every_sector_of_a_unit_can_be_measured() -> None:
    room = Extent(0, GIB)
    every = {place.residue for place in places_of(room, 16 * KIB, 512, every=True)}
    assert every == set(range(0, 16 * KIB, 512))
    assert {place.residue for place in places_of(room, 4 * KIB, 512)} == set(range(0, 4 * KIB, 512))
    refuse_too_many(MOST_RUNS)
    with pytest.raises(Refused, match="at most 10000"):
        refuse_too_many(MOST_RUNS + 1)
