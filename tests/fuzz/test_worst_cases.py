"""Limits for the most expensive disks and trees: seconds of processor time, bytes read, bytes of output."""

import gzip
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.contents.layers import read_contents, read_layers
from aligntool.errors import Refused
from aligntool.formats.reader import MOST, PARTITIONS
from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits, Layer, Partition, Role, Table, TableLabel
from aligntool.linux.look import look
from aligntool.linux.targets import open_sysroot
from aligntool.render.lines import fit, wrapped
from aligntool.units import GIB, MIB, Extent
from tests.conftest import run
from tests.fuzz import worst_cases
from tests.fuzz.campaign import limited
from tests.fuzz.machine import write_machine
from tests.fuzz.properties import check, render_all
from tests.fuzz.sparse import SparseDisk, SparseReader
from tests.fuzz.worst_cases import TAR_MEMBER, TAR_RECORD, tar_header

SECONDS = 15.0  # ten times the duration on a slow machine, and far below the durations before the limits


@dataclass(slots=True)
class Cost:
    """The cost of an audit of an image file."""

    reader: SparseReader
    disk: Disk


def audited(disk: SparseDisk, *, seconds: float = SECONDS) -> Cost:
    reader = disk.reader()
    with limited(seconds):
        seen = read_contents(reader, sector_size=512)
        told = Disk(
            "disk.img", "disk.img", DiskKind.IMAGE, disk.size, IoLimits(), table=seen.table, table_read=True,
            partitions=seen.partitions, content=seen.content, content_read=seen.content_read, unseen=seen.unseen,
        )  # fmt: skip
        check(told)
        render_all(Inventory((told,)), validate=False)
    return Cost(reader, told)


def test_a_gpt_full_of_overlapping_partitions_is_audited_in_seconds() -> None:
    cost = audited(worst_cases.gpt_of([(100, 200)] * 8192))
    assert len(cost.disk.partitions) == MOST[PARTITIONS]
    assert [unseen.what for unseen in cost.disk.unseen] == ["partitions"]
    assert cost.disk.table is not None
    assert len(cost.disk.table.faults) < 200


def test_a_volume_of_thousands_of_segments_is_audited_in_seconds() -> None:
    (layer,) = audited(worst_cases.lvm_of_many_pieces(8000)).disk.content
    assert layer.kind == "LVM2_member"


def test_a_long_name_is_not_stored_once_for_each_of_many_segments() -> None:
    """Otherwise a text of 1 MiB could fill gigabytes: half of it the name of the group, half of it segments."""
    disk = worst_cases.lvm_of_many_pieces(400, group=b"v" * 200_000)
    layers = read_layers(disk.reader(), disk.container)
    assert sum(len(text) for layer in layers for text in _texts(layer)) < 16 * MIB


def _texts(layer: Layer) -> Iterator[str]:
    yield from (segment.volume for segment in layer.segments)
    yield from layer.problems
    for inner in layer.inner:
        yield from _texts(inner)


def test_reading_deeply_nested_headers_is_bounded() -> None:
    cost = audited(worst_cases.mirrors_of_luks())
    assert cost.reader.bytes_read < 256 * MIB


@pytest.mark.parametrize("shorter", [0, 1])
def test_reading_of_partitions_in_one_place_is_bounded(shorter: int) -> None:
    """Without a limit, thousands of them would be 60 GiB and minutes. What was not read is reported, once."""
    cost = audited(worst_cases.partitions_on_one_place(128, shorter))
    assert cost.reader.bytes_read < 640 * MIB
    assert not cost.disk.partitions[-1].content_read
    assert len(cost.disk.unseen) == 1


def test_a_container_behind_the_end_of_the_disk_is_not_drawn() -> None:
    around, inside = Extent(100 * MIB, MIB), Extent(100 * MIB, 8192)
    parts = (Partition(1, Extent(MIB, MIB)), Partition(2, around, Role.MAP), Partition(3, inside))
    disk = Disk(
        "disk.img", "disk.img", DiskKind.IMAGE, 64 * MIB, IoLimits(), table=Table(TableLabel.SGI, 512),
        table_read=True, partitions=parts, content_read=True,
    )  # fmt: skip
    render_all(Inventory((disk,)), validate=False)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Make a captured machine with a disk at the end of a path of 1,500 folders."""
    words = [*["a"] * 1500, "block", "sdz"]
    write_machine(tmp_path)
    worst_cases.make_deep(tmp_path / "sys/devices", words)
    (tmp_path / "sys/block/sdz").symlink_to("/".join(("/sys/devices", *words)))
    yield tmp_path
    run("rm", "-r", tmp_path / "sys/devices" / words[0])  # shutil recurses, and keeps every folder open


def test_a_disk_at_the_end_of_a_very_long_path_is_read_in_seconds(deep: Path) -> None:
    with limited(SECONDS):
        inventory = look((), sysroot=str(deep))
    assert {disk.name for disk in inventory.disks} >= {"sda", "nvme0n1"}


def test_a_small_archive_of_sparse_files_does_not_fill_the_disk(tmp_path: Path) -> None:
    """Members with holes: 20 KiB of archive that claims to be 640 MiB."""
    archive = tmp_path / "holes.tar"
    worst_cases.archive_of_holes(archive, 40)
    assert archive.stat().st_size < MIB
    with pytest.raises(Refused), open_sysroot(str(archive)) as tree:
        taken = sum(file.stat().st_blocks * 512 for file in Path(tree.root).rglob("*") if file.is_file())
        assert taken < 64 * MIB


LONG = 64 * MIB
TARS: dict[str, Callable[[], bytes]] = {
    "a long extended header": lambda: tar_header(tarfile.XHDTYPE, LONG) + b"1" * LONG + TAR_MEMBER,
    "a long name": lambda: tar_header(tarfile.GNUTYPE_LONGNAME, LONG) + b"n" * LONG + TAR_MEMBER,
    "long common headers": lambda: (
        (tar_header(tarfile.XGLTYPE, 510) + (TAR_RECORD * 17).ljust(512, b"\0")) * 1000 + TAR_MEMBER
    ),
    "headers of headers": lambda: (tar_header(tarfile.XHDTYPE, 30) + TAR_RECORD.ljust(512, b"\0")) * 5000 + TAR_MEMBER,
    "a sparse file": lambda: tar_header(tarfile.GNUTYPE_SPARSE, 0) + bytes(1024),
}


@pytest.mark.parametrize("name", TARS)
def test_headers_of_an_archive_fill_neither_memory_nor_time(name: str, tmp_path: Path) -> None:
    """tarfile reads an extended header of any length, before Python 3.12.6 in quadratic time (CVE-2024-6232)."""
    archive = tmp_path / "machine.tar.gz"
    archive.write_bytes(gzip.compress(TARS[name]() + bytes(1024), 1))
    assert archive.stat().st_size < 4 * MIB
    tracemalloc.start()
    with limited(SECONDS), pytest.raises(Refused, match="cannot be unpacked"), open_sysroot(str(archive)):
        raise AssertionError
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MIB


@pytest.mark.parametrize("char", ["\u6f22", "\x1b", "a", "\u0301", "\U0001f600", "a ", "\u6f22 "])
@pytest.mark.parametrize("cut", [lambda text: fit(text, 20), lambda text: list(wrapped(text, 80, "  "))])
def test_a_very_long_name_is_truncated_and_wrapped_quickly(char: str, cut: Callable[[str], object]) -> None:
    """A name in a udev record may have 256 KiB, and a disk has hundreds of them."""
    began = time.process_time()
    assert cut(char * 100_000)
    assert time.process_time() - began < SECONDS, "it took minutes when every character was measured anew"


def test_the_audit_of_an_empty_disk_of_any_size_reads_little() -> None:
    for size in (0, 1, 511, 512, MIB, 20 * GIB, (1 << 63) - 1):
        cost = audited(SparseDisk(size, ()))
        assert cost.disk.table is None
        assert cost.reader.bytes_read <= 2 * MIB
