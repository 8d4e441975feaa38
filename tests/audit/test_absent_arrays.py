"""Arrays that the files name and of which no member is there; each rule on both sides."""

from dataclasses import replace

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Finding
from aligntool.inventory import Disk, Gap, Inventory, Layer, Unseen
from aligntool.system import System, Unfinished
from tests.audit.array_builders import FS, OTHER, RIGHT, UUID, drive, fstab, lines, machine, system
from tests.audit.builders import made_disk

MOUNT = f"UUID={FS} /srv/data xfs noatime,nofail,x-systemd.device-timeout=2min 0 0"


def blank(number: int) -> Disk:
    disk = drive(number)
    return replace(disk, partitions=(), table=None)


def read(disk: Disk, *layers: Layer) -> Disk:
    parts = tuple(replace(part, content=layers, content_read=True) for part in disk.partitions)
    return replace(disk, partitions=parts, content_read=True, table_read=True)


def found(files: System, *disks: Disk, is_whole: bool = True) -> list[Finding]:
    drives = disks or (read(blank(0)), read(blank(1)))
    report = audit(Inventory(drives, system=files, is_whole=is_whole), {})
    return [one for one in report.findings if one.code.value == "AT621"]


def test_drives_that_came_back_blank_are_reported_with_the_mount_that_is_missing() -> None:
    """Both lines are as `raid create` writes them."""
    (finding,) = found(system(fstab=fstab(MOUNT)))
    assert finding.severity.value == "error" and "/dev/md/data" in finding.summary
    assert finding.evidence[0] == RIGHT and f"UUID={FS} at /srv/data" in finding.evidence[1]


def member(uuid: str, label: str = "") -> Disk:
    disk = drive(0)
    return read(disk, Layer("linux_raid_member", disk.partitions[0].extent, "1.2", uuid=uuid, label=label))


@pytest.mark.parametrize(
    ("conf", "severities"),
    [
        (RIGHT, ["warning"]),
        (f"ARRAY <ignore> UUID={UUID}", []),
        (f"ARRAY metadata=imsm UUID={UUID}", []),  # of a firmware, in its own superblock
        (f"ARRAY /dev/md/Vol0 container={OTHER} member=0 UUID={UUID}", []),
        ("ARRAY /dev/md/data name=any:data", ["warning"]),
        ("ARRAY /dev/md/data devices=/dev/sda1,/dev/sdb1", []),
        ("MAILADDR root", []),
    ],
)
def test_only_a_line_that_identifies_an_array_of_md_can_name_an_absent_one(conf: str, severities: list[str]) -> None:
    assert [one.severity.value for one in found(system(conf=lines(conf)))] == severities


def test_an_array_with_a_member_or_one_that_is_being_made_is_not_absent() -> None:
    assert found(system(), member(UUID.replace(":", ""))) == []
    assert len(found(system(), member(OTHER.replace(":", "")))) == 1
    named = system(conf=lines("ARRAY /dev/md/data name=any:data"))
    assert found(named, member(OTHER.replace(":", ""), "ANY:data")) == []
    assert found(replace(system(), unfinished=(Unfinished("not finished", UUID),))) == []
    whole = replace(machine("raid1", system()), is_whole=True)
    assert [one for one in audit(whole, {}).findings if one.code.value == "AT621"] == []


def test_nothing_is_absent_unless_every_disk_was_read() -> None:
    files = system(fstab=fstab(MOUNT))
    assert found(files, is_whole=False) == []
    assert found(files, read(blank(0)), replace(blank(1), content_read=False)) == []
    part = drive(1)
    assert found(files, replace(read(part), partitions=(replace(part.partitions[0], content_read=False),))) == []
    assert found(files, read(blank(0)), made_disk(name="sr0", size=0)) != []  # no medium
    unseen = Unseen("sdb", "does not answer", "", Gap.DISK)
    report = audit(Inventory((read(blank(0)),), system=files, is_whole=True, unseen=(unseen,)), {})
    assert "AT621" not in [one.code.value for one in report.findings]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("/dev/md/data /srv/data xfs nofail 0 0", 1),
        ("/dev/md0 /srv/data xfs nofail 0 0", 1),
        ("/dev/md0 /srv/data xfs noauto 0 0", 0),
        ("UUID=77777777-2222-4333-8444-555555555555 /srv/usb xfs nofail 0 0", 0),  # names no array
    ],
)
def test_an_array_that_only_fstab_names_is_absent_if_it_is_a_node_of_md(line: str, count: int) -> None:
    assert len(found(system(conf=lines("MAILADDR root"), fstab=fstab(line)))) == count
    assert found(system(conf=lines("MAILADDR root"), fstab=fstab(line)), member(OTHER.replace(":", ""))) == []
