"""A superblock whose checksum is wrong: the section of docs/by-hand.md that leads out of it."""

from pathlib import Path

import pytest

from tests.by_hand import command_of, type_by_hand
from tests.conftest import run
from tests.contents.placed_partitions import layers_of
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("mke2fs", "e2fsck", "debugfs", "e2undo")

LABEL_AT = 1024 + 0x78  # kernel.org, ext4 superblock: s_volume_name


def with_wrong_checksum(folder: Path, size: str) -> Path:
    image = folder / "content.img"
    run("truncate", "-s", size, image)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "metadata_csum", "-b", "4096", image)
    with image.open("r+b") as file:
        file.seek(LABEL_AT)
        file.write(b"XX")
    (layer,) = layers_of(image)
    assert "checksum of the ext4 superblock is wrong" in layer.problems[0]
    return image


def hint() -> str:
    return run_aligntool("explain", "AT409").stdout


def test_a_superblock_without_a_backup_gets_its_checksum_and_back(tmp_path: Path) -> None:
    image = with_wrong_checksum(tmp_path, "64M")
    before = image.read_bytes()
    undo, later = (tmp_path / name for name in ("undo.e2", "later.e2"))
    assert "could not be read" in run("e2fsck", "-f", "-n", image, fails=True)
    assert "Filesystem volume name:   XX" in type_by_hand(hint(), "debugfs -n", PARTITION=image)
    type_by_hand(hint(), "debugfs -w", FILE=undo, PARTITION=image)
    run("sh", "-c", f"{command_of(hint(), 'e2fsck -f -z', FILE=later, PARTITION=image)} -y; test $? -eq 1")
    run("e2fsck", "-f", "-n", image)
    assert not layers_of(image)[0].problems
    for file in (later, undo):
        type_by_hand(hint(), "e2undo", FILE=file, PARTITION=image)
    assert image.read_bytes() == before


def test_a_superblock_with_a_backup_gets_its_values(tmp_path: Path) -> None:
    image = with_wrong_checksum(tmp_path, "200M")
    assert "Pass 1" in run("e2fsck", "-f", "-n", image, fails=True)
    run("sh", "-c", command_of(hint(), "e2fsck -f -y", PARTITION=image) + "; test $? -eq 1")
    run("e2fsck", "-f", "-n", image)
    assert not layers_of(image)[0].problems and not layers_of(image)[0].label
