"""Disks whose only partition begins at sector 63, which are moved again and again.

The images are made by sfdisk, mkfs.ext4 and debugfs, without root and without a mount.
"""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import attached, run

MIB = 1 << 20
SECTOR = 512
START, ALIGNED = 63 * SECTOR, 2048 * SECTOR
CONTENTS = ("ext4, a third used", "ext4, full", "random bytes, no file system")
TAIL = 64 * MIB  # free behind the partition: 1985 sectors for all tools, the rest for aligntool's journal
_FILE = 8 * MIB


@dataclass(frozen=True, slots=True)
class OldDisk:
    image: Path
    content: str
    length: int  # bytes of the partition
    used: int  # bytes of it that contain data

    @property
    def is_ext(self) -> bool:
        return self.content.startswith("ext4")


def make_disk(folder: Path, size: int, content: str) -> OldDisk:
    """Make a sparse image of `size` bytes, a multiple of 1 MiB."""
    image = folder / f"{CONTENTS.index(content)}-{size // MIB}.img"
    with image.open("wb") as file:
        file.truncate(size)
    length = size - TAIL
    run("sfdisk", "-q", image, stdin=f"label: dos\nstart=63, size={length // SECTOR}, type=83\n")
    if content == CONTENTS[2]:
        _fill(image, START, length)
        return OldDisk(image, content, length, length)
    _ext4(folder, image, length, third=content == CONTENTS[0])
    return OldDisk(image, content, length, used_of_ext(image))


def _ext4(folder: Path, image: Path, length: int, *, third: bool) -> None:
    """Make an ext4 with files of 8 MiB until it is nine tenths full; for a third, delete some, to scatter the rest."""
    count = (length - _FILE) * 9 // 10 // _FILE
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for index in range(count):
            _fill(Path(name) / f"file{index}", 0, _FILE)
        options = f"offset={START},nodiscard,lazy_itable_init=0,lazy_journal_init=0"
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", options, "-d", name, image, f"{length // 1024}k")
    if third:
        lines = "".join(f"rm file{index}\n" for index in range(count) if index % 8 not in (1, 4, 6))
        run("debugfs", "-w", "-f", "-", f"{image}?offset={START}", stdin=lines)
    run("e2fsck", "-f", "-n", f"{image}?offset={START}")


def make_sparse_disk(folder: Path, size: int, kind: str = "ext4") -> OldDisk:
    """Make a GPT disk with an empty ext4 or XFS from sector 34. Few inodes: their tables count as used."""
    start, length = 34 * SECTOR, size - TAIL
    image = folder / "sparse.img"
    with image.open("wb") as file:
        file.truncate(size)
    script = f"label: gpt\nfirst-lba: 34\nstart=34, size={length // SECTOR}, type=linux\n"
    run("sfdisk", "-q", image, stdin=script)
    if kind == "xfs":
        with attached(image, "-o", str(start), "--sizelimit", str(length)) as device:
            run("mkfs.xfs", "-q", "-K", "-l", "size=64m", device)
        return OldDisk(image, "XFS, nearly empty", length, image.stat().st_blocks * 512)
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-G", "8192", "-N", str(length >> 27), "-J", "size=64",
        "-E", f"offset={start},nodiscard", image, f"{length // 1024}k")  # fmt: skip
    return OldDisk(image, "ext4, nearly empty", length, used_of_ext(image, start))


def used_of_ext(image: Path, start: int = START) -> int:
    """Return the bytes of the used blocks, as tune2fs counts them."""
    text = run("tune2fs", "-l", f"{image}?offset={start}")
    count, free, block = (int(re.findall(rf"^{what}: +(\d+)", text, re.MULTILINE)[0])
                          for what in ("Block count", "Free blocks", "Block size"))  # fmt: skip
    return (count - free) * block


def _fill(path: Path, start: int, length: int) -> None:
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(start)
        for at in range(0, length, MIB):
            file.write(os.urandom(min(MIB, length - at)))


def reset(disk: OldDisk, image: Path) -> None:
    """Restore the disk onto another image, which keeps its blocks and is then in no cache."""
    direct = ["bs=4M", "iflag=direct", "oflag=direct", "conv=notrunc,fdatasync", "status=none"]
    subprocess.run(["dd", f"if={disk.image}", f"of={image}", *direct], check=True)
    forget(image)


def write_out(image: Path, size: int) -> None:
    """Allocate an image without holes: writing to a hole costs every tool extra, each a different amount."""
    direct = ["bs=1M", f"count={size // MIB}", "oflag=direct", "conv=fdatasync", "status=none"]
    subprocess.run(["dd", "if=/dev/zero", f"of={image}", *direct], check=True)


def forget(image: Path) -> None:
    """Drop its page cache, but not that of the programs: the larger ones would take longer to load."""
    descriptor = os.open(image, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
