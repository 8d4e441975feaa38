"""Files that are written where the user named them: through no link of another user, and in place of no other file."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aligntool.errors import Refused
from aligntool.linux.files import keep_copy, remove_file, replace_file, write_file, write_snapshot
from aligntool.linux.outputs import make_folder, new_file, open_place, private_folder
from aligntool.measure.run import made_file, save_to_history
from aligntool.measure.targets import recorded_test_data
from aligntool.mover.journal import open_journal
from aligntool.realign.named_ranges import save
from aligntool.units import KIB, MIB, Extent
from tests.run_aligntool import run_aligntool

NOBODY = 65534


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder of root, and a path to it through a link that another user put into a folder for all."""
    shared, private = tmp_path / "shared", tmp_path / "private"
    shared.mkdir()
    shared.chmod(0o1777)
    private.mkdir(mode=0o700)
    (shared / "reports").symlink_to(private)
    os.chown(shared / "reports", NOBODY, NOBODY, follow_symlinks=False)
    yield private, shared / "reports"
    assert not list(private.iterdir())


def _journal(file: str) -> None:
    with open_journal(file, length=MIB):
        pass


def _benchmark(file: str) -> None:
    with made_file(str(Path(file).parent), KIB):
        pass


WRITERS: dict[str, Callable[[str], object]] = {
    "page": lambda file: write_file(file, b"new"),
    "archive": lambda file: write_snapshot(f"{file}.tar.gz", ()),
    "journal": _journal,
    "copy": lambda file: save("/dev/zero", (), file),
    "benchmark": _benchmark,
    "history": lambda file: save_to_history(Path(file).parent / "bench", "2026", "quick", "{}"),
    "folder": lambda file: make_folder(Path(file)),
}


@pytest.mark.needs_root
@pytest.mark.on_disk  # a journal may not be in memory
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_root_writes_nothing_behind_a_link_of_another_user(
    trap: tuple[Path, Path], write: Callable[[str], object]
) -> None:
    with pytest.raises((Refused, OSError), match="is a symbolic link of another user") as refusal:
        write(f"{trap[1]}/new")
    assert str(trap[1]) in str(refusal.value)


@pytest.mark.needs_root
def test_no_journal_is_opened_behind_a_link_of_another_user(trap: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(bytes(MIB))
    link = trap[1].parent / "journal"
    link.symlink_to(tmp_path / "journal")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(Refused, match="is a symbolic link of another user"), open_journal(str(link)):
        pass


@pytest.mark.needs_root
def test_records_of_test_data_are_not_appended_to_the_file_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, victim, state = tmp_path / "disk.img", tmp_path / "passwd", tmp_path / "state/aligntool"
    disk.write_bytes(b"data" * KIB)
    victim.write_text("root:x:0:0\n")
    state.mkdir(parents=True)
    (state / "test-data").symlink_to(victim)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    said: list[str] = []
    with recorded_test_data(str(disk), 4 * KIB, said.append):
        pass
    assert victim.read_text() == "root:x:0:0\n" and len(said) == 1
    (state / "test-data").unlink()
    for _ in range(2):
        with recorded_test_data(str(disk), 4 * KIB, said.append):
            pass
    assert len((state / "test-data").read_text().splitlines()) == 2 and len(said) == 1


@pytest.mark.needs_root
def test_no_file_of_the_system_is_changed_behind_a_link_of_another_user(tmp_path: Path) -> None:
    etc, link = tmp_path / "etc", tmp_path / "link"
    etc.mkdir()
    (etc / "fstab").write_text("mine")
    link.symlink_to(etc)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    for change in (
        lambda: replace_file(link / "fstab", b"new"), lambda: remove_file(link / "fstab"),
        lambda: keep_copy(etc / "fstab", link / "fstab.old"),
    ):  # fmt: skip
        with pytest.raises(OSError, match="is a symbolic link of another user"):
            change()
    assert [file.read_text() for file in etc.iterdir()] == ["mine"]


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "mkfs.ext4")
@pytest.mark.parametrize(
    "words",
    [
        "audit DISK -o NAME", "report DISK -o NAME", "report --chart queue-depth --svg NAME", "snapshot -o NAME.tar.xz",
        "plan layout DISK --part rest:linux -o NAME", "convert DISK --sector-size 4096 -o NAME --yes", "demo NAME",
    ],
)  # fmt: skip
def test_every_command_refuses_a_link_of_another_user_in_one_line(
    trap: tuple[Path, Path], tmp_path: Path, words: str
) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(bytes(16 * MIB))
    if "convert" in words:
        subprocess.run(["sfdisk", "-q", disk], input=b"label: gpt\nsize=8MiB\n", check=True)
        subprocess.run(["mkfs.ext4", "-q", "-b4096", f"-Eoffset={MIB}", disk, "8M"], check=True, capture_output=True)
    places = {"DISK": disk, "NAME": trap[1] / "new", "NAME.tar.xz": trap[1] / "new.tar.xz"}
    done = run_aligntool(*(places.get(word, word) for word in words.split()), code=3)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("aligntool:"))
    assert f"{trap[1]} is a symbolic link of another user" in line


@pytest.mark.needs_root
def test_a_link_in_a_folder_of_another_user_is_not_followed(trap: tuple[Path, Path]) -> None:
    """Its owner can have moved a link of root there."""
    folder = trap[1].parent / "theirs"
    folder.mkdir()
    (folder / "link").symlink_to(trap[0])
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(Refused, match="theirs/link is a symbolic link of another user"):
        write_file(f"{folder}/link/new", b"new")
    write_file(f"{folder}/new", b"new")
    assert (folder / "new").read_bytes() == b"new"


@pytest.mark.needs_root
def test_a_folder_that_is_replaced_meanwhile_does_not_redirect_the_file(trap: tuple[Path, Path]) -> None:
    folder = trap[1].parent / "theirs"
    folder.mkdir()
    with open_place(folder / "new") as place, new_file(place) as descriptor:
        os.write(descriptor, b"new")
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(trap[0])
    assert (folder.with_name("moved") / "new").read_bytes() == b"new"


@pytest.mark.needs_root
def test_a_private_folder_stays_the_same_whatever_another_user_renames(trap: tuple[Path, Path]) -> None:
    shared = trap[1].parent
    with private_folder(shared, "parts-") as place:
        (made,) = shared.glob("parts-*")
        made.rename(shared / "moved")
        made.symlink_to(trap[0])
        (place / "part").write_text("new")
    assert made.is_symlink() and (shared / "moved/part").read_text() == "new"


@pytest.mark.needs_root
def test_links_of_the_user_who_lent_the_rights_of_root_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    data.mkdir()
    (home / "data").symlink_to(data)
    for made in (home, home / "data"):
        os.chown(made, NOBODY, NOBODY, follow_symlinks=False)
    monkeypatch.setenv("SUDO_UID", "1000")
    with pytest.raises(Refused):
        write_file(f"{home}/data/new", b"new")
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    write_file(f"{home}/data/new", b"new")
    assert (data / "new").read_bytes() == b"new"


def test_own_links_relative_paths_and_descriptors_lead_where_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a/b"
    make_folder(folder)
    (tmp_path / "short").symlink_to("a/../a/./b")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    monkeypatch.chdir(folder)
    opened = os.open(folder, os.O_RDONLY)
    names = (f"{tmp_path}/short/1", "2", "./../b//3", "up/short/4", f"/proc/self/fd/{opened}/5", f"/dev/fd/{opened}/6")
    for name in names:
        write_file(name, b"new")
    os.close(opened)
    assert {str(number) for number in range(1, 7)} <= {file.name for file in folder.iterdir()}
    with pytest.raises(Refused):
        write_file("loop/7", b"new")


def test_a_file_is_made_where_the_file_system_has_none_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on FAT: the flag that opens a folder for writing fails everywhere."""
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)
    file = tmp_path / "new"
    write_file(str(file), b"")
    write_file(str(file), b"new", overwrite=True)
    with pytest.raises(Refused, match="already exists"):
        write_file(str(file), b"newer")
    with pytest.raises(ZeroDivisionError), open_place(tmp_path / "other") as place, new_file(place):
        raise ZeroDivisionError
    assert [made.name for made in tmp_path.iterdir()] == ["new"] and file.read_bytes() == b"new"


def test_nothing_is_left_of_a_copy_that_is_killed(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(bytes(MIB))
    code = (
        "import os, signal; from aligntool.linux.outputs import *\n"
        f"with open_place('{tmp_path}/copy') as place, new_file(place) as descriptor:\n"
        "    os.write(descriptor, b'a part'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert [made.name for made in tmp_path.iterdir()] == ["disk.img"]
    save(str(disk), (Extent(KIB, KIB),), f"{tmp_path}/copy")
    assert (tmp_path / "copy").read_bytes() == bytes(2 * KIB)


# --overwrite


OWN = {
    "audit.json": "audit DISK --json --fail-on never -o NAME",
    "audit.prom": "audit DISK --format prometheus --fail-on never -o NAME",
    "page.html": "report DISK -o NAME",
    "picture.svg": "report --chart queue-depth --svg NAME",
    "picture.png": "report --chart queue-depth --png NAME",
    "plan.json": "plan layout DISK --part rest:linux -o NAME",
    "snapshot.tar": "snapshot -o NAME",
    "snapshot.tar.gz": "snapshot -o NAME",
    "snapshot.tar.xz": "snapshot -o NAME",
}


@pytest.mark.needs_tools("rsvg-convert")
@pytest.mark.parametrize("name", OWN)
def test_overwrite_replaces_what_the_same_command_wrote_and_nothing_else(tmp_path: Path, name: str) -> None:
    disk, file = tmp_path / "disk.img", tmp_path / name
    disk.write_bytes(bytes(16 * MIB))
    words = [{"DISK": disk, "NAME": file}.get(word, word) for word in OWN[name].split()]
    run_aligntool(*words, code=0)
    written = file.stat().st_ino
    run_aligntool(*words, "--overwrite", code=0)
    assert file.stat().st_ino != written
    for foreign in (b"my notes\n", b"\0", bytes(MIB), b"{}", b"<!DOCTYPE html>\n<html></html>", b"\x89PNG\r\n\x1a\n"):
        file.write_bytes(foreign)
        done = run_aligntool(*words, "--overwrite", code=3)
        assert f"aligntool: {file} is not recognised as written by aligntool, so it is not replaced" in done.stderr
        assert file.read_bytes() == foreign
    file.write_bytes(b"")
    run_aligntool(*words, "--overwrite", code=0)


def test_a_report_as_text_is_not_recognised_and_so_not_replaced(tmp_path: Path) -> None:
    disk, file = tmp_path / "disk.img", tmp_path / "report.txt"
    disk.write_bytes(bytes(16 * MIB))
    run_aligntool("audit", disk, "--fail-on", "never", "-o", file, code=0)
    done = run_aligntool("audit", disk, "--fail-on", "never", "-o", file, "--overwrite", code=3)
    assert "use another name, or remove it" in done.stderr
