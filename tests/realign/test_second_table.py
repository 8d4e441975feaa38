"""An MBR and another table, whose partitions appear as free space in the MBR."""

import random
import struct
from functools import reduce
from operator import xor
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB
from tests.conftest import run
from tests.mover.command_line import REFUSED, aligntool
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "parted", "mke2fs")
SECTOR, FIRST, SECOND, LENGTH = 512, 1024 * KIB + 1536, 80 * MIB, 8 * MIB


def make(path: Path, label: str, *, content: bool = True) -> Path:
    """Make a disk with two partitions, and an MBR that lists the first one only."""
    with path.open("wb") as file:
        file.truncate(120 * MIB)
    words = [
        word for start in (FIRST, SECOND) for word in ("mkpart", "x", "ext2", f"{start}B", f"{start + LENGTH - 1}B")
    ]
    run("parted", "-s", "-a", "none", path, "mklabel", label, *words)
    for start in (FIRST, SECOND)[: 2 if content else 1]:
        run("mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", "-E", f"offset={start}", path, f"{LENGTH // KIB}k")
    entry = struct.pack("<B3sB3sII", 0, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", FIRST // SECTOR, LENGTH // SECTOR)
    with path.open("r+b") as file:
        file.seek(446)
        file.write(entry + bytes(48) + b"\x55\xaa")
    return path


@sample(2)
@pytest.mark.parametrize("command", [("realign",), ("partition", "--undo"), ("convert", "--sector-size", "4096")])
@pytest.mark.parametrize(("label", "name"), [("gpt", "GPT"), ("mac", "Apple partition map")])
def test_a_partition_of_another_table_is_not_free_space(
    tmp_path: Path, label: str, name: str, command: tuple[str, ...]
) -> None:
    disk = make(tmp_path / "disk.img", label)
    before = disk.read_bytes()
    said = " ".join(aligntool(*command, disk, "--yes", code=REFUSED).split())
    assert f"also has a {name}, whose partition" in said
    assert f"with ext2, at byte {SECOND}, is not in the MBR" in said
    assert disk.read_bytes() == before


@pytest.mark.parametrize("command", [("realign",), ("partition", "--undo")])
@pytest.mark.parametrize("offset", [0, 3 * MIB])
def test_unrecognised_data_in_a_partition_of_the_gpt_are_not_free_space(
    tmp_path: Path, command: tuple[str, ...], offset: int
) -> None:
    """Such as a plain dm-crypt or a database; the journal of a realign would be written there."""
    disk = make(tmp_path / "disk.img", "gpt", content=False)
    with disk.open("r+b") as file:
        file.seek(SECOND + offset)
        file.write(random.Random(1).randbytes(LENGTH - offset))
    before = disk.read_bytes()
    said = " ".join(aligntool(*command, disk, "--yes", code=REFUSED).split())
    assert f"GPT, whose partition 2 with unrecognised data, at byte {SECOND}, is not in the MBR" in said
    assert disk.read_bytes() == before
    run("wipefs", "--all", "--force", "--types", "gpt", disk)  # as AT310 says if the GPT is old
    assert "also has" not in aligntool("plan", "realign", disk)


@pytest.mark.needs_tools("blkid")
@pytest.mark.parametrize("code", [0xA6, 0xA9])
def test_a_partition_that_only_a_bsd_disklabel_lists_is_not_free_space(tmp_path: Path, code: int) -> None:
    """The labels of OpenBSD and NetBSD are those of the whole disk: disklabel(5), `boundstart` and `boundend`."""
    disk = make(tmp_path / "disk.img", "gpt")
    run("wipefs", "--all", "--force", "--types", "gpt", disk)
    own = 16 * MIB
    entry = struct.pack("<B3sB3sII", 0, b"\xfe\xff\xff", code, b"\xfe\xff\xff", own // SECTOR, LENGTH // SECTOR)
    slices = {0: (own, 4 * MIB, 7), 2: (0, 120 * MIB, 0), 8: (FIRST, LENGTH, 17), 9: (SECOND, LENGTH, 17)}
    with disk.open("r+b") as file:
        file.seek(446 + 16)
        file.write(entry)
        file.seek(own + 512)
        file.write(disklabel(slices))
    run("sfdisk", "--verify", disk)
    assert f"at byte {SECOND}, is not in the MBR" in " ".join(aligntool("realign", disk, "--yes", code=REFUSED).split())
    with disk.open("r+b") as file:
        file.seek(own + 512)
        file.write(disklabel({number: slices[number] for number in (0, 2, 8)}))
    assert "also has" not in aligntool("plan", "realign", disk, "-p", "1")


def disklabel(slices: dict[int, tuple[int, int, int]]) -> bytes:
    """Return a label with these entries, by number: start and length in bytes, and type (FreeBSD's sys/disk/bsd.h)."""
    label = bytearray(512)
    struct.pack_into("<I", label, 0, 0x82564557)
    struct.pack_into("<I2xH", label, 132, 0x82564557, 16)
    for number, (start, length, kind) in slices.items():
        struct.pack_into("<IIIB", label, 148 + 16 * number, length // SECTOR, start // SECTOR, 2048, kind)
    words = struct.unpack_from("<202H", label)
    struct.pack_into("<H", label, 136, reduce(xor, words))
    return bytes(label)


def test_remains_of_a_table_without_content_prevent_nothing(tmp_path: Path) -> None:
    disk = make(tmp_path / "disk.img", "gpt", content=False)
    assert "also has" not in aligntool("plan", "realign", disk)


@pytest.mark.needs_tools("sfdisk", "mke2fs")
@pytest.mark.parametrize(
    "command", [("realign", "--page-size", "16KiB"), ("partition", "--undo"), ("convert", "--sector-size", "512")]
)
def test_a_disk_with_tables_for_both_sector_sizes_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The other one would keep the old places, in which a system with its sector size would find nothing."""
    plain, both = tmp_path / "disk.img", tmp_path / "both.img"
    with plain.open("wb") as file:
        file.truncate(64 * MIB)
    run("sfdisk", "-q", plain, stdin="label: gpt\nstart=24584,size=81920\n")  # 12 MiB and 4 KiB
    run("mke2fs", "-q", "-F", "-b", "4096", "-E", f"offset={24584 * SECTOR}", plain, "40M")
    aligntool("convert", plain, "--both", "-o", both, "--yes")
    before = both.read_bytes()
    said = " ".join(aligntool(*command, both, "--yes", code=REFUSED).split())
    assert "has two GPTs, for sectors of 4096 and of 512 bytes" in said and "head -c" not in said
    assert both.read_bytes() == before
