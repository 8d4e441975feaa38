"""Place images of partitions on an image of a disk, and compare aligntool's layers with blkid."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.contents.layers import read_layers
from aligntool.inventory import Layer
from aligntool.linux.file_reader import FileReader
from aligntool.units import MIB, Extent
from tests.conftest import run

STARTS = [pytest.param(63 * 512, id="LBA 63"), pytest.param(MIB, id="1 MiB")]


@dataclass(frozen=True)
class Placed:
    """A partition on an image file."""

    disk: Path
    extent: Extent

    def layers(self, *, sector_size: int = 512) -> tuple[Layer, ...]:
        return layers_of(self.disk, self.extent, sector_size=sector_size)

    def layer(self) -> Layer:
        """Return the only layer, which must have no fault."""
        layers = self.layers()
        assert len(layers) == 1, layers
        assert layers[0].problems == ()
        return layers[0]

    def blkid(self) -> dict[str, str]:
        return blkid(self.disk, self.extent)


def place(content: Path, start: int) -> Placed:
    """Copy the file's data to byte `start` of a disk a MiB longer; holes stay holes."""
    disk = content.with_name(f"{content.stem}-at-{start}.img")
    size = content.stat().st_size
    with content.open("rb") as source, disk.open("wb") as target:
        target.truncate(start + size + MIB)
        for begin, end in _data_of(source.fileno(), size):
            source.seek(begin)
            target.seek(start + begin)
            target.write(source.read(end - begin))
    return Placed(disk, Extent(start, size))


def _data_of(descriptor: int, size: int) -> list[tuple[int, int]]:
    runs, end = [], 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:
            break
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        runs.append((begin, end))
    return runs


def bytes_of(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def layers_of(path: Path, extent: Extent | None = None, *, sector_size: int = 512) -> tuple[Layer, ...]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        return read_layers(FileReader(descriptor, size), extent or Extent(0, size), sector_size=sector_size)
    finally:
        os.close(descriptor)


def blkid(path: Path, extent: Extent | None = None) -> dict[str, str]:
    """Return what blkid reports; empty if it recognises nothing, or is not sure."""
    place = ("-O", str(extent.start), "-S", str(extent.length)) if extent else ()
    said = run("blkid", "-p", "-o", "udev", *place, path, fails=True)
    pairs = dict(line.split("=", 1) for line in said.splitlines() if line.startswith("ID_FS_"))
    names = {"TYPE": "ID_FS_TYPE", "VERSION": "ID_FS_VERSION", "LABEL": "ID_FS_LABEL_ENC", "UUID": "ID_FS_UUID_ENC"}
    return {key: _plain(pairs[name]) for key, name in names.items() if name in pairs}


def _plain(encoded: str) -> str:
    """Decode the escapes of udev, which writes special characters as \\x and a hexadecimal number."""
    runs = re.split(r"((?:\\x[0-9a-f]{2})+)", encoded)
    return "".join(
        bytes.fromhex(run.replace("\\x", "")).decode() if run.startswith("\\x") else run for run in runs
    ).strip()


def as_blkid(layer: Layer) -> dict[str, str]:
    """Return the layer in blkid's terms, for comparison."""
    version = layer.version.removeprefix("LUKS") if layer.kind == "crypto_LUKS" and layer.version else layer.version
    said = {"TYPE": layer.kind, "VERSION": version, "LABEL": layer.label, "UUID": layer.uuid}
    return {key: value for key, value in said.items() if value is not None}


def agree(layer: Layer, said: dict[str, str], *, unsaid: tuple[str, ...] = ()) -> None:
    """Check that they agree. `unsaid`: what blkid of Debian 12 does not report of this kind, as newer versions do."""
    ours = as_blkid(layer)
    assert {key: ours[key] for key in ours if key in said or key not in unsaid} == said


def field(report: str, name: str) -> str:
    """Return the value after `name:` or `name =` in the output of a tool."""
    for line in report.splitlines():
        head, mark, value = line.replace("=", ":", 1).partition(":")
        if mark and head.strip() == name:
            return value.strip()
    raise AssertionError(f"no {name!r} in:\n{report}")


def number(report: str, name: str) -> int:
    """Return the first number of that value, decimal or hexadecimal."""
    return int(field(report, name).split()[0], 0)
