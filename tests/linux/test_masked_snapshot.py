"""A masked snapshot keeps what is known to identify nothing, and the verdicts."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.linux.files import write_snapshot
from aligntool.linux.snapshot import collect
from aligntool.linux.sysfs import Tree
from aligntool.linux.targets import open_sysroot
from aligntool.units import GIB, KIB, MIB
from tests.audit.machines.captured import HERE
from tests.linux.trees import MadeDisk, MadePartition, make_tree
from tests.run_aligntool import run_aligntool

# Of makers and of the kernel's drivers: every drive of a model has the same.
PRINTED = ("model", "vendor", "rev", "firmware_rev", "name", "proc_name")
MACHINES = sorted(path.name for path in HERE.glob("*.tar.xz"))


@dataclass(frozen=True, slots=True)
class Secretive(Tree):
    """A machine with a secret in every attribute and in every file that the kernel or an administrator writes."""

    secret: bytes = b""

    def content(self, path: str, limit: int = 4 * MIB) -> bytes | None:
        content = Tree.content(self, path, limit)
        keeps = path.startswith("/run/udev/") or path.rpartition("/")[2] in (*PRINTED, "dev", "size", "start")
        return content if content is None or keeps else self.secret


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("secret", ["Alice's home, 7", "top-secret", "/srv/alice/nbd.sock", "alice.example.org"])
def test_a_secret_in_every_attribute_is_in_no_entry(machine: str, secret: str) -> None:
    with open_sysroot(str(HERE / machine)) as tree:
        entries = list(collect(Secretive(tree.root, secret=secret.encode() + b"\n"), serials=False))
        shown = list(collect(Secretive(tree.root, secret=secret.encode() + b"\n"), serials=True))
    assert sum(secret.encode() in entry.content for entry in shown) > 100
    assert not [entry.path for entry in entries if secret.encode() in entry.content or secret in entry.path]


def named_machine(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return a machine with names that its administrator chose, and these names."""
    members = [MadePartition(1, 63 * 512, GIB, udev={"ID_FS_TYPE": "linux_raid_member"}, holders=["md_alice-home"])]
    attributes = {
        "md/level": "raid1", "md/metadata_version": "1.2", "md/raid_disks": "2", "md/dev-sda1/slot": "0",
        "md/array_state": "clean", "md/chunk_size": "0", "md/new_name": "alice", "md/bitmap/location": "file",
        "uevent": "DEVNAME=md_alice-home\nDEVTYPE=disk\nPARTNAME=alice", "partname": "alice",
    }  # fmt: skip
    disks = [
        MadeDisk("sda", 8 * GIB, members, physical=4096, model="WDC WD20EARS", vendor="ATA"),
        MadeDisk(
            "md_alice-home", GIB, [MadePartition(1, 3 * KIB, MIB, mounted_at=["/home"], alignment_offset=1024)],
            physical=4096, slaves=["sda1"], attributes=attributes, udev={"MD_NAME": "boss:alice-home"},
            links=["md/alice-home"],
        ),
        MadeDisk("bcache0", GIB, attributes={"bcache/label": "alice-cache", "bcache/state": "clean"}),
        MadeDisk("nbd0", GIB, attributes={"backend": "/srv/alice/disk", "pid": "7"}),
        MadeDisk("alice0", GIB, physical=4096),  # of configfs
    ]  # fmt: skip
    root = make_tree(folder, disks)
    (root / "proc/mdstat").write_text(
        "md_alice-home : active raid1 sda1[0]\n  bitmap: 0/1 pages, file: /srv/alice/map\n"
    )
    (root / "proc/diskstats").write_text(
        "8 0 sda 1 2 3 4 5\n9 1 md_alice-home 1 0 8 0 0\n9 2 md_alice-home1 1 0 8 0 0\n"
    )
    (root / "proc/uptime").write_text("100.00 200.00\n")
    kernel = root / "proc/sys/kernel"
    kernel.mkdir(parents=True)
    (kernel / "osrelease").write_text("6.12.3-alice\n")
    (root / "proc/cmdline").write_text("root=/dev/md_alice-home1 rd.md.alice=1 rd.auto=1\n")
    (root / "etc/mdadm/mdadm.conf.d").mkdir(parents=True)
    (root / "etc/mdadm/mdadm.conf.d/alice.conf").write_text("ARRAY /dev/md/alice-home name=boss:alice-home\n")
    (root / "etc/fstab").write_text("/dev/md_alice-home1 /home ext4 x-systemd.device-timeout=alice,noatime 0 2\n")
    return root, ("alice", "boss")


def test_names_that_an_administrator_chose_are_in_no_entry(tmp_path: Path) -> None:
    root, names = named_machine(tmp_path)
    plain = list(collect(Tree(str(root)), serials=True))
    assert all(any(name.encode() in entry.content for entry in plain) for name in names)
    assert any("alice" in entry.path for entry in plain)
    entries = list(collect(Tree(str(root)), serials=False))
    assert not [entry for entry in entries for name in names if name in entry.path or name.encode() in entry.content]


def _judgement(sysroot: str) -> tuple[list[tuple[object, ...]], list[tuple[str, str]]]:
    """Return the verdicts and findings of an audit without names."""
    done = run_aligntool("audit", "--json", "--sysroot", sysroot)
    report = json.loads(done.stdout)
    kept = ("kind", "size", "limits", "grids", "verdict", "rotational", "rotation_rpm", "zoned", "model", "ata", "nvme")
    verdicts = [tuple(json.dumps(disk[key]) for key in kept) for disk in report["disks"]]
    verdicts += [
        tuple(json.dumps(part[key]) for key in ("number", "start", "length", "type_code", "verdict"))
        for disk in report["disks"]
        for part in disk["partitions"]
    ]
    return sorted(verdicts, key=str), sorted((each["code"], each["severity"]) for each in report["findings"])


def _captures(tmp_path: Path) -> Iterator[str]:
    yield str(named_machine(tmp_path / "named")[0])
    yield from (str(HERE / machine) for machine in MACHINES)


def test_the_audit_of_a_masked_snapshot_has_the_verdicts_of_the_other(tmp_path: Path) -> None:
    counted = 0
    for number, sysroot in enumerate(_captures(tmp_path)):
        judgements = []
        for serials in (True, False):
            archive = str(tmp_path / f"{number}-{serials}.tar.gz")
            with open_sysroot(sysroot) as tree:
                write_snapshot(archive, collect(tree, serials=serials))
            judgements.append(_judgement(archive))
        assert judgements[0] == judgements[1], sysroot
        counted += len(judgements[0][0])
    assert counted > 50
