"""`aligntool-ensure@.service` on a Debian that boots: with its drives kept, blank, missing, more, in another order,
with other serial numbers, and with none at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from aligntool.units import GIB
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.ensured_pc import OTHER, UNIT, blank, look, set_up, value
from tests.lab.marks import DEBIAN_PC
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, when_thorough("starts a PC 19 times")]

FIRST = ("store0", "store1")
THIRD = "store2"
MOVED = ("store3", "store4")  # the serial numbers that the drives have later, with their content
NEW = ("store5", "store6")  # the serial numbers of blank drives in place of all others
# The mount is slow, like that of a file system with a long log.
SLOW = """cat > /etc/systemd/system/slow.service << 'END'
[Unit]
DefaultDependencies=no
Before=srv-scratch.mount
[Service]
Type=oneshot
ExecStart=/bin/sleep 8
[Install]
WantedBy=local-fs.target
END
systemctl daemon-reload
systemctl enable slow.service
"""
FILL = """set -e
echo kept > /srv/scratch/file
head -c 4M /dev/urandom > /srv/scratch/random
sync
sha256sum < /srv/scratch/random
"""


@dataclass(slots=True)
class Observed:
    """What there was at each boot, by its name, in their order."""

    said: dict[str, str] = field(default_factory=dict)
    sum: str = ""  # of the file that was written to the array which the ten boots find
    third_written: bool = False  # the drive that is not in the array

    @property
    def ten(self) -> list[str]:
        """Return the ten boots in a row that find the array as it is."""
        names = list(self.said)
        first = names.index("kept again")
        return [self.said[name] for name in names[first : first + 10]]


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    found = Observed()
    with powered(debian.pc(*_drives(*FIRST))) as pc:
        set_up(pc)
        pc.run(f"{SLOW}systemctl start {UNIT}\n{FILL}")
        found.said["kept"] = _boot(pc, FIRST)
        found.said["blank"] = _boot(pc, FIRST, new=FIRST)
        found.sum = pc.run(FILL).out.strip()
        _boot_ten_times(pc, found)
        found.third_written = any((pc.folder / f"{THIRD}.img").read_bytes())
        found.said["missing"] = _boot(pc, MOVED[:1])
        found.said["missing is back"] = _boot(pc, MOVED)
        found.said["new"] = _boot(pc, NEW)
        found.said["one new"] = _boot(pc, (NEW[0], FIRST[0]), new=FIRST[:1])
        found.said["one blank"] = _boot(pc, NEW, new=NEW[1:])
        found.said["none"] = _boot(pc, ())
    yield found


def _boot_ten_times(pc: DebianPC, found: Observed) -> None:
    found.said["kept again"] = _boot(pc, FIRST)
    found.said["other order"] = _boot(pc, FIRST[::-1])
    found.said["one more"] = _boot(pc, (THIRD, *FIRST))
    pc.off()
    for old, new in zip(FIRST, MOVED, strict=True):
        (pc.folder / f"{old}.img").rename(pc.folder / f"{new}.img")
    found.said["other serials"] = _boot(pc, MOVED)
    for number in range(6):
        found.said[f"other serials {number}"] = _boot(pc, MOVED)


def _drives(*serials: str) -> tuple[Nvme, ...]:
    return tuple(Nvme(serial, GIB) for serial in serials)


def _boot(pc: DebianPC, serials: tuple[str, ...], new: tuple[str, ...] = ()) -> str:
    """Return what there is after a start with these drives; those of `new` became blank."""
    if pc.on:
        pc.off()
    blank(pc, *new)
    pc.drives = _drives(*serials)
    pc.start()
    return look(pc)


def test_drives_with_their_content_are_left_as_they_are(observed: Observed) -> None:
    for said in (observed.said["kept"], *observed.ten, observed.said["missing is back"]):
        assert (value(said, "unit"), value(said, "local-fs")) == ("success", "active"), said
        assert "already as requested" in said and "Nothing to do." in said, said
        assert value(said, "mounted").startswith("xfs"), said
        assert (value(said, "access"), value(said, "bound")) == ("12 2770", "[/pods]"), said
        assert value(said, "file") == "kept"


def test_ten_boots_in_a_row_find_the_same_array_and_change_nothing(observed: Observed) -> None:
    assert len(observed.ten) == 10
    for name in ("mounted", "tables"):
        assert {value(said, name) for said in observed.ten} == {value(observed.said["blank"], name)}
    assert {value(said, "sum") for said in observed.ten} == {observed.sum}


def test_the_drives_of_an_array_may_come_back_in_another_order(observed: Observed) -> None:
    before, after = observed.said["kept again"], observed.said["other order"]
    assert [value(before, name) for name in ("nvme0", "nvme1")] == [*FIRST]
    assert [value(after, name) for name in ("nvme0", "nvme1")] == [*FIRST[::-1]]


def test_a_further_drive_is_named_and_not_written_to(observed: Observed) -> None:
    said = observed.said["one more"]
    assert value(said, "nvme0") == THIRD and "nvme0n1: selected, but not in the array" in said, said
    assert not observed.third_written


def test_the_content_counts_and_not_the_serial_numbers(observed: Observed) -> None:
    assert {value(observed.said["other serials"], name) for name in ("nvme0", "nvme1")} == {*MOVED}


def _check_anew(said: str, before: str) -> None:
    """Check that the array was made anew, and only its own lines were replaced."""
    assert (value(said, "unit"), value(said, "local-fs")) == ("success", "active"), said
    kind, uuid = value(said, "mounted").split()
    assert kind == "xfs" and value(said, "line").startswith(f"UUID={uuid} /srv/scratch xfs"), said
    assert (value(said, "access"), value(said, "bound")) == ("12 2770", "[/pods]"), said
    binds = [line for line in said.splitlines() if line.startswith("/srv/scratch/pods /var/lib/pods none bind,nofail")]
    assert len(binds) == 1, said
    old = value(before, "line")
    assert not value(said, "line").startswith(old.split()[0]) and f"# replaced by aligntool: {old}" in said
    assert sum(line.startswith("ARRAY ") for line in said.splitlines()) == 1, said
    assert OTHER in said.splitlines()
    assert "file kept" not in said.splitlines()


def test_blank_drives_get_the_array_anew_before_the_boot_is_done(observed: Observed) -> None:
    _check_anew(observed.said["blank"], observed.said["kept"])


def test_blank_drives_with_other_serial_numbers_get_the_array_anew(observed: Observed) -> None:
    said = observed.said["new"]
    _check_anew(said, observed.said["missing is back"])
    assert {value(said, name) for name in ("nvme0", "nvme1")} == {*NEW}


@pytest.mark.parametrize(
    ("name", "last", "why"),
    [
        ("missing", "missing is back", f"(serial {MOVED[0]}): it is not made anew; 1 of 2 members are there"),
        ("one new", "new", f"(serial {FIRST[0]}) has none: it is not made anew"),
        ("one blank", "new", f"(serial {NEW[1]}) has none: it is not made anew"),
    ],
)
def test_with_some_of_the_drives_the_system_starts_and_they_are_named(
    observed: Observed, name: str, last: str, why: str
) -> None:
    said = observed.said[name]
    assert (value(said, "unit"), value(said, "local-fs")) == ("exit-code", "active"), said
    assert why in said, said
    assert value(said, "mounted") == "" and value(said, "tables") == value(observed.said[last], "tables"), said


def test_without_a_drive_there_is_nothing_to_do(observed: Observed) -> None:
    said = observed.said["none"]
    assert (value(said, "unit"), value(said, "local-fs")) == ("success", "active"), said
    assert "no drive is selected" in said
    assert value(said, "tables") == value(observed.said["new"], "tables")
