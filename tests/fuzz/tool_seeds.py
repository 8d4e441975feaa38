"""Seeds made by the real tools: an image each, of which only what aligntool reads is kept.

Each is a disk of a few hundred bytes to a few KiB. A tool that is not installed is left out; the handmade seeds are
always available.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from aligntool.contents.layers import read_contents
from aligntool.formats.reader import Reader
from aligntool.linux.file_reader import FileReader
from aligntool.units import MIB
from tests.conftest import find_tool, run
from tests.fuzz.sparse import SparseDisk, of_pieces

LONGEST_SEED = 16 * 1024  # longer ones make every mutation slow


@dataclass(frozen=True, slots=True)
class _Recipe:
    size: int
    words: tuple[str, ...]  # IMAGE stands for the image
    stdin: str | None = None
    choices: int = 0


_DOS = "label: dos\n63,16002,7\n16065,48195,5\n16128,16002,83\n32193,16002,82\n"
_GPT = "label: gpt\n2048,4096,U\n6144,8192\n"

RECIPES: dict[str, tuple[_Recipe, ...]] = {
    "gpt": (
        _Recipe(64 * MIB, ("sfdisk", "-q", "IMAGE"), _GPT),
        _Recipe(64 * MIB, ("sgdisk", "-n", "1:34:2047", "-t", "1:ef02", "-n", "2:2048:0", "-c", "2:data", "IMAGE")),
        _Recipe(64 * MIB, ("sgdisk", "-n", "1:2048:8191", "-h", "1", "IMAGE")),
        _Recipe(64 * MIB, ("parted", "-s", "IMAGE", "mklabel", "gpt", "mkpart", "p", "ext4", "1MiB", "9MiB")),
    ),
    "mbr": (
        _Recipe(64 * MIB, ("sfdisk", "-q", "IMAGE"), _DOS),
        _Recipe(64 * MIB, ("sfdisk", "-q", "IMAGE"), "label: dos\n2048,4096,c,*\n"),
        _Recipe(64 * MIB, ("parted", "-s", "IMAGE", "mklabel", "msdos", "mkpart", "primary", "ext4", "1MiB", "9MiB")),
    ),
    "old-labels": (
        _Recipe(64 * MIB, ("sfdisk", "-q", "IMAGE"), "label: sun\n0,16065\n"),
        _Recipe(64 * MIB, ("parted", "-s", "IMAGE", "mklabel", "mac", "mkpart", "p", "hfs", "1MiB", "9MiB")),
        _Recipe(64 * MIB, ("parted", "-s", "IMAGE", "mklabel", "bsd", "mkpart", "ext2", "1MiB", "9MiB")),
        _Recipe(64 * MIB, ("parted", "-s", "IMAGE", "mklabel", "atari", "mkpart", "ext2", "1MiB", "9MiB")),
    ),
    "luks": tuple(
        _Recipe(32 * MIB, ("cryptsetup", "-q", "luksFormat", "--type", kind, "--pbkdf", "pbkdf2",
                           "--pbkdf-force-iterations", "1000", "IMAGE", "-"), "no secret")
        for kind in ("luks1", "luks2")
    ),
    "linux-fs": (
        _Recipe(16 * MIB, ("mkfs.ext4", "-q", "-F", "-E", "stride=16,stripe_width=64", "IMAGE")),
        _Recipe(16 * MIB, ("mkfs.ext2", "-q", "-F", "IMAGE")),
        _Recipe(512 * MIB, ("mkfs.xfs", "-q", "-f", "-d", "su=64k,sw=2", "IMAGE")),
        _Recipe(128 * MIB, ("mkfs.btrfs", "-q", "IMAGE")),
        _Recipe(128 * MIB, ("mkfs.btrfs", "-q", "--csum", "xxhash", "IMAGE")),
        _Recipe(64 * MIB, ("mkfs.f2fs", "-q", "IMAGE")),
        _Recipe(4 * MIB, ("mkswap", "-q", "-L", "swap", "IMAGE")),
        _Recipe(64 * MIB, ("make-bcache", "-B", "IMAGE")),
        _Recipe(64 * MIB, ("make-bcache", "-C", "IMAGE")),
    ),
    "windows-fs": (
        _Recipe(4 * MIB, ("mkfs.fat", "-F12", "IMAGE")),
        _Recipe(64 * MIB, ("mkfs.fat", "-F16", "-n", "DATA", "IMAGE")),
        _Recipe(64 * MIB, ("mkfs.fat", "-F32", "-n", "EFI", "IMAGE")),
        _Recipe(64 * MIB, ("mkfs.exfat", "-L", "data", "IMAGE")),
        _Recipe(64 * MIB, ("mkfs.ntfs", "-q", "-F", "-f", "-L", "data", "IMAGE")),
    ),
}  # fmt: skip


@dataclass(slots=True)
class _Recorder:
    """A reader that records what was read."""

    below: Reader
    runs: set[tuple[int, int]] = field(default_factory=set)

    @property
    def size(self) -> int:
        return self.below.size

    def read(self, offset: int, length: int) -> bytes:
        self.runs.add((offset, length))
        return self.below.read(offset, length)


def disks(family: str, folder: Path) -> list[SparseDisk]:
    made = [_make(recipe, folder) for recipe in RECIPES.get(family, ()) if find_tool(recipe.words[0])]
    return [disk for disk in made if disk is not None]


def _make(recipe: _Recipe, folder: Path) -> SparseDisk | None:
    image = folder / "seed.img"
    with image.open("wb") as file:
        file.truncate(recipe.size)
    try:
        run(*(str(image) if word == "IMAGE" else word for word in recipe.words), stdin=recipe.stdin)
    except AssertionError:
        return None  # this version of the tool does not have these options
    disk = trimmed(image, choices=recipe.choices)
    image.unlink()
    return disk


def trimmed(image: Path, *, choices: int = 0) -> SparseDisk:
    """Return the parts of the image that aligntool reads and that are not zero."""
    descriptor = os.open(image, os.O_RDONLY)
    try:
        reader = FileReader(descriptor, os.fstat(descriptor).st_size)
        recorder = _Recorder(reader)
        read_contents(recorder, sector_size=512)
        pieces = [(at, reader.read(at, length)) for at, length in _joined(recorder.runs, reader.size)]
        return _cut(of_pieces(reader.size, pieces, choices=choices))
    finally:
        os.close(descriptor)


def _cut(disk: SparseDisk) -> SparseDisk:
    """Drop the key material of LUKS and the like: the first and last bytes matter, long data do not."""
    left, kept = LONGEST_SEED, []
    for piece in sorted(disk.pieces, key=lambda piece: len(piece.content)):
        left -= len(piece.content)
        if left < 0:
            break
        kept.append(piece)
    return replace(disk, pieces=tuple(sorted(kept, key=lambda piece: piece.at)))


def _joined(runs: set[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for at, length in sorted((at & ~63, length + 63) for at, length in runs if at >= 0 and length > 0):
        end = min(at + length, size)
        if joined and at <= sum(joined[-1]):
            first = joined[-1][0]
            joined[-1] = (first, max(end, sum(joined[-1])) - first)
        elif at < end:
            joined.append((at, end - at))
    return joined
