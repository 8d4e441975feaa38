"""Captured machines compared with the output of lsblk there; this machine compared with lsblk here."""

import json
from pathlib import Path
from typing import Any

import pytest

from aligntool.inventory import Disk, DiskKind, IoLimits
from aligntool.linux.look import look
from aligntool.units import GIB, parse_size
from tests.conftest import run
from tests.linux.trees import MadeDisk, make_tree

MACHINES = ["simple-lvm", "simple-nvme"]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, shared_data: Path, tmp_path: Path) -> Path:
    run("tar", "-xf", shared_data / f"sysroots/{request.param}.tar.xz", "-C", tmp_path)
    return tmp_path / str(request.param)


def rows(machine: Path, columns: str) -> dict[str, dict[str, str]]:
    """Return lsblk's own table, by the last word of the tree it draws; "DISC-GRAN" and the like as printed."""
    lines = (machine / f"lsblk-{machine.name}-{columns}").read_text().splitlines()
    heads = lines[0].split()
    found = {}
    for line in lines[1:]:
        words = line.replace("|-", "").replace("`-", "").split()
        found[words[0]] = dict(zip(heads, words, strict=False))
    return found


def by_name(machine: Path) -> dict[str, Disk]:
    disks = look([], sysroot=str(machine)).disks
    named = {disk.name: disk for disk in disks}
    if "dm-0" in named:
        named["vg_foo.4059-lv_foo.4059"] = named["dm-0"]
    return named


def size_of(text: str) -> int:
    """Parse sizes of lsblk: 512B, 4K, 10M."""
    return parse_size(text if text[-1] == "B" else f"{text}iB")


def test_exactly_the_disks_that_lsblk_lists_are_found(machine: Path) -> None:
    listed = {row["KNAME"] for row in rows(machine, "basic").values() if row["TYPE"] != "part"}
    assert {disk.name for disk in look([], sysroot=str(machine)).disks} == listed


def test_every_partition_that_lsblk_lists_is_found(machine: Path) -> None:
    listed = {name for name, row in rows(machine, "basic").items() if row["TYPE"] == "part"}
    disks = look([], sysroot=str(machine)).disks
    assert {part.node for disk in disks for part in disk.partitions} == listed


def test_topology_is_what_lsblk_printed(machine: Path) -> None:
    disks, seen = by_name(machine), 0
    for name, row in rows(machine, "topo").items():
        if name not in disks:
            continue
        limits = disks[name].limits
        assert str(limits.alignment_offset) == row["ALIGNMENT"]
        assert str(limits.minimum_io_size) == row["MIN-IO"]
        assert str(limits.optimal_io_size) == row["OPT-IO"]
        assert str(limits.physical_block_size) == row["PHY-SEC"]
        assert str(limits.logical_block_size) == row["LOG-SEC"]
        seen += 1
    assert seen == len(look([], sysroot=str(machine)).disks)


def test_partition_alignment_is_what_lsblk_printed(machine: Path) -> None:
    topology, discard = rows(machine, "topo"), rows(machine, "discard")
    parts = [part for disk in look([], sysroot=str(machine)).disks for part in disk.partitions]
    assert len(parts) >= 10
    for part in parts:
        assert str(part.kernel_alignment_offset) == topology[part.node or ""]["ALIGNMENT"]
        assert str(part.kernel_discard_alignment) == discard[part.node or ""]["DISC-ALN"]


def test_discard_granularity_is_what_lsblk_printed(machine: Path) -> None:
    disks = by_name(machine)
    for name, row in rows(machine, "discard").items():
        if name in disks:
            assert disks[name].limits.discard_granularity == size_of(row["DISC-GRAN"])
            assert str(disks[name].limits.discard_alignment) == row["DISC-ALN"]


def test_mount_points_are_what_lsblk_printed(machine: Path) -> None:
    found = {part.node: part.mounted_at for disk in look([], sysroot=str(machine)).disks for part in disk.partitions}
    for name, row in rows(machine, "basic").items():
        if row["TYPE"] == "part":
            assert row.get("MOUNTPOINT", "") in (found[name] or ("",))


def test_models_and_vendors_are_what_lsblk_printed(machine: Path) -> None:
    table = (machine / f"lsblk-{machine.name}-vendor").read_text()
    for disk in look([], sysroot=str(machine)).disks:
        if disk.model:
            line = next(line for line in table.splitlines() if line.startswith(disk.name))
            assert disk.model in line
            assert (disk.vendor or "") in line
            assert disk.kind is DiskKind.NVME or (disk.firmware or "?") in line


def test_rotation_is_what_lsblk_printed(machine: Path) -> None:
    disks = by_name(machine)
    heads = (machine / f"lsblk-{machine.name}-state").read_text().splitlines()[0]
    at = heads.index("ROTA") + 3  # right-aligned, and the column before it can be empty
    for line in (machine / f"lsblk-{machine.name}-state").read_text().splitlines()[1:]:
        name = line.replace("|-", "").replace("`-", "").split()[0]
        if name in disks:
            assert disks[name].rotational == (line[at] == "1")


def test_a_tree_with_only_nvme_controllers_gives_their_namespaces(shared_data: Path, tmp_path: Path) -> None:
    run("tar", "-xf", shared_data / "sysroots/tree-pcie.tar.xz", "-C", tmp_path)
    inventory = look([], sysroot=str(tmp_path))
    assert [disk.name for disk in inventory.disks] == ["nvme0n1", "nvme1n1"]
    single, shared = inventory.disks
    assert single.nvme is not None and shared.nvme is not None
    assert (single.nvme.multipath, single.nvme.controllers) == (False, ("nvme0",))
    assert (shared.nvme.multipath, shared.nvme.controllers) == (True, ("nvme1", "nvme2"))
    assert [path[0].address for path in shared.links] == ["052e:78:00.0", "058e:78:00.0"]
    assert (single.queue_depth, single.numa_node) == (1024, 1)
    assert single.limits.logical_block_size == 4096
    sectors = next(tmp_path.glob("sys/devices/**/nvme0n1/size")).read_text()
    assert single.size == int(sectors) * 512


@pytest.mark.needs_tools("lsblk")
def test_this_machine_has_the_disks_that_lsblk_prints() -> None:
    told = {row["name"]: row for row in json.loads(run("lsblk", "-J", "-O", "-b"))["blockdevices"]}
    compared = 0
    for disk in look([]).disks:
        if disk.kind is DiskKind.LOOP or disk.name not in told:
            continue  # loop devices of other tests appear and disappear
        compared += 1
        check(disk, told[disk.name])
    assert compared >= 1


def check(disk: Disk, row: dict[str, Any]) -> None:
    limits = disk.limits
    assert disk.size == row["size"]
    assert disk.limits == IoLimits(
        logical_block_size=row["log-sec"],
        physical_block_size=row["phy-sec"],
        minimum_io_size=row["min-io"],
        optimal_io_size=row["opt-io"],
        discard_max=row["disc-max"],
        alignment_offset=row["alignment"],
        discard_granularity=row["disc-gran"],
        discard_alignment=row["disc-aln"],
        chunk_size=limits.chunk_size,
        max_transfer=limits.max_transfer,
    )
    assert (disk.rotational, disk.read_only, disk.removable) == (row["rota"], row["ro"], row["rm"])
    mounts = [place for place in row["mountpoints"] if place]
    assert set(mounts) <= set(disk.mounted_at)
    starts = {child["name"]: (child["start"] * 512, child["size"]) for child in row.get("children", [])}
    found = {part.node: (part.extent.start, part.extent.length) for part in disk.partitions}
    assert {name: starts[name] for name in found if name in starts} == {
        name: extent for name, extent in found.items() if name in starts
    }


LIMITS = [
    MadeDisk("sda", GIB),
    MadeDisk("sda", GIB, physical=4096, optimal_io=33553920),
    MadeDisk("sda", GIB, logical=4096, physical=4096),
    MadeDisk("sda", GIB, physical=4096, alignment_offset=3584, discard_granularity=4096, discard_alignment=3584),
    MadeDisk("sda", GIB, physical=512, minimum_io=16384, chunk_sectors=256, max_hw_sectors_kb=32767),
    MadeDisk("dm-0", GIB, alignment_offset=-1),
]


@pytest.mark.parametrize("made", LIMITS)
def test_limits_are_kept_as_the_kernel_reports_them_even_if_implausible(tmp_path: Path, made: MadeDisk) -> None:
    (disk,) = look([], sysroot=str(make_tree(tmp_path, [made]))).disks
    assert disk.limits == IoLimits(
        logical_block_size=made.logical,
        physical_block_size=made.physical,
        minimum_io_size=made.minimum_io or made.physical,
        optimal_io_size=made.optimal_io,
        alignment_offset=made.alignment_offset,
        discard_granularity=made.discard_granularity,
        discard_alignment=made.discard_alignment,
        chunk_size=made.chunk_sectors * 512,
        max_transfer=made.max_hw_sectors_kb * 1024,
    )


@pytest.mark.needs_tools("lsblk")
def test_lsblk_reads_a_made_up_tree_in_the_same_way(tmp_path: Path) -> None:
    """An independent check of the builder of trees: another program reads the same numbers in what it made."""
    made = MadeDisk("sda", 8 * GIB, physical=4096, optimal_io=33553920, alignment_offset=3584, rotational=True)
    root = make_tree(tmp_path, [made])
    (row,) = json.loads(run("lsblk", "-J", "-O", "-b", "--sysroot", root))["blockdevices"]
    (disk,) = look([], sysroot=str(root)).disks
    limits = disk.limits
    assert (disk.size, limits.physical_block_size) == (row["size"], row["phy-sec"])
    assert (limits.optimal_io_size, limits.alignment_offset) == (row["opt-io"], row["alignment"])


def test_missing_and_invalid_attributes_are_unknown_and_do_not_affect_others(tmp_path: Path) -> None:
    garbage = {
        "queue/logical_block_size": "lots",
        "queue/physical_block_size": None,
        "alignment_offset": "\0\0",
        "ro": "",
    }
    root = make_tree(tmp_path, [MadeDisk("sda", GIB, attributes=garbage), MadeDisk("sdb", GIB)])
    (next(root.glob("sys/devices/**/sda/queue/physical_block_size"))).unlink()
    (next(root.glob("sys/devices/**/sda/queue/logical_block_size"))).write_text("lots")
    disk, other = look([], sysroot=str(root)).disks
    assert disk.limits.logical_block_size is None
    assert disk.limits.physical_block_size is None
    assert disk.limits.alignment_offset is None
    assert disk.limits.minimum_io_size == 512
    assert disk.size == GIB and not disk.read_only
    assert other.limits.logical_block_size == 512
