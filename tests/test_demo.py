"""The demo disk, as sfdisk and the checkers and readers of the file systems see it."""

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.demo_disk import DEFAULT_SIZE, PROGRAMS, DemoDisk, DemoPartition, demo_disk, make_demo_image
from aligntool.errors import Refused
from aligntool.units import GIB, MIB, Extent
from tests.conftest import find_tool, run

CYLINDER = 255 * 63 * 512

pytestmark = pytest.mark.needs_tools(*PROGRAMS)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DemoDisk]:
    image = tmp_path_factory.mktemp("demo") / "disk.img"
    return image, make_demo_image(image)


@pytest.fixture(scope="module")
def volumes(demo: tuple[Path, DemoDisk], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Cut each file system out of the image at the place where sfdisk reports its partition."""
    image, disk = demo
    folder = tmp_path_factory.mktemp("volumes")
    kinds = {partition.number: partition.kind for partition in disk.partitions}
    cut = {}
    for number, start, length in _sfdisk(image):
        kind = kinds[number]
        if kind is not None:
            cut[kind] = _cut(image, Extent(start, length), folder / kind)
    return cut


def _sfdisk(image: Path) -> list[tuple[int, int, int]]:
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    return [
        (int(it["node"].removeprefix(str(image))), it["start"] * 512, it["size"] * 512) for it in table["partitions"]
    ]


def _partition(disk: DemoDisk, kind: str) -> DemoPartition:
    return next(it for it in disk.partitions if it.kind == kind)


@pytest.mark.needs_tools("sfdisk")
def test_sfdisk_reads_exactly_the_documented_layout(demo: tuple[Path, DemoDisk]) -> None:
    image, disk = demo
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    assert (table["label"], table["id"], table["sectorsize"]) == ("dos", disk.disk_id, 512)
    seen = [
        (it["start"] * 512, it["size"] * 512, f"0x{int(it['type'], 16):02x}", it.get("bootable", False))
        for it in table["partitions"]
    ]
    assert seen == [(it.extent.start, it.extent.length, it.type_code, it.active) for it in disk.partitions]
    assert [number for number, _, _ in _sfdisk(image)] == [it.number for it in disk.partitions] == [1, 2, 3, 5, 6]
    assert "No errors detected" in run("sfdisk", "--verify", image)


@pytest.mark.needs_tools("parted")
def test_parted_reads_the_same_extents_and_the_geometry_of_255_heads(demo: tuple[Path, DemoDisk]) -> None:
    image, disk = demo
    lines = run("parted", "-s", "-m", image, "unit", "B", "print").splitlines()[2:]
    seen = [tuple(line.split(":")[:3]) for line in lines]
    assert seen == [(str(it.number), f"{it.extent.start}B", f"{it.extent.end - 1}B") for it in disk.partitions]
    # The last sector, 2097151 = 130 * 16065 + 138 * 63 + 7, as cylinder, head and sector in parted.
    assert run("parted", "-s", "-m", image, "unit", "chs", "print").splitlines()[1].split(":")[1] == "130,138,7"
    assert ":255:63:" in run("parted", "-s", "-m", image, "unit", "cyl", "print").splitlines()[2]


@pytest.mark.needs_tools("sfdisk")
def test_partitions_start_at_lba_63_and_end_on_cylinder_boundaries(demo: tuple[Path, DemoDisk]) -> None:
    table = _sfdisk(demo[0])
    assert table[0][1] == 63 * 512
    assert {(start + length) % CYLINDER for _, start, length in table} == {0}
    assert [start % CYLINDER for number, start, _ in table if number >= 5] == [63 * 512, 63 * 512]
    # Three begin off a 4 KiB grid; the last one is on it by chance, which the demo has to recognise.
    assert [start % 4096 for _, start, _ in table] == [63 * 512 % 4096, 1024, 1024, 512, 0]


def test_each_logical_has_its_ebr_one_track_before_it(demo: tuple[Path, DemoDisk]) -> None:
    image, disk = demo
    raw = image.open("rb")
    with raw:
        for partition in disk.partitions:
            if partition.number < 5:
                continue
            raw.seek(partition.extent.start - 63 * 512)
            ebr = raw.read(512)
            assert ebr[510:] == b"\x55\xaa"
            assert struct.unpack_from("<I", ebr, 446 + 8) == (63,)


@pytest.mark.needs_tools("blkid")
def test_blkid_names_every_file_system_with_its_label_and_uuid(
    demo: tuple[Path, DemoDisk], volumes: dict[str, Path]
) -> None:
    _, disk = demo
    for kind, volume in volumes.items():
        exported = run("blkid", "-p", "-o", "export", volume).splitlines()
        seen = dict(line.split("=", 1) for line in exported)
        meant = _partition(disk, kind)
        label = seen["LABEL"].replace("\\", "")
        assert (seen["TYPE"], label, seen["UUID"]) == (kind, meant.label, meant.uuid)


@pytest.mark.needs_tools("e2fsck", "debugfs")
def test_ext3_is_clean_and_its_files_can_be_read_back(
    demo: tuple[Path, DemoDisk], volumes: dict[str, Path], tmp_path: Path
) -> None:
    run("e2fsck", "-fn", volumes["ext3"])
    files = _partition(demo[1], "ext3").files
    assert len(files) >= 3
    for number, file in enumerate(files):
        copy = tmp_path / str(number)
        run("debugfs", "-R", f"dump /{file.path} {copy}", volumes["ext3"])
        assert copy.read_bytes() == file.content


@pytest.mark.needs_tools("ntfsfix", "ntfsinfo", "ntfscat")
def test_ntfs_is_clean_has_its_hidden_sectors_and_its_files_can_be_read_back(
    demo: tuple[Path, DemoDisk], volumes: dict[str, Path]
) -> None:
    run("ntfsfix", "-n", volumes["ntfs"])
    assert "Windows XP" in run("ntfsinfo", "-m", volumes["ntfs"])
    files = _partition(demo[1], "ntfs").files
    assert len(files) >= 3
    for file in files:
        assert _output("ntfscat", str(volumes["ntfs"]), file.path) == file.content
    hidden, sectors, heads = _boot_sector(volumes["ntfs"])
    assert (hidden, sectors, heads) == (63, 63, 255)


@pytest.mark.needs_tools("fsck.fat", "mtype")
def test_fat32_is_clean_and_its_files_can_be_read_back(demo: tuple[Path, DemoDisk], volumes: dict[str, Path]) -> None:
    run("fsck.fat", "-n", volumes["vfat"])
    files = _partition(demo[1], "vfat").files
    assert len(files) >= 2
    for file in files:
        assert _output("mtype", "-i", str(volumes["vfat"]), f"::{file.path}") == file.content
    assert _boot_sector(volumes["vfat"]) == (63, 63, 255)


def test_the_image_is_sparse_and_no_other_file_remains(demo: tuple[Path, DemoDisk]) -> None:
    image, disk = demo
    assert image.stat().st_size == disk.size == DEFAULT_SIZE
    assert image.stat().st_blocks * 512 < 64 * MIB
    assert list(image.parent.iterdir()) == [image]


def test_two_images_have_the_same_table_identifiers_and_swap_space(demo: tuple[Path, DemoDisk], tmp_path: Path) -> None:
    first, disk = demo
    second = tmp_path / "again.img"
    assert make_demo_image(second) == disk
    swap = _partition(disk, "swap").extent
    gap = 63 * 512
    ebrs = [Extent(it.extent.start - gap, gap) for it in disk.partitions if it.number >= 5]
    for extent in (Extent(0, gap), *ebrs, swap):
        assert _digest(first, extent) == _digest(second, extent)
    for kind in ("ntfs", "ext3", "vfat"):
        place = f"--offset={_partition(disk, kind).extent.start}"
        told = [run("blkid", "-p", "-o", "value", "-s", "UUID", place, image) for image in (first, second)]
        assert told[0] == told[1] != ""


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("size", [512 * MIB, 2 * GIB, 40 * GIB], ids=["512MiB", "2GiB", "40GiB"])
def test_disks_of_other_sizes_have_a_valid_table_too(size: int, tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    disk = make_demo_image(image, size=size)
    assert "No errors detected" in run("sfdisk", "--verify", image)
    assert [(start, length) for _, start, length in _sfdisk(image)] == [
        (it.extent.start, it.extent.length) for it in disk.partitions
    ]


@pytest.mark.needs_tools("fsck.fat")
def test_the_smallest_disk_still_has_enough_clusters_for_fat32(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    data = _partition(make_demo_image(image, size=512 * MIB), "vfat")
    volume = _cut(image, data.extent, tmp_path / "data.img")
    assert int(re.findall(r"(\d+) clusters", run("fsck.fat", "-n", volume))[0]) >= 65_525


def test_an_image_recreated_with_another_size_is_not_checked_against_the_old_size(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    for size in (512 * MIB, 1536 * MIB):
        make_demo_image(image, size=size)
        image.unlink()


def test_an_existing_file_is_refused_and_not_changed(tmp_path: Path) -> None:
    image = tmp_path / "precious.img"
    image.write_bytes(b"my only copy")
    with pytest.raises(Refused, match="already exists"):
        make_demo_image(image)
    assert image.read_bytes() == b"my only copy"


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be created: No such file or directory"):
        make_demo_image(tmp_path / "nowhere" / "disk.img")


def test_a_size_too_small_for_fat32_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="too small; the smallest is 512MiB"):
        demo_disk(size=100 * MIB)


@pytest.fixture
def broken(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return an environment in which these programs fail with these messages."""

    def make(**failing: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in failing.items():
            program = folder / name
            program.write_text(f"#!/bin/sh\necho {text!r} >&2\nexit 1\n")
            program.chmod(0o755)
        return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}

    return make


def test_a_failed_program_is_named_with_its_output_and_no_image_remains(
    broken: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    image = tmp_path / "disk.img"
    done = _make_in_subprocess(image, broken(mkntfs="No space for the master file table"))
    assert "Refused: mkntfs failed to make its part of the demo disk: No space for the master" in done.stdout
    assert not image.exists()
    assert not list(tmp_path.glob("aligntool-demo-*"))


def test_missing_programs_are_all_named_with_their_debian_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(PROGRAMS, "mkfs.nothing", "nothing-progs")
    monkeypatch.setitem(PROGRAMS, "mkfs.void", "void-progs")
    with pytest.raises(Refused) as caught:
        make_demo_image(tmp_path / "disk.img")
    assert "mkfs.nothing (Debian package nothing-progs), mkfs.void (Debian package void-progs)" in str(caught.value)
    assert caught.value.hint == "install the packages nothing-progs void-progs"
    assert not (tmp_path / "disk.img").exists()


def _make_in_subprocess(image: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\n"
        "from aligntool.demo_disk import make_demo_image\n"
        "from aligntool.errors import Refused\n"
        "try: make_demo_image(sys.argv[1])\n"
        "except Refused as error: print(f'Refused: {error}')\n"
    )
    root = Path(__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-c", code, image], cwd=root, env=environment, capture_output=True, text=True, check=True
    )


def _output(*command: str) -> bytes:
    words = [find_tool(command[0]) or command[0], *command[1:]]
    return subprocess.run(words, capture_output=True, check=True).stdout


def _boot_sector(volume: Path) -> tuple[int, int, int]:
    """Return hidden sectors, sectors per track, heads: BPB offsets 28, 24, 26 (Microsoft's FAT specification, 3.1)."""
    with volume.open("rb") as file:
        sector = file.read(512)
    sectors, heads, hidden = struct.unpack_from("<HHI", sector, 24)
    return hidden, sectors, heads


def _cut(image: Path, extent: Extent, to: Path) -> Path:
    run("dd", f"if={image}", f"of={to}", "bs=1M", "conv=sparse", "iflag=skip_bytes,count_bytes",
        f"skip={extent.start}", f"count={extent.length}", "status=none")  # fmt: skip
    return to


def _digest(image: Path, extent: Extent) -> str:
    return run("sh", "-c", f"dd if={image} bs=1M iflag=skip_bytes,count_bytes skip={extent.start} "
               f"count={extent.length} status=none | sha256sum")  # fmt: skip
