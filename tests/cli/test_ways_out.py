"""A change that was interrupted: what finishes it, what undoes it, and what is left of each; and how long it took."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from aligntool.cli import recover
from tests.cli.old_disks import assert_whole, first_start
from tests.cli.test_screen import Terminal
from tests.conftest import attached, run
from tests.mover.test_audit_in_flight import killed_while_copying
from tests.run_aligntool import run_aligntool
from tests.schemas import check

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "debugfs")


def shown(rows: list[str]) -> str:
    return " ".join(" ".join(rows).split())


@pytest.fixture(scope="module")
def killed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    disk = tmp_path_factory.mktemp("killed") / "old.img"
    run("cp", "--sparse=always", model, disk)
    killed_while_copying(disk)
    return disk


@pytest.fixture
def in_flight(killed: Path, disk: Path) -> Path:
    run("cp", "--sparse=always", killed, disk)
    return disk


def test_ctrl_c_shows_both_ways_and_what_is_left_of_each(disk: Path) -> None:
    with Terminal("realign", "--yes", "--rate", "2MiB", disk) as terminal:
        terminal.until(lambda rows: any(re.search(r"MiB of [\d.]+MiB", row) for row in rows))
        terminal.type("\x03")
        assert terminal.end() == 4
        said = shown(terminal.rows())
    stopped = re.search(r"interrupted in step (\d+) of (\d+), (\S+) of (\S+) copied; the journal is kept", said)
    assert stopped, said
    amount = r"[\d.]+MiB(, about \d+ s)?"
    assert re.search(rf"→ aligntool resume '[^']*' # finishes the move: 4 steps, {amount} ", said)
    assert re.search(rf"→ aligntool rollback '[^']*' # restores the old state: 3 steps, {amount}$", said)
    document = json.loads(run_aligntool("status", "--json", disk, code=0).stdout)
    check(document)
    text = shown(run_aligntool("status", disk, code=0).stdout.splitlines())
    assert (document["number"], document["steps"]) == (int(stopped[1]), int(stopped[2]))
    assert f"next: step {stopped[1]} of {stopped[2]}, copy partition 1" in text
    assert "# finishes the move: 4 steps, " in text and "# restores the old state: 3 steps, " in text
    for way, steps in (("resume", 4), ("rollback", 3)):
        assert f"{steps} steps to " in run_aligntool(way, "--dry-run", disk, code=0).stdout


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_the_progress_of_either_way_only_grows_up_to_the_total(in_flight: Path, way: str) -> None:
    done = run_aligntool(way, "--yes", "--json", in_flight, code=0)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    progress = [(event["done"], event["total"]) for event in events if event["event"] == "progress"]
    assert progress == sorted(progress) and (not progress or progress[-1][0] == progress[-1][1])
    assert [event["number"] for event in events if "number" in event] == [
        event["index"] + 1 for event in events if "index" in event
    ]
    assert first_start(in_flight) == (2048 if way == "resume" else 63)
    assert_whole(in_flight)


def test_a_rollback_says_what_it_does_and_not_what_it_undoes(in_flight: Path) -> None:
    planned = run_aligntool("rollback", "--dry-run", in_flight, code=0).stdout
    assert "copy back what was overwritten of partition 1" in planned
    assert "restore the signatures of partition 1 at the old place" in planned
    done = run_aligntool("rollback", "--yes", in_flight, code=0)
    assert done.stdout.startswith("The table and the content are where they were before.\n")
    said = done.stderr
    assert "write the old table: from here on the old places are valid" in said
    assert " copy partition 1" not in said.partition("steps to undo")[2]


def test_an_error_wraps_at_a_terminal_and_stays_one_line_elsewhere(tmp_path: Path) -> None:
    missing = tmp_path / " ".join(["missing"] * 20)
    with Terminal("audit", missing) as terminal:
        assert terminal.end() == 3
        first, *rest = terminal.rows()
    assert first.startswith("aligntool: ") and rest[0].startswith("  missing ")
    assert "No such file or directory" in shown(rest)
    assert f"aligntool: {missing}: No such file or directory\n" in run_aligntool("audit", missing).stderr


@pytest.mark.parametrize("words", ["realign", "layout --part rest:linux --wipe disk.img", "resume", "rollback"])
def test_a_change_ends_with_the_time_it_took(disk: Path, killed: Path, words: str) -> None:
    name, *options = words.split()
    begun = killed if name in ("resume", "rollback") else disk
    run("cp", "--sparse=always", begun, disk.parent / "disk.img")
    done = run_aligntool(name, "disk.img", *options, "--yes", cwd=disk.parent, code=0)
    assert re.fullmatch(r"Done in \d+ s", done.stderr.splitlines()[-1])
    assert "Done in" not in done.stdout


def test_nothing_done_takes_no_time(disk: Path) -> None:
    run_aligntool("realign", "--yes", disk, code=0)
    assert "Done in" not in run_aligntool("realign", "--yes", disk, code=0).stderr


@pytest.fixture
def two_in_flight(in_flight: Path) -> Iterator[list[str]]:
    """Attach two disks in flight, and one that is not, to loop devices."""
    other, idle = in_flight.with_name("other.img"), in_flight.with_name("idle.img")
    run("cp", "--sparse=always", in_flight, other)
    run("truncate", "-s", "64M", idle)
    with ExitStack() as stack:
        yield [str(stack.enter_context(attached(image))) for image in (in_flight, other, idle)]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_status_without_a_disk_lists_every_disk_in_flight(two_in_flight: list[str]) -> None:
    first, second, idle = two_in_flight
    done = run_aligntool("status")
    assert done.returncode == (3 if done.stderr else 0), "3: another disk of this machine cannot be read"
    for disk in (first, second):
        assert f"{disk}: in flight" in done.stdout and f"aligntool resume {disk} " in done.stdout
    assert f"{idle}:" not in done.stdout + done.stderr
    documents = [json.loads(line) for line in run_aligntool("status", "--json").stdout.splitlines()]
    for document in documents:
        check(document)
    assert {first, second} <= {document["disk"] for document in documents if document["state"] == "in-flight"}
    assert idle not in {document["disk"] for document in documents}


def test_status_does_not_say_that_nothing_is_in_flight_on_an_unread_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recover, "list_blocks", lambda _: [SimpleNamespace(name="sdx"), SimpleNamespace(name="sdy")])
    monkeypatch.setattr(recover, "find_records", lambda: ())
    states = [(0, ""), (1, "/dev/sdy cannot be read: Input/output error")]
    monkeypatch.setattr(recover, "results_in_children", lambda _: states)
    with pytest.raises(SystemExit) as ended:
        recover.status()
    said = capsys.readouterr()
    assert ended.value.code == 3
    assert "on the disks that could be read; 1 disk could not be: /dev/sdy" in " ".join(said.out.split())
