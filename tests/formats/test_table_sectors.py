"""A snapshot holds the sectors of partition tables: all that a reading needs, and nothing that identifies."""

import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from aligntool.formats.reader import TableReading
from aligntool.formats.table_sectors import TableSectors, table_extents, without_identities
from aligntool.formats.tables import read_table
from aligntool.linux.file_reader import FileReader
from aligntool.units import MIB
from tests.cli.old_disks import make_old_disk
from tests.conftest import attached, run
from tests.mover.test_audit_in_flight import killed_while_copying
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("sfdisk")
SIZE = 64 * MIB
GPT = "label: gpt\nlabel-id: 11111111-2222-3333-4444-555555555555\nname=secret, start=2049, size=20000\nsize=2000\n"
DOS = (
    "label: dos\nlabel-id: 0xdeadbeef\nx1: start=63, size=20000\nx2: start=20480, size=80000, type=5\n"
    "x5: start=22528, size=4000\nx6: start=30000, size=4001\n"
)
DAMAGES = {"whole": (), "primary": (512,), "backup": (SIZE - 512,), "both": (512, SIZE - 512), "entries": (1024 + 100,)}
MASK = UUID(int=7).bytes_le


def made(image: Path, script: str, *words: str) -> Path:
    run("truncate", "-s", str(SIZE), image)
    run("sfdisk", "-q", *words, image, stdin=script)
    with image.open("r+b") as file:
        file.write(b"\xfaboot code")
    return image


@contextmanager
def reader_of(image: Path) -> Iterator[FileReader]:
    descriptor = os.open(image, os.O_RDONLY)
    yield FileReader(descriptor, image.stat().st_size)
    os.close(descriptor)


def captured(
    image: Path, *, sector_size: int = 512, masked: bool
) -> tuple[TableReading, TableReading, dict[int, bytes]]:
    """Return the table of the image, that of its captured sectors, and these."""
    with reader_of(image) as reader:
        found = read_table(reader, sector_size=sector_size)
        extents = table_extents(reader, found)
        sectors = {extent.start: reader.read(extent.start, extent.length) for extent in extents}
    if masked:
        sectors = without_identities(sectors, lambda guid: MASK if any(guid) else guid)
    return found, read_table(TableSectors(SIZE, sectors), sector_size=sector_size), sectors


def anonymous(found: TableReading) -> TableReading:
    assert found.table
    parts = tuple(replace(part, name=None, uuid=None) for part in found.partitions)
    return TableReading(replace(found.table, disk_id=None), parts)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("masked", [False, True])
def test_captured_sectors_of_a_gpt_read_as_the_disk_does(tmp_path: Path, damage: str, masked: bool) -> None:
    image = made(tmp_path / "disk.img", GPT)
    with image.open("r+b") as file:
        for at in DAMAGES[damage]:
            file.seek(at + 44)
            file.write(b"\x55\xaa\x55")
    whole, part, sectors = captured(image, masked=masked)
    assert (part == whole) is not masked
    assert anonymous(part) == anonymous(whole) and whole.table
    assert sum(map(len, sectors.values())) < 40 * 1024
    content = b"".join(sectors.values())
    secrets = ("secret".encode("utf-16-le"), UUID("11111111-2222-3333-4444-555555555555").bytes_le, b"boot code")
    assert [secret in content for secret in secrets] == ([False] * 3 if masked else [True, True, True])


@pytest.mark.parametrize("masked", [False, True])
def test_captured_sectors_of_an_mbr_have_the_chain_of_logical_partitions(tmp_path: Path, masked: bool) -> None:
    whole, part, sectors = captured(made(tmp_path / "disk.img", DOS), masked=masked)
    assert [each.number for each in part.partitions] == [1, 2, 5, 6]
    assert anonymous(part) == anonymous(whole)
    content = b"".join(sectors.values())
    assert len(content) == 3 * 512
    assert (b"boot code" in content, bytes.fromhex("efbeadde") in content) == (
        (False, False) if masked else (True, True)
    )


def test_a_gpt_for_4096_byte_sectors_is_captured_whatever_the_disk_reports(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    run("truncate", "-s", str(SIZE), image)
    words = ("--sector-size", "4096", "--part", "32MiB:linux:secret", "--part", "rest:swap")
    run_aligntool("layout", image, *words, "--yes", code=0)
    for sector_size in (512, 4096):
        whole, part, _ = captured(image, sector_size=sector_size, masked=True)
        assert anonymous(part) == anonymous(whole) and len(part.partitions) == 2


def test_nothing_is_captured_of_a_disk_without_a_table(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"private" * 9999)
    with reader_of(image) as reader:
        assert table_extents(reader, read_table(reader, sector_size=512)) == ()


def test_a_parked_entry_still_leads_to_its_journal(tmp_path: Path) -> None:
    image = make_old_disk(tmp_path / "disk.img")
    killed_while_copying(image)
    whole, part, _ = captured(image, masked=True)
    assert part.table and whole.table and part.table.in_flight and part.table.in_flight == whole.table.in_flight


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_an_audit_of_a_snapshot_reads_the_tables_that_root_captured(tmp_path: Path) -> None:
    images = [made(tmp_path / f"{name}.img", script) for name, script in (("gpt", GPT), ("dos", DOS), ("hurt", GPT))]
    with images[2].open("r+b") as file:
        for at in (512, SIZE - 512):
            file.seek(at + 44)
            file.write(b"\x55\xaa\x55")
    with ExitStack() as stack:
        names = [Path(stack.enter_context(attached(image))).name for image in images]
        for name, words in (("masked.tar.xz", ()), ("whole.tar.xz", ("--serials",))):
            run_aligntool("snapshot", "-o", tmp_path / name, *words, code=0)
        live = json.loads(run_aligntool("audit", "--json", *(f"/dev/{name}" for name in names)).stdout)
    with tarfile.open(tmp_path / "masked.tar.xz") as tar:
        captured_files = {member.name for member in tar if member.name.startswith(f"aligntool/sectors/{names[0]}/")}
    assert {at.rpartition("/")[2] for at in captured_files} >= {"0", "512", "1024", str(SIZE - 512)}
    for snapshot in ("masked.tar.xz", "whole.tar.xz"):
        done = run_aligntool("audit", "--json", "--sysroot", tmp_path / snapshot, *names, code=1)
        for before, after in zip(live["disks"], json.loads(done.stdout)["disks"], strict=True):
            assert [part["start"] for part in after["partitions"]] == [part["start"] for part in before["partitions"]]
            assert [part["verdict"] for part in after["partitions"]] == [
                part["verdict"] for part in before["partitions"]
            ]
            assert after["table"]["faults"] == before["table"]["faults"]
    text = run_aligntool("audit", "--sysroot", tmp_path / "masked.tar.xz", *names, code=1).stdout
    assert text.startswith(f"Linux does not see the partitions of {names[2]}\n") and "secret" not in text


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mkfs.ext4")
def test_a_snapshot_has_the_kind_of_what_is_on_a_disk_without_a_table(tmp_path: Path) -> None:
    images = [tmp_path / "known.img", tmp_path / "unknown.img"]
    for image in images:
        image.write_bytes(b"private" * (16 << 20))
    run("mkfs.ext4", "-q", "-F", "-L", "secret", images[0])
    with ExitStack() as stack:
        known, unknown = (Path(stack.enter_context(attached(image))).name for image in images)
        run_aligntool("snapshot", "-o", tmp_path / "s.tar.xz", code=0)
        live = json.loads(run_aligntool("audit", "--json", f"/dev/{known}", code=0).stdout)
    with tarfile.open(tmp_path / "s.tar.xz") as tar:
        own = [name for name in tar.getnames() if name.startswith("aligntool/")]
        kind = tar.extractfile(f"aligntool/contents/{known}")
        assert kind and kind.read() == b"ext4\n"
    assert not [name for name in own if unknown in name.split("/")]
    captured = run_aligntool("audit", "--json", "--sysroot", tmp_path / "s.tar.xz", known, code=0).stdout
    for disk in (live["disks"][0], json.loads(captured)["disks"][0]):
        assert disk["verdict"]["answer"] == "on"
    refused = run_aligntool("audit", "--sysroot", tmp_path / "s.tar.xz", unknown).stdout
    assert refused.startswith("Nothing could be judged")
