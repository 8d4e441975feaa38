"""A FAT that does not fill its partition is recreated; what follows it is kept."""

from pathlib import Path

import pytest

from aligntool.contents.fat import ENTRY, VOLUME_LABEL, FatBootSector, parse_fat_boot_sector
from aligntool.units import MIB, Extent
from tests.conftest import run
from tests.mover.command_line import REFUSED, aligntool
from tests.mover.disks import place
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "mkfs.fat", "mcopy", "fsck.fat")
SECTOR, PART = 512, Extent(MIB, 40 * MIB)
BEHIND = 30 * MIB  # bytes of the partition that the FAT uses
LABEL = 43  # BS_VolLab of a FAT16
REST = b"something else" * 1000


def make(folder: Path, rest: bytes, at: int) -> Path:
    disk, fat, file = (folder / name for name in ("disk.img", "fat", "FILE.BIN"))
    with disk.open("wb") as made:
        made.truncate(64 * MIB)
    with fat.open("wb") as made:
        made.truncate(BEHIND)
    file.write_bytes(b"content" * 10_000)
    run("mkfs.fat", "-F", "16", "--mbr=n", fat)
    run("mcopy", "-i", fat, file, "::")
    run("sfdisk", "-q", disk, stdin=f"label: gpt\nstart={PART.start // SECTOR},size={PART.length // SECTOR},type=U\n")
    place(fat, disk, PART.start)
    with disk.open("r+b") as made:
        made.seek(PART.start + at)
        made.write(rest)
    return disk


def fat_of(folder: Path, disk: Path) -> bytes:
    """Return the FAT, with as many bytes as it counts itself, after a check of its file."""
    fat, out = folder / "new", folder / "out.bin"
    content = disk.read_bytes()[PART.start : PART.end]
    sectors = int.from_bytes(content[19:21], "little") or int.from_bytes(content[32:36], "little")
    fat.write_bytes(content[: sectors * int.from_bytes(content[11:13], "little")])
    run("fsck.fat", "-n", fat)
    run("mcopy", "-n", "-o", "-i", fat, "::FILE.BIN", out)
    assert out.read_bytes() == (folder / "FILE.BIN").read_bytes()
    return fat.read_bytes()


@sample(2)
@pytest.mark.needs_root
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("at", [BEHIND, PART.length - len(REST)], ids=["directly behind it", "at the end"])
def test_bytes_behind_a_fat_in_its_partition_are_neither_overwritten_nor_omitted(
    tmp_path: Path, at: int, *, copied: bool
) -> None:
    disk = made = make(tmp_path, REST, at)
    if copied:
        made = tmp_path / "copy.img"
    said = aligntool("convert", disk, "--sector-size", "4096", "--yes", *(("-o", made) if copied else ()))
    assert "because other bytes follow it" in " ".join(said.split())
    assert len(fat_of(tmp_path, made)) == BEHIND
    assert made.read_bytes()[PART.start + at :].startswith(REST)


@pytest.mark.needs_root
def test_a_fat_that_nothing_follows_fills_its_partition(tmp_path: Path) -> None:
    disk = make(tmp_path, b"", BEHIND)
    aligntool("convert", disk, "--sector-size", "4096", "--yes")
    assert len(fat_of(tmp_path, disk)) == PART.length


def test_folders_nested_too_deep_are_refused_and_no_temporary_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, tree, scratch = make(tmp_path, b"", BEHIND), tmp_path / "tree", tmp_path / "scratch"
    scratch.mkdir()
    run("mkdir", "-p", f"{tree}/{'/'.join('d' * 400)}")
    run("mcopy", "-s", "-i", f"{disk}@@{PART.start}", tree, "::")
    monkeypatch.setenv("TMPDIR", str(scratch))
    said = aligntool("convert", disk, "--sector-size", "4096", "--yes", code=REFUSED)
    assert "its folders are nested deeper than 128" in " ".join(said.split()) and "move the deepest ones up" in said
    assert not any(scratch.iterdir())
    run("rm", "-rf", tree)


@sample(3)
@pytest.mark.parametrize("label", [b"A.B        ", b" EFI       ", b"B\x8eSE       ", b"lower      "])
@pytest.mark.parametrize("places", ["both", "boot sector"])
def test_a_label_is_kept_byte_for_byte(tmp_path: Path, label: bytes, places: str) -> None:
    disk = make(tmp_path, b"", BEHIND)
    boot = boot_of(disk)
    root = PART.start + (boot.reserved + boot.fats) * boot.sector
    with disk.open("r+b") as file:
        file.seek(PART.start + LABEL)
        file.write(label)
        if places == "both":
            file.seek(root + ENTRY)  # behind FILE.BIN
            file.write(label + bytes([VOLUME_LABEL]) + bytes(20))
    aligntool("convert", disk, "--sector-size", "4096", "--yes")
    content = disk.read_bytes()[PART.start : PART.end]
    made = boot_of(disk)
    assert made.sector == 4096
    root = (made.reserved + made.fats) * made.sector
    assert content[LABEL : LABEL + 11] == label
    assert content[root + ENTRY : root + ENTRY + 11] == (label if places == "both" else bytes(11))


def boot_of(disk: Path) -> FatBootSector:
    boot = parse_fat_boot_sector(disk.read_bytes()[PART.start : PART.start + SECTOR])
    assert boot
    return boot


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_fat32_with_more_root_entries_than_usual_for_fat16_becomes_a_fat16(tmp_path: Path, label: str) -> None:
    disk, fat, files = make(tmp_path, b"", BEHIND), tmp_path / "fat32", tmp_path / "files"
    if label == "dos":
        disk.write_bytes(bytes(disk.stat().st_size))
        entry = f"start={PART.start // SECTOR},size={PART.length // SECTOR},type=c"
        run("sfdisk", "-q", disk, stdin=f"label: dos\n{entry}\n")
    with fat.open("wb") as file:
        file.truncate(PART.length)
    run("mkfs.fat", "-F", "32", "-s", "1", "-n", "MANY", "--mbr=n", fat)
    files.mkdir()
    for number in range(700):
        (files / f"F{number}").write_bytes(b"%d" % number)
    run("sh", "-c", f"mcopy -i {fat} {files}/* {tmp_path}/FILE.BIN ::")
    place(fat, disk, PART.start)
    said = " ".join(aligntool("convert", disk, "--sector-size", "4096", "--yes").split())
    typed = ", while its type stays 0x0c" if label == "dos" else ""
    warning = f"its FAT32 becomes a FAT16{typed}, because of the number of its clusters; a conversion back does"
    assert warning in said.partition("Afterwards")[2]
    assert fat_of(tmp_path, disk)[LABEL : LABEL + 11] == b"MANY       "
    aligntool("convert", disk, "--sector-size", "512", "--yes")
    assert "\nVERSION=FAT16\n" in run("blkid", "-p", "-o", "export", "-O", str(PART.start), disk)


def test_clusters_too_large_for_shorter_sectors_become_smaller(tmp_path: Path) -> None:
    disk, fat = make(tmp_path, b"", BEHIND), tmp_path / "fat"
    run("mkfs.fat", "-F", "12", "-S", "4096", "-s", "32", "--mbr=n", fat)
    run("mcopy", "-i", fat, tmp_path / "FILE.BIN", "::")
    place(fat, disk, PART.start)
    aligntool("convert", disk, "--sector-size", "4096", "--yes")
    aligntool("convert", disk, "--sector-size", "512", "--yes")
    assert (boot_of(disk).sector, boot_of(disk).cluster) == (SECTOR, 128 * SECTOR)
    fat_of(tmp_path, disk)


@pytest.mark.parametrize("at", [62, SECTOR], ids=["boot sector", "reserved sector"])
def test_the_plan_reports_that_a_boot_program_in_the_fat_is_lost(tmp_path: Path, at: int) -> None:
    disk = make(tmp_path, b"", BEHIND)
    assert boot_of(disk).reserved > 1
    plan = ("plan", "convert", disk, "--sector-size", "4096")
    assert "boot program" not in aligntool(*plan)
    with disk.open("r+b") as file:
        file.seek(PART.start + at)
        file.write(b"\xfa\x31\xc0".ljust(400, b"\x90"))
    assert "lost: the boot program in the FAT of partition 1" in " ".join(aligntool(*plan).split())
