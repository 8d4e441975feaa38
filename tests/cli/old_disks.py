"""Old disks as image files."""

import json
from pathlib import Path

from aligntool.units import MIB
from tests.conftest import run

ROOT = Path(__file__).parents[2]
SIZE = 120 * MIB
START = 63 * 512
LENGTH = 48 * MIB
CONTENT = bytes(range(256)) * 4096 * 16  # 16 MiB


def make_old_disk(image: Path, *, size: int = SIZE, length: int = LENGTH) -> Path:
    """Make an MBR with one ext4 from sector 63, which contains a file of 16 MiB."""
    folder = image.parent / f"{image.name}-files"
    folder.mkdir()
    (folder / "holiday.jpg").write_bytes(CONTENT)
    with image.open("wb") as file:
        file.truncate(size)
    table = f"label: dos\nlabel-id: 0x2005c0de\nunit: sectors\nstart=63, size={length // 512}, type=83\n"
    run("sfdisk", "-q", image, stdin=table)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-d", folder, "-E", f"offset={START}", image,
        str(length // 4096))  # fmt: skip
    return image


def first_start(image: Path) -> int:
    """Return the start of the first partition in sectors."""
    return first_partition(image)["start"]


def first_partition(image: Path) -> dict[str, int]:
    """Return the first partition as sfdisk reads it, in sectors."""
    partition: dict[str, int] = json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"][0]
    return partition


def assert_whole(image: Path) -> None:
    """Check that e2fsprogs finds a clean file system where sfdisk reports its start, and reads the file out of it."""
    volume, part = image.parent / f"{image.name}-volume", first_partition(image)
    run("dd", f"if={image}", f"of={volume}", "bs=1M", "iflag=skip_bytes,count_bytes", f"skip={512 * part['start']}",
        f"count={512 * part['size']}", "conv=sparse", "status=none")  # fmt: skip
    run("e2fsck", "-fn", volume)
    out = image.parent / "holiday-read.jpg"
    run("debugfs", "-R", f'dump /holiday.jpg "{out}"', volume)
    assert out.read_bytes() == CONTENT


def found_at(image: Path, start: int) -> str:
    """Return what blkid recognises at this byte; empty: nothing."""
    return run("blkid", "-p", "-O", str(start), image, fails=True)
