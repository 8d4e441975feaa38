"""Members that are zeroed on loop devices, where `fallocate` punches holes, and with programs that do it wrongly."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import Progress, Said
from aligntool.errors import Stopped
from aligntool.raid.steps_drives import read_disk
from aligntool.raid.steps_zero import zero_members
from aligntool.steps import DataArea, MakeArray, MakeMember, subject
from aligntool.units import MIB
from tests.raid.applying.builders import program

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("fallocate", "losetup", "blkid", "wipefs")]
SIZE = 300 * MIB  # too long to be read whole
AREA = DataArea(4 * MIB, 288 * MIB)
HIDDEN = 100 * MIB  # between the places that are read: 4 + 8 MiB, and every 16 MiB from there
SEEN = 108 * MIB
BYTES = b"\xa5" * MIB


@pytest.fixture
def members(sparse: Callable[..., Path], loop: Callable[..., Path]) -> list[MakeMember]:
    return [_member(loop(sparse(SIZE, name=f"{number}.img"))) for number in range(2)]


def _member(drive: Path) -> MakeMember:
    return MakeMember(subject(read_disk(str(drive))), str(drive), "")


def _array(members: list[MakeMember], level: str = "raid1") -> MakeArray:
    devices = tuple(member.device for member in members)
    shape = (level, "", 65536 if level == "raid5" else None, "1.2", None, AREA)
    return MakeArray("/dev/md/data", "1:2:3:4", "data", devices, *shape, zeroed=True)


def _write(device: str, at: int, data: bytes = BYTES) -> None:
    with Path(device).open("r+b") as file:
        file.seek(at)
        file.write(data)
        os.fsync(file.fileno())


def _bytes(device: str, start: int, length: int) -> bytes:
    with Path(device).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(start)
        return file.read(length)


@pytest.mark.parametrize("level", ["raid1", "raid5"])
def test_the_data_areas_are_zeroed_and_nothing_else(members: list[MakeMember], level: str) -> None:
    for member in members:
        _write(member.device, AREA.offset - MIB)
        _write(member.device, HIDDEN)
        _write(member.device, AREA.offset + 288 * MIB)
    events = list(zero_members(_array(members, level), 3, members))
    for member in members:
        assert not _bytes(member.device, AREA.offset, 288 * MIB).strip(b"\0")
        assert _bytes(member.device, AREA.offset - MIB, MIB) == BYTES
        assert _bytes(member.device, AREA.offset + 288 * MIB, MIB) == BYTES
    # what is zeroed, and for parity what is read back
    total = 2 * 288 * MIB * (2 if level == "raid5" else 1)
    assert [event for event in events if isinstance(event, Progress)][-1] == Progress(3, total, total)
    (said,) = [event.text for event in events if isinstance(event, Said)]
    assert ("every byte" in said) == (level == "raid5")


def test_a_member_with_data_stops_it_before_any_is_zeroed(members: list[MakeMember]) -> None:
    _write(members[0].device, HIDDEN)
    _write(members[1].device, SEEN)
    with pytest.raises(Stopped, match="holds data that was not there when the plan was made"):
        list(zero_members(_array(members), 0, members))
    assert _bytes(members[0].device, HIDDEN, MIB) == BYTES
    assert _bytes(members[1].device, SEEN, MIB) == BYTES


def test_a_member_that_may_be_wiped_is_never_zeroed(members: list[MakeMember]) -> None:
    _write(members[0].device, HIDDEN)
    step = _array(members)
    wiped = [members[0], replace(members[1], wipe=True)]
    whole = replace(step, data=DataArea(4 * MIB))
    for planned, drives in ((step, wiped), (whole, members), (step, members[:1])):
        with pytest.raises(Stopped, match="may hold data, so none is zeroed"):
            list(zero_members(planned, 0, drives))
    assert _bytes(members[0].device, HIDDEN, MIB) == BYTES


def test_a_drive_without_the_command_stops_it(
    members: list[MakeMember], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # util-linux 2.38 on a drive whose write_zeroes_max_bytes is 0
    failing = "echo 'fallocate: fallocate failed: Operation not supported' >&2; exit 1"
    monkeypatch.setenv("PATH", f"{program(tmp_path, 'fallocate', failing)}:{os.environ['PATH']}")
    with pytest.raises(Stopped, match=r"was not zeroed: fallocate: .* Operation not supported") as stopped:
        list(zero_members(_array(members), 0, members))
    assert "aligntool rollback" in stopped.value.hint


@pytest.mark.parametrize(("level", "at"), [("raid1", SEEN), ("raid5", SEEN), ("raid5", HIDDEN)])
def test_a_drive_that_only_says_that_it_zeroed_stops_it(
    members: list[MakeMember], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, at: int
) -> None:
    """The program writes where the drive would have left old bytes: parity is read back everywhere."""
    leaving = f'for device; do :; done; printf x | dd of="$device" bs=1 seek={at} conv=notrunc status=none'
    monkeypatch.setenv("PATH", f"{program(tmp_path, 'fallocate', leaving)}:{os.environ['PATH']}")
    with pytest.raises(Stopped, match=f"does not read as zeros at byte {at}, although its drive zeroed it"):
        list(zero_members(_array(members, level), 0, members))
