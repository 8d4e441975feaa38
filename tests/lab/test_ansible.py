"""The Ansible module `raid` on NVMe drives and real md: an array is announced, created, and not changed afterwards.

`ansible_arrays` runs in the guest. The expected values come from mdadm, sfdisk, dumpe2fs and the playbooks.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aligntool.units import KIB
from tests.ansible.play import Played, read
from tests.lab import ansible_arrays
from tests.lab.array_cases import Planned, in_bytes
from tests.lab.conftest import Part
from tests.lab.drives import Nvme
from tests.thorough import THOROUGH, when_thorough

pytestmark = [
    when_thorough("plays five times in an emulated PC"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "udevadm", "ansible-playbook"),
    pytest.mark.needs_tools("mdadm", "sfdisk", "mkfs.ext4", "dumpe2fs", "findmnt"),
]
SERIALS = (*ansible_arrays.SERIALS, *ansible_arrays.OF_CUT, *ansible_arrays.ENSURED)
DRIVES = tuple(Nvme(serial, size=ansible_arrays.SIZE) for serial in SERIALS)
PART = Part("ansible_arrays", DRIVES, limit_s=3600.0) if THOROUGH else None
BLANK = hashlib.sha256(bytes(ansible_arrays.SIZE)).hexdigest()


@dataclass(frozen=True, slots=True)
class Observed:
    """The output of ansible-playbook, and what other programs saw afterwards."""

    play: Played
    seen: dict[str, Any]

    @property
    def export(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.seen["export"].splitlines())

    @property
    def members(self) -> list[dict[str, str]]:
        """Return the output of `mdadm --examine` for each member."""
        return [fields(text, " : ") for text in self.seen["examine"]]


def fields(text: str, between: str) -> dict[str, str]:
    rows = (line.split(between, 1) for line in text.splitlines() if between in line)
    return {name.strip(): value.strip() for name, value in rows}


@pytest.fixture(scope="module")
def found(said: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((said / "played.json").read_text())
    return answer


@pytest.fixture(scope="module")
def thrice(found: dict[str, Any]) -> tuple[Observed, Observed, Observed]:
    checked, ran, again = (Observed(read(printed), seen) for printed, seen in found["thrice"])
    return checked, ran, again


def test_check_mode_announces_the_array_and_writes_nothing(thrice: tuple[Observed, Observed, Observed]) -> None:
    checked, ran, _ = thrice
    assert checked.play.words == {"make": "changed"} and checked.play.changed == 1
    assert "+/dev/md/played: RAID5 of 3 members" in checked.play.diffs["make"] == ran.play.diffs["make"]
    assert checked.seen["sums"] == [BLANK] * 3
    assert checked.seen["files"] == ["HOMEHOST <system>\n", ""] and checked.seen["records"] == []


def test_the_created_array_is_the_requested_one(thrice: tuple[Observed, Observed, Observed], said: Path) -> None:
    _, ran, _ = thrice
    assert ran.play.words["make"] == "changed" and ran.play.changed == 1 and ran.play.results["make"]["sentences"]
    assert (ran.export["MD_LEVEL"], ran.export["MD_DEVICES"]) == ("raid5", "3")
    drives = {name.removesuffix("p1") for key, name in ran.export.items() if key.endswith("_DEV")}
    assert len(drives) == 3 and all(drive.startswith("/dev/nvme") for drive in drives)
    planned = Planned((said / "played-plan").read_text())
    for member in ran.members:
        assert in_bytes(member["Chunk Size"]) == 128 * KIB
        assert int(member["Data Offset"].split()[0]) * 512 == planned.size("data-offset")
        assert member["Array UUID"] == ran.export["MD_UUID"]
    tables = [table.partition("start=")[2].split(",")[0].strip() for table in ran.seen["tables"]]
    assert tables == ["2048"] * 3


def test_its_file_system_fits_the_stripe_and_is_mounted_now_and_at_every_boot(
    thrice: tuple[Observed, Observed, Observed],
) -> None:
    seen = thrice[1].seen
    superblock = fields(seen["superblock"], ":")
    assert int(superblock["RAID stride"]) * int(superblock["Block size"]) == 128 * KIB
    assert int(superblock["RAID stripe width"]) * int(superblock["Block size"]) == 2 * 128 * KIB
    assert seen["mount"] == "ext4"
    mdadm, fstab = seen["files"]
    assert f"UUID={thrice[1].export['MD_UUID']}" in mdadm
    assert f"UUID={superblock['Filesystem UUID']} /srv/played ext4 " in fstab


def test_a_second_run_changes_nothing(thrice: tuple[Observed, Observed, Observed]) -> None:
    _, ran, again = thrice
    assert again.play.words == {"make": "ok"} and again.play.changed == 0 and not again.play.diffs["make"].strip()
    assert again.export == ran.export
    assert [again.seen[name] for name in ("tables", "files")] == [ran.seen[name] for name in ("tables", "files")]


@pytest.mark.parametrize(
    ("task", "difference"),
    [
        ("level", "its level is raid5, not raid1"),
        ("chunk", f"its chunk is {128 * KIB} bytes, not 256KiB; its metadata version is 1.2, not 1.0"),
        ("members", "its members are "),
    ],
)
def test_another_level_chunk_or_other_members_fail_the_task(
    thrice: tuple[Observed, Observed, Observed], task: str, difference: str
) -> None:
    _, ran, again = thrice
    assert ran.play.words[task] == "fatal" and not ran.play.results[task]["changed"]
    assert ran.play.results[task]["msg"].startswith(f"played already exists: {difference}")
    assert again.export["MD_LEVEL"] == "raid5"


def test_an_interrupted_array_is_rolled_back_by_its_own_name_only(found: dict[str, Any]) -> None:
    before, printed, after = found["undo"]
    assert before["records"] and "MD_LEVEL=raid1" in before["export"], "or nothing was to be undone"
    play = read(printed)
    assert play.words == {"other": "ok", "undo": "changed"}
    assert re.search(
        r"^-RAID1 of 2 members.*: unfinished, at step [34]\n\+RAID1.*: rolled back$", play.diffs["undo"], re.M
    )
    assert after["records"] == [] and after["export"] == ""
    assert not any(after["examine"]) and not any(after["tables"])


def test_an_interrupted_array_is_completed(found: dict[str, Any]) -> None:
    before, printed, after = found["finish"]
    export = Observed(read(printed), after).export
    uuid = f"UUID={export['MD_UUID']}"
    assert before["records"] and uuid in before["export"] and uuid not in before["files"][0], "or it was finished"
    play = read(printed)
    assert play.words == {"finish": "changed"} and play.results["finish"]["array"]["level"] == "raid1"
    assert after["records"] == [] and uuid in after["files"][0]


def test_an_array_of_drives_that_the_host_finds_is_announced_created_and_kept(found: dict[str, Any]) -> None:
    checked, ran, again = (Observed(read(printed), seen) for printed, seen in found["ensured"])
    assert checked.play.words == {"ensure": "changed"} and checked.seen["sums"] == [BLANK] * 2
    assert checked.seen["records"] == [] and "/srv/scratch" not in "".join(checked.seen["files"])
    diffs = [one.play.diffs["ensure"] for one in (checked, ran)]
    assert all("+/dev/md/scratch: RAID0 of 2 members" in diff for diff in diffs)
    assert all("+/etc/fstab: /srv/scratch/pods /opt/pods none bind,nofail" in diff for diff in diffs)
    assert ran.play.words == {"ensure": "changed", "differs": "fatal"}
    assert "is a RAID0, not the requested RAID1" in ran.play.results["differs"]["msg"]
    assert (ran.export["MD_LEVEL"], ran.export["MD_DEVICES"], ran.seen["mount"]) == ("raid0", "2", "ext4")
    assert again.play.words == {"ensure": "ok"} and again.play.changed == 0 and not again.play.diffs["ensure"].strip()
    assert (again.export, again.seen["files"]) == (ran.export, ran.seen["files"])
