"""Refusals of a sector size conversion, and whether the suggested commands work."""

import json
import re
from pathlib import Path

import pytest

from aligntool.convert.copying import CopyRequest
from aligntool.convert.operation import Conversion
from aligntool.errors import Refusal, Refused
from aligntool.realign.request import Request
from aligntool.units import KIB, MIB
from tests.by_hand import command_of, section_of, type_by_hand
from tests.conftest import attached, run
from tests.mover.disks import place
from tests.mover.entries import write_records
from tests.run_aligntool import run_aligntool


def reasons(disk: Path) -> tuple[Refusal, ...]:
    request = Request()
    with pytest.raises(Refused) as refused:
        Conversion(request, (4096,)).find_plan(str(disk), request)
    return refused.value.refusals


def with_swap(disk: Path, lines: str) -> None:
    """Make a disk of 4 MiB with these partitions, and a swap area behind them."""
    swap = disk.with_name("swap")
    for path, size in ((disk, 4 * MIB), (swap, 2 * MIB)):
        path.write_bytes(bytes(size))
    run("sfdisk", "-q", disk, stdin=f"label: gpt\n{lines}start=2048,size=4096,type=S\n")
    run("mkswap", swap)
    place(swap, disk, 1 * MIB)


@pytest.mark.needs_tools("sfdisk", "mkswap")
@pytest.mark.parametrize(
    "kind",
    [
        "21686148-6449-6E6F-744E-656564454649",
        "E3C9E316-0B5C-4DB8-817D-F92DF00215AE",
        "83BD6B9D-7F41-11DC-BE0B-001560B84F0F",
        "9E1A2D38-C612-4316-AA26-8B49521E5A8B",
    ],
    ids=["bios-boot", "msr", "freebsd-boot", "prep"],
)
@pytest.mark.parametrize("start", [34, 40])
def test_a_partition_that_a_realign_does_not_move_can_be_deleted_by_hand(tmp_path: Path, kind: str, start: int) -> None:
    """gdisk creates them directly behind the table, in sector 34 or 40."""
    disk = tmp_path / "disk.img"
    line = f"first-lba: 34\nstart={start},size={2048 - start},type={kind}\n"
    with_swap(disk, line)
    (hint,) = {reason.hint for reason in reasons(disk)}
    assert "partition 1" in hint
    type_by_hand(hint, "sfdisk --delete", DISK=disk, NUMBER=1)
    request = Request()
    assert Conversion(request, (4096,)).find_plan(str(disk), request).plan.disk.size == 4 * MIB


@pytest.mark.parametrize("at", [20_000, 4 * MIB - 20 * KIB + 100], ids=["start", "end"])
@pytest.mark.needs_tools("sfdisk", "mkswap")
def test_remains_of_a_table_for_other_sectors_can_be_cleared_by_hand(tmp_path: Path, at: int) -> None:
    """The backup entries for 4096 begin 20 KiB before the end, those for 512 bytes 16.5 KiB: the former remain."""
    disk, size = tmp_path / "disk.img", 4 * MIB
    disk.write_bytes(bytes(size))
    with_swap(disk, "")
    table = run("sfdisk", "--json", disk)
    content = bytearray(disk.read_bytes())
    content[at : at + 200] = b"L" * 200
    disk.write_bytes(content)
    (reason,) = reasons(disk)
    with pytest.raises(Refused) as refused:
        CopyRequest(Request(), str(disk), (4096,), str(tmp_path / "copy.img")).find_plan()
    assert refused.value.refusals == (reason,)
    looking, clearing = reason.hint.split("\n")
    assert "L   L   L" in run("sh", "-c", looking)
    found = re.search(r"(\d+) bytes from byte (\d+)", clearing)
    assert found and f"with dd on {disk}, " in clearing
    type_by_hand(clearing, "dd if=/dev/zero", DISK=disk, LENGTH=found[1], START=found[2])
    content[at : at + 200] = bytes(200)
    assert disk.read_bytes() == content
    assert run("sfdisk", "--json", disk) == table
    request = Request()
    assert Conversion(request, (4096,)).find_plan(str(disk), request).plan.disk.size == size


@pytest.mark.needs_tools("sfdisk", "mkswap")
def test_the_image_of_a_member_of_an_array_is_not_to_be_made_longer(tmp_path: Path) -> None:
    """The metadata of the array are in the last but one sector."""
    disk = tmp_path / "disk.img"
    with_swap(disk, "")
    content = bytearray(disk.read_bytes())
    for added, codes in ((512, ["odd-size"]), (0, [])):
        disk.write_bytes(content + bytes(added))
        assert [reason.code for reason in (reasons(disk) if codes else ())] == codes
    run("sfdisk", "-q", "--delete", disk)
    run("sfdisk", "-q", disk, stdin="label: dos\nstart=2048,size=4096,type=82\n")
    content = bytearray(disk.read_bytes() + bytes(512))
    content[-1024:-994] = b"Intel Raid ISM Cfg Sig. 1.3.00"
    disk.write_bytes(content)
    found = reasons(disk)
    assert "array-member" in [reason.code for reason in found] and "truncate" not in str([*found])


@pytest.mark.needs_tools("mkswap")
def test_data_where_an_ebr_would_begin_are_not_overwritten(tmp_path: Path) -> None:
    """The second EBR, at sector 4199, moves to sector 4192; an entry has its start and length in its last 8 bytes."""
    disk, swap = tmp_path / "disk.img", tmp_path / "swap"
    swap.write_bytes(bytes(MIB))
    run("mkswap", swap)
    tables = {0: [(5, 64, 8000)], 64: [(0x82, 1984, 2048), (5, 4135, 2113)], 4199: [(0x82, 65, 2048)]}
    write_records(disk, 5 * MIB, tables)
    content = bytearray(disk.read_bytes())
    for start in (2048, 4264):
        content[start * 512 : start * 512 + MIB] = swap.read_bytes()
    disk.write_bytes(content)
    request = Request()
    assert Conversion(request, (4096,)).find_plan(str(disk), request).plan.steps
    content[4192 * 512 + 100] = 1
    disk.write_bytes(content)
    (reason,) = reasons(disk)
    assert reason.code == "place-taken" and f"byte {4192 * 512} is where the new table goes" in reason.text


@pytest.mark.needs_tools("sfdisk", "cryptsetup")
@pytest.mark.parametrize("version", ["luks1", "luks2"])
def test_the_sectors_of_a_luks_are_enlarged_while_it_is_open(tmp_path: Path, version: str) -> None:
    """cryptsetup 2.6 refuses otherwise: size increase on offline device is not supported, activate the device first."""
    disk, content = tmp_path / "disk.img", tmp_path / "luks"
    disk.write_bytes(bytes(20 * MIB))
    run("sfdisk", "-q", disk, stdin=f"label: gpt\nstart=2048,size={18 * MIB // 512},type=L\n")
    content.write_bytes(bytes(18 * MIB))
    forms = (
        "--type",
        version,
        "--pbkdf-force-iterations",
        "1000",
        *(("--pbkdf", "pbkdf2") if version == "luks2" else ()),
    )
    run("cryptsetup", "-q", "luksFormat", *forms, "--sector-size", "512", content, "-", stdin="secret")
    place(content, disk, 1 * MIB)
    (reason,) = reasons(disk)
    page = section_of(reason.hint)
    opened, changed = page.index("cryptsetup open"), page.index("cryptsetup reencrypt --sector-size 4096")
    assert page.index("luksHeaderBackup" if "luksHeaderBackup" in page else "[Save](#save-first) the header") < opened
    assert page.index("cryptsetup convert --type luks2") < opened < changed < page.index("cryptsetup close")
    assert f"with cryptsetup on {disk}, {18 * MIB} bytes from byte {MIB}" in reason.hint


@pytest.mark.needs_tools("sfdisk", "cryptsetup")
@pytest.mark.parametrize("version", ["luks1", "luks2"])
def test_a_luks_header_of_another_device_is_not_to_be_re_encrypted(tmp_path: Path, version: str) -> None:
    """Its data begin at byte 0 of the other device; here, the header is at that byte."""
    disk, header, data = (tmp_path / name for name in ("disk.img", "header", "data"))
    for path, size in ((disk, 20 * MIB), (header, 16 * MIB), (data, 4 * MIB)):
        path.write_bytes(bytes(size))
    forms = ("--type", version, "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--header", header)
    run("cryptsetup", "-q", "luksFormat", *forms, data, "-", stdin="secret")
    run("sfdisk", "-q", disk, stdin=f"label: gpt\nstart=2048,size={16 * MIB // 512},type=L\n")
    place(header, disk, MIB)
    (reason,) = reasons(disk)
    assert "crypto_LUKS" in reason.text and reason.hint == f"aligntool audit {disk}"


def extents(disk: Path, sector: int) -> list[tuple[int, int]]:
    """Return the partitions that sfdisk finds, on a loop device with such sectors."""
    with attached(disk, "--sector-size", str(sector), "-r") as node:
        table = json.loads(run("sfdisk", "--json", node))["partitiontable"]
    return [(part["start"] * sector, part["size"] * sector) for part in table.get("partitions", ())]


@pytest.fixture
def large_sectors(tmp_path: Path) -> Path:
    """Make an image with a GPT for 4096-byte sectors, and a swap area in each of its two partitions."""
    small, large, swap = (tmp_path / name for name in ("small.img", "large.img", "swap"))
    for path, size in ((small, 8 * MIB), (swap, 2 * MIB)):
        path.write_bytes(bytes(size))
    run("sfdisk", "-q", small, stdin="label: gpt\nstart=2048,size=4096,type=S\nstart=8192,size=4096,type=S\n")
    run("mkswap", swap)
    for at in (MIB, 4 * MIB):
        place(swap, small, at)
    assert run_aligntool("convert", small, "--sector-size", "4096", "-o", large, "--yes").returncode == 0
    return large


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "mkswap", "losetup", "sgdisk")
class TestTableOf4096ByteSectors:
    """sgdisk and sfdisk assume 512 bytes for a file: the former writes an empty GPT, the latter edits the MBR."""

    def test_the_command_that_deletes_a_partition_leaves_the_others(self, large_sectors: Path) -> None:
        with large_sectors.open("r+b") as file:
            file.seek(MIB)
            file.write(bytes(MIB))
        said = run_aligntool("plan", "convert", large_sectors, "--sector-size", "512")
        hint = said.stderr.rpartition("→ ")[2]
        assert "partition 1" in hint
        command = command_of(hint, "sfdisk --delete", DISK="/dev/loop9", NUMBER=1)
        with attached(large_sectors, "--sector-size", "4096") as device:
            run("sh", "-c", command.replace("/dev/loop9", str(device)))
        assert extents(large_sectors, 4096) == [(4 * MIB, 2 * MIB)]

    def test_the_command_for_an_odd_length_keeps_the_table(self, large_sectors: Path) -> None:
        before = extents(large_sectors, 4096)
        with large_sectors.open("r+b") as file:
            file.truncate(8 * MIB + 512)
        refused = run_aligntool("plan", "convert", large_sectors, "--sector-size", "512").stderr
        assert "which is not a multiple of 4096" in refused
        hint = refused.rpartition("→ ")[2]
        type_by_hand(hint, "truncate", IMAGE=large_sectors)
        with attached(large_sectors, "--sector-size", "4096") as device:
            type_by_hand(hint, "sgdisk -e", IMAGE=device)
        assert extents(large_sectors, 4096) == before and len(before) == 2
        again = run_aligntool("plan", "convert", large_sectors, "--sector-size", "512").stderr
        assert "which is not a multiple of 4096" not in again  # the old backup of the GPT is a reason of its own

    def test_the_repair_of_a_grown_image_begins_with_attaching_it(self, large_sectors: Path) -> None:
        """sgdisk takes the sectors of a file for 512 bytes, and would write an empty table."""
        with large_sectors.open("r+b") as file:
            file.truncate(12 * MIB)
        found = json.loads(run_aligntool("audit", large_sectors, "--json").stdout)
        (hint,) = (each["next"] for each in found["findings"] if each["code"] == "AT312")
        assert "An image with a table for 4096-byte sectors must be [attached]" in section_of(hint)


@pytest.mark.needs_tools("sfdisk", "mkswap")
def test_unneeded_logical_partitions_are_listed_from_the_last_one(tmp_path: Path) -> None:
    """sfdisk renumbers the others after each deletion: the second of two commands would delete another partition."""
    disk, swap = tmp_path / "disk.img", tmp_path / "swap"
    for path, size in ((disk, 32 * MIB), (swap, 2 * MIB)):
        path.write_bytes(bytes(size))
    parts = ("start=2048,size=55296,type=5", "start=4096,size=4096", "start=12288,size=4096")
    lines = (*parts, "start=20480,size=4096,type=S")
    run("sfdisk", "-q", disk, stdin="label: dos\n" + "\n".join(lines) + "\n")
    run("mkswap", swap)
    place(swap, disk, 20480 * 512)
    (hint,) = {reason.hint for reason in reasons(disk)}
    assert "partitions 6, 5:" in hint and "Of several logical partitions name the highest number first" in section_of(
        hint
    )
    for number in (6, 5):
        type_by_hand(hint, "sfdisk --delete", DISK=disk, NUMBER=number)
    table = json.loads(run("sfdisk", "--json", disk))["partitiontable"]["partitions"]
    assert [part["start"] for part in table] == [2048, 20480]


@pytest.mark.needs_tools("sfdisk", "mkfs.fat")
@pytest.mark.parametrize("blank", [False, True])
def test_bytes_of_a_partition_after_its_last_block_are_kept(tmp_path: Path, blank: bool) -> None:
    disk, fat = tmp_path / "disk.img", tmp_path / "fat"
    for path, size in ((disk, 32 * MIB), (fat, 10_000 * KIB)):
        path.write_bytes(bytes(size))
    run("sfdisk", "-q", disk, stdin="label: gpt\nstart=2048,size=20487\n")  # 7 sectors after a multiple of 4096 bytes
    run("mkfs.fat", "-F16", "-s1", fat)
    place(fat, disk, MIB)
    with disk.open("r+b") as file:
        file.seek((2048 + 20487 - 7) * 512)
        file.write(bytes(7 * 512) if blank else b"\x01" * 7 * 512)
    request = Request()
    if blank:
        assert Conversion(request, (4096,)).find_plan(str(disk), request).plan
        return
    (reason,) = reasons(disk)
    assert reason.code == "off-grid" and "which are not blank" in reason.text


@pytest.mark.needs_tools("sfdisk", "mke2fs")
def test_the_first_reason_is_the_content_that_a_realign_does_not_help(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(bytes(8 * MIB))
    run("sfdisk", "-q", disk, stdin="label: dos\nstart=63,size=8192,type=83\n")
    run("mke2fs", "-q", "-b", "1024", "-E", f"offset={63 * 512}", disk, "4096k")
    first, second = reasons(disk)[:2]
    assert first.code != "off-grid" and "blocks of 1024 bytes" in first.text and "mke2fs" in first.hint
    assert second.code == "off-grid" and "realign" not in second.hint
