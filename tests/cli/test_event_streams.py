"""Every stream of `--json` events that completes has an `end` event, which reports whether anything was written."""

import json
import subprocess
from pathlib import Path

import pytest

from aligntool.units import MIB
from tests.cli.old_disks import make_old_disk
from tests.conftest import run
from tests.run_aligntool import run_aligntool
from tests.schemas import check_lines

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "debugfs", "e2fsck", "blkid")


def end_of(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """Return the only `end` event, which is the last line."""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines].count("end") == 1, done.stdout
    end = lines[-1]
    assert (end["event"], end["schema"], end["version"]) == ("end", "aligntool.events", 1)
    assert isinstance(end, dict)
    return end


def codes_of(end: dict[str, object]) -> list[str]:
    refusals = end["refusals"]
    assert isinstance(refusals, list)
    return [one["code"] for one in refusals]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A disk on which nothing has to move."""
    image = tmp_path / "good.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    run("sfdisk", "-q", image, stdin="label: gpt\nstart=2048, size=32768\n")
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={MIB}", image, "16M")
    return image


def test_a_realign_with_nothing_to_do_has_a_plan_and_an_end_event(good: Path) -> None:
    before = good.read_bytes()
    done = run_aligntool("realign", "--yes", "--json", good)
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout.splitlines()[0])
    assert (first["event"], first["steps"], first["bytes_to_copy"]) == ("plan", 0, 0)
    end = end_of(done)
    assert (end["state"], end["changed"], end["next"]) == ("new", False, "")
    assert good.read_bytes() == before


def test_a_saved_plan_with_nothing_to_do_has_an_end_event(good: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert run_aligntool("plan", "realign", good, "-o", file).returncode == 0
    done = run_aligntool("apply", "--yes", "--json", file)
    assert done.returncode == 0 and end_of(done)["changed"] is False


def test_a_write_is_reported_as_a_change(tmp_path: Path) -> None:
    old = make_old_disk(tmp_path / "old.img")
    end = end_of(run_aligntool("realign", "--yes", "--json", old))
    assert (end["state"], end["changed"]) == ("new", True)
    empty = tmp_path / "empty.img"
    with empty.open("wb") as file:
        file.truncate(64 * MIB)
    end = end_of(run_aligntool("layout", "--yes", "--json", empty, "--part", "rest:linux"))
    assert (end["state"], end["changed"]) == ("new", True)


def test_a_saved_layout_plan_reports_its_change_at_the_end(tmp_path: Path) -> None:
    empty, file = tmp_path / "empty.img", tmp_path / "plan.json"
    with empty.open("wb") as image:
        image.truncate(64 * MIB)
    assert run_aligntool("plan", "layout", empty, "--part", "rest:linux", "-o", file).returncode == 0
    assert end_of(run_aligntool("apply", "--yes", "--json", file))["changed"] is True


PLANS = (
    ("plan", "realign"),
    ("plan", "layout", "--part", "rest:linux"),
    ("plan", "partition"),
    ("plan", "convert"),
    ("raid", "plan", "--level", "1"),
    ("plan", "raid", "--level", "1"),
)


@pytest.mark.parametrize(
    "words",
    [
        ("realign", "--yes", "--json"),  # the table was not read: the file does not exist
        ("layout", "--yes", "--json", "--part", "rest:linux"),
        ("resume", "--json"),
        ("rollback", "--json"),
        ("apply", "--yes", "--json"),
        ("raid", "create", "--yes", "--json", "--level", "1"),
        ("raid", "create", "--yes", "--json", "--level", "5"),
        ("raid", "persist", "--yes", "--json"),
        ("raid", "persist", "-o", "-"),
        ("raid", "reformat", "--lba-size", "4096", "--json"),
        ("raid", "reformat", "--lba-size", "4096", "-o", "-"),
        *((*words, end) for words in PLANS for end in ("--json", "-o-")),
    ],
    ids=" ".join,
)
def test_a_refusal_ends_its_stream_with_everything_printed_on_standard_error(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = run_aligntool(*words, tmp_path / "missing")
    assert done.returncode == 3
    check_lines(done.stdout)
    end = end_of(done)
    assert (end["state"], end["changed"]) == ("refused", False)
    sentences = end["sentences"]
    assert isinstance(sentences, list) and sentences
    assert all(f"aligntool: {sentence}" in done.stderr for sentence in sentences)
    assert all(f"→ {line}" in done.stderr for line in str(end["next"]).split("\n") if line)
    refusals = end["refusals"]
    fields = ["code", "subject", "text", "hint", "commands"]
    assert isinstance(refusals, list) and all(list(one) == fields for one in refusals)
    assert list(dict.fromkeys(line for one in refusals for line in one["text"].split("\n"))) == sentences


@pytest.mark.parametrize("name", ["resume", "rollback"])
def test_a_disk_that_is_not_in_flight_is_a_refusal_without_changes(good: Path, name: str) -> None:
    end = end_of(run_aligntool(name, "--json", good))
    assert (end["state"], end["changed"]) == ("refused", False)
    assert codes_of(end) == ["not-in-flight"]


def test_an_unconfirmed_move_ends_as_refused(tmp_path: Path) -> None:
    old = make_old_disk(tmp_path / "old.img")
    before = old.read_bytes()
    end = end_of(run_aligntool("realign", "--json", old))
    assert (end["state"], end["changed"]) == ("refused", False)
    assert codes_of(end) == ["not-confirmed"]
    assert old.read_bytes() == before


def test_a_refused_dry_run_prints_the_reasons_instead_of_a_plan(good: Path) -> None:
    end = end_of(run_aligntool("realign", "--dry-run", "--json", "-p", "9", good))
    assert (end["state"], end["changed"]) == ("refused", False)
    assert codes_of(end) == codes_of(end_of(run_aligntool("realign", "--json", "-p", "9", good)))


@pytest.mark.parametrize("words", PLANS, ids=" ".join)
def test_a_plan_that_is_saved_or_read_has_its_refusal_only_on_standard_error(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    for more in ((), ("-o", tmp_path / "plan.json")):
        done = run_aligntool(*words, *more, tmp_path / "missing")
        assert (done.returncode, done.stdout) == (3, "")
    assert not list(tmp_path.iterdir())


def test_a_plan_has_the_same_refusals_as_the_change(good: Path) -> None:
    planned = end_of(run_aligntool("plan", "realign", "--json", "-p", "9", good))
    assert planned == end_of(run_aligntool("realign", "--json", "-p", "9", good))


def test_a_dry_run_prints_a_plan_and_no_events(good: Path) -> None:
    done = run_aligntool("realign", "--dry-run", "--json", good)
    assert json.loads(done.stdout)["schema"] == "aligntool.plan"


def test_the_commands_of_a_refusal_stand_apart_from_its_words(tmp_path: Path) -> None:
    words = ("raid", "plan", "--level", "1", "--json")
    images = [tmp_path / "a.img", tmp_path / "b.img"]
    for image in images:
        with image.open("wb") as file:
            file.truncate(1 << 30)
    run("mkfs.ext4", "-q", "-F", images[0])
    end = end_of(run_aligntool(*words, *images))
    look, words_only = str(end["next"]).splitlines()
    assert end["commands"] == [look] == [f"aligntool audit {images[0]}"] and "--wipe" in words_only
    refusals = end["refusals"]
    assert isinstance(refusals, list) and [one["commands"] for one in refusals] == [[look]]
