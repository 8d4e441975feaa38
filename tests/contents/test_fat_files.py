"""A recreated FAT has the same entries byte for byte, as Linux, Windows and firmware write them."""

import re
import struct
from pathlib import Path

import pytest

from aligntool.contents.layers import read_layers
from aligntool.errors import Refused
from aligntool.linux.fat import new_fat
from aligntool.linux.file_reader import fresh_reader
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.contents.test_windows_file_systems import with_fixed_root

pytestmark = pytest.mark.needs_tools("mkfs.fat", "mcopy", "mdel", "mdir", "fsck.fat")


def long_name(name: str, short: bytes) -> bytes:
    """Return long-name entries (Microsoft's FAT specification 1.03, "FAT Long Directory Entries")."""
    checksum = 0
    for byte in short:
        checksum = ((checksum & 1) << 7) + (checksum >> 1) + byte & 0xFF
    raw = name.encode("utf-16-le")
    units = raw + b"\0\0" * (len(raw) % 26 != 0)
    pieces = [units[at : at + 26].ljust(26, b"\xff") for at in range(0, len(units), 26)]
    made = [
        bytes([number | (0x40 if number == len(pieces) else 0)])
        + (one[:10] + bytes([0x0F, 0, checksum]) + one[10:22] + bytes(2) + one[22:])
        for number, one in enumerate(pieces, 1)
    ]
    return b"".join(reversed(made))


def empty_file(name: str, short: bytes, attributes: int, times: bytes) -> bytes:
    """Return an entry; `times`: the bytes from the time of creation to that of the last change."""
    return long_name(name, short) + short + bytes([attributes, 0]) + times + bytes(6)


TIMES = struct.pack("<B6H", 99, 0x1234, 0x2821, 0x3333, 0, 0x6000, 0x5C21)
NEVER = bytes(13)  # firmware without a clock
# Linux also gives a lower-case name a long one (shortname=mixed), and the tenth similar name a hash as short name.
WRITTEN = b"".join((
    empty_file("grubx64.efi", b"GRUBX64 EFI", 0x20, TIMES),
    empty_file("0123456789abcdef-6.1.0-22-amd64.conf", b"01A3F4~1CON", 0x27, TIMES),
    empty_file("\u65e5\u672c\u8a9e.txt", b"\x93\xfa\x96{\x8c\xea  TXT", 0x20, TIMES),
    empty_file("\U0001f4be.txt", b"__~1    TXT", 0x20, NEVER),
))  # fmt: skip


def entries(content: bytes) -> list[bytes]:
    """Return the used entries of the first folder, without their clusters. FAT12 and FAT16 only."""
    sector, reserved, copies, count, fat = struct.unpack_from("<H1xHBH3xH", content, 11)
    start = (reserved + copies * fat) * sector
    folder = content[start : start + count * 32]
    found = (folder[at : at + 32] for at in range(0, len(folder), 32))
    return [one[:20] + one[22:26] + one[28:] for one in found if one[0] not in (0, 0xE5)]


def recreated(path: Path, sector_size: int = 4096) -> bytes:
    size = path.stat().st_size
    with fresh_reader(str(path)) as reader:
        (layer,) = read_layers(reader, Extent(0, size), sector_size=512)
    made = new_fat(str(path), Extent(0, size), layer, size, sector_size, 256 * MIB)
    content = bytearray(size)
    for extent, part in zip(made.runs, made.parts, strict=True):
        content[extent.start : extent.end] = part
    return bytes(content)


@pytest.mark.parametrize(("bits", "size", "most"), [(12, 500 * KIB, 512), (16, 5 * MIB, 1024)])
def test_entries_are_kept_byte_for_byte(tmp_path: Path, bits: int, size: int, most: int) -> None:
    path, file, made = tmp_path / "old", tmp_path / "file", tmp_path / "new"
    path.write_bytes(bytes(size))
    run("mkfs.fat", "-F", str(bits), "-s", "1", "-r", str(most), "-n", "ELEVENCHARS", "-i", "feed0123", path)
    run("mmd", "-i", path, "::EFI", "::EFI/BOOT")
    for number in range(3):
        file.write_bytes(bytes([number]) * 7_001)
        run("mcopy", "-i", path, file, f"::EFI/BOOT/a long name {number}.efi")
    run("mdel", "-i", path, "::EFI/BOOT/a long name 0.efi")  # the short name ~1 is free again
    more = b"".join(f"{number:08}   ".encode() + bytes([0x20]) + bytes(20) for number in range(most - 200))
    old = with_entries(path.read_bytes(), WRITTEN + more)
    path.write_bytes(old)
    new = recreated(path)
    made.write_bytes(new)
    assert len(entries(old)) > 6
    assert entries(new) == entries(old)
    run("fsck.fat", "-n", made)
    free = re.compile(r"\n.*bytes free")
    assert free.sub("", run("mdir", "-/", "-a", "-i", made, "::")) == free.sub(
        "", run("mdir", "-/", "-a", "-i", path, "::")
    )
    for number in (1, 2):
        run("mcopy", "-n", "-i", made, f"::EFI/BOOT/a long name {number}.efi", file)
        assert file.read_bytes() == bytes([number]) * 7_001


def with_entries(content: bytes, written: bytes) -> bytes:
    sector, reserved, copies, count, fat = struct.unpack_from("<H1xHBH3xH", content, 11)
    start = (reserved + copies * fat) * sector
    at = next(at for at in range(start, start + count * 32, 32) if content[at] == 0)
    return content[:at] + written + content[at + len(written) :]


def test_clusters_that_are_marked_as_bad_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(bytes(5 * MIB))
    run("mkfs.fat", "-F", "16", "-s", "1", "-R", "1", path)
    content = bytearray(path.read_bytes())
    (fat,) = struct.unpack_from("<H", content, 22)
    for copy in range(2):
        struct.pack_into("<H", content, (1 + copy * fat) * 512 + 2 * 700, 0xFFF7)
    path.write_bytes(content)
    with pytest.raises(Refused, match="marked as bad"):
        recreated(path)


def test_a_fat32_with_a_root_directory_of_fixed_size_is_refused(tmp_path: Path) -> None:
    path, file = tmp_path / "old", tmp_path / "file"
    path.write_bytes(bytes(64 * MIB))
    file.write_bytes(b"content")
    run("mkfs.fat", "-F32", path, str(60 * 1024))
    run("mcopy", "-i", path, file, "::")
    path.write_bytes(with_fixed_root(path.read_bytes()))
    assert "1 files" in run("fsck.fat", "-n", path)
    with pytest.raises(Refused, match="systems differ on where its clusters begin"):
        recreated(path)
