"""Before anything is written: what is written to, what is lost, and the name that the user typed."""

import re
import shlex
from functools import partial
from pathlib import Path

import pytest

from tests.cli.old_disks import assert_whole, first_start, make_old_disk
from tests.cli.test_screen import Terminal
from tests.conftest import digest, run
from tests.mover.test_audit_in_flight import killed_while_copying
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "debugfs")


def asked(rows: list[str]) -> bool:
    """Return whether the last line is the question."""
    return rows[-1].endswith("to continue:")


WRONG = "That is not {}; nothing was written. Ctrl-C ends."


def asked_again(times: int, rows: list[str]) -> bool:
    """Return whether the last line is the question, after so many wrong answers."""
    return asked(rows) and rows.count(WRONG.format("disk.img")) == times


def question(terminal: Terminal) -> str:
    """Return the question, in one line."""
    text = " ".join(" ".join(terminal.until(asked)).split())
    return text[text.rindex("This writes to") :]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return make_old_disk(tmp_path / "disk.img")


@pytest.fixture
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder of the disk the current one."""
    monkeypatch.chdir(disk.parent)
    return disk.parent


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("realign disk.img", "lost: nothing"),
        ("realign disk.img --overwrite-bytes 100MiB..101MiB", "lost: bytes 104857600"),
        ("layout disk.img --wipe disk.img --part rest:linux", "lost: partition 1, ext4"),
        ("apply plan.json", "lost: nothing"),
    ],
)
def test_a_change_names_what_is_lost_and_asks_for_the_name_as_it_was_typed(
    folder: Path, disk: Path, words: str, lost: str
) -> None:
    run_aligntool("plan", "realign", "disk.img", "-o", "plan.json", cwd=folder, code=0)
    before = digest(disk)
    with Terminal(*words.split()) as terminal:
        text = question(terminal)
        assert text.startswith("This writes to disk.img.") and text.endswith("Type disk.img to continue:")
        assert lost in text
        terminal.type("yes\n")
        terminal.until(lambda rows: rows[-2:] == [WRONG.format("disk.img"), "Type disk.img to continue:"])
        assert digest(disk) == before
        terminal.type(" disk.img \n")
        assert terminal.end() == 0
    assert digest(disk) != before


@pytest.mark.needs_tools("sfdisk")
def test_a_list_of_what_is_lost_is_in_the_plan_and_its_length_in_the_question(folder: Path) -> None:
    with Path("parts.img").open("wb") as file:
        file.truncate(64 << 20)
    run("sfdisk", "-q", "parts.img", stdin="label: gpt\n" + "size=20480\n" * 3)
    with Terminal("layout", "parts.img", "--wipe", "parts.img", "--part", "rest:linux") as terminal:
        text = " ".join(" ".join(terminal.until(asked)).split())
        assert "lost: 3 items, listed in the plan above" in text[text.rindex("This writes to") :]
        assert all(text.count(f"lost: partition {number}") == 1 for number in (1, 2, 3))
        terminal.type("\x03")
        assert terminal.end() == 130


def test_a_copy_asks_for_the_new_name(folder: Path, disk: Path) -> None:
    run_aligntool("realign", "--yes", "disk.img", cwd=folder, code=0)
    limited = run_aligntool("convert", "disk.img", "-o", "new.img", "--rate", "1MiB", "--dry-run", cwd=folder, code=0)
    assert re.search(r"\nTo copy: .*B\)?, about \d+ (s|min)\n", limited.stdout)
    with Terminal("convert", "disk.img", "-o", "new.img") as terminal:
        text = question(terminal)
        assert re.search(r"1 partition, .*B\)? to copy, about .* on an SSD", text)
        assert text.startswith("This writes to new.img.")
        assert text.endswith("Type new.img to continue:")
        terminal.type("new.img\n")
        assert terminal.end() == 0
    assert first_start(folder / "new.img") == 2048 // 8


@pytest.mark.parametrize("name", ["./disk.img", "sub/../disk.img", "two words.img"])
def test_the_name_is_that_of_the_command_line(folder: Path, disk: Path, name: str) -> None:
    (folder / "sub").mkdir()
    disk.rename(folder / name)
    with Terminal("realign", name) as terminal:
        assert question(terminal).endswith(f"Type {name} to continue:")
        terminal.type("disk.img\n")
        terminal.until(lambda rows: asked(rows) and rows[-2] == WRONG.format(name))
        terminal.type(f"{name}\n")
        assert terminal.end() == 0
    assert first_start(folder / name) == 2048


@pytest.mark.parametrize(("answers", "repeated"), [(["y", "n", "disk.im"], 2), (["y", "\x04"], 1), (["\x04"], 0)])
def test_three_wrong_answers_or_the_end_of_the_input_write_nothing(
    folder: Path, disk: Path, answers: list[str], repeated: int
) -> None:
    before = digest(disk)
    with Terminal("realign", "disk.img") as terminal:
        for number, answer in enumerate(answers):
            terminal.until(partial(asked_again, number))
            terminal.type(answer if answer == "\x04" else f"{answer}\n")
        assert terminal.end() == 3
        rows = terminal.rows()
    assert sum(row.startswith("Type disk.img to continue:") for row in rows) == repeated + 1
    assert rows[-1] == "aligntool: the answer was not disk.img; nothing was written"
    assert digest(disk) == before


def test_ctrl_c_at_the_question_writes_nothing(folder: Path, disk: Path) -> None:
    before = digest(disk)
    with Terminal("realign", "disk.img") as terminal:
        terminal.until(asked)
        terminal.type("\x03")
        assert terminal.end() == 130
    assert digest(disk) == before


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_what_finishes_or_undoes_a_move_asks_in_the_same_way(folder: Path, disk: Path, way: str) -> None:
    killed_while_copying(disk)
    with Terminal(way, "./disk.img") as terminal:
        text = question(terminal)
        assert text == "This writes to ./disk.img. lost: nothing Type ./disk.img to continue:"
        terminal.type("./disk.img\n")
        assert terminal.end() == 0
    assert first_start(disk) == (2048 if way == "resume" else 63)
    assert_whole(disk)


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_who_declines_is_reminded_of_the_move_in_flight(folder: Path, disk: Path, way: str) -> None:
    killed_while_copying(disk)
    with Terminal(way, "disk.img") as terminal:
        terminal.until(asked)
        terminal.type("\x04")
        assert terminal.end() == 3
        said = " ".join(" ".join(terminal.rows()).split())
    assert said.endswith("nothing was written, and disk.img is still in flight")


@pytest.mark.on_disk
def test_measurements_ask_in_the_same_way(folder: Path) -> None:
    (folder / "empty.img").write_bytes(bytes(64 << 20))
    command = "probe empty.img --destructive --most 512KiB"
    with Terminal(*shlex.split(command)) as terminal:
        text = question(terminal)
        assert text.startswith("This writes to empty.img. lost: small parts all over it")
        assert text.endswith("Type empty.img to continue:")
        terminal.type("no\nno\nno\n")
        assert terminal.end() == 3
    assert not any((folder / "empty.img").read_bytes())


@pytest.mark.on_disk
@pytest.mark.needs_tools("fio")
def test_a_long_measurement_asks_for_its_target(folder: Path) -> None:
    with Terminal("bench", ".", "--runtime", "3000", "--span", "1MiB") as terminal:
        text = " ".join(" ".join(terminal.until(asked)).split())
        assert "and loses nothing. Type . to continue:" in text
        terminal.type("yes\nyes\nyes\n")
        assert terminal.end() == 3
