"""What a power cut leaves of a journal that is being zeroed: `status` names it, and `resume` zeroes the rest."""

import json
from pathlib import Path

import pytest

from aligntool.mover.journal_format import SLOT, Closing
from aligntool.units import KIB, MIB, Extent
from tests.cli.old_disks import make_old_disk
from tests.conftest import run
from tests.mover.command_line import REFUSED, aligntool

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs")

PLACE = 512 * KIB  # bytes of the journal, before its end


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return a disk that was realigned, with the mark of a journal at its end and bytes that are not yet zeroed."""
    disk = make_old_disk(tmp_path / "old.img")
    aligntool("realign", disk, "--yes")
    run("cp", disk, tmp_path / "clean.img")
    start = (disk.stat().st_size - PLACE) // (64 * KIB) * 64 * KIB
    with disk.open("r+b") as file:
        file.seek(start)
        file.write(Closing(bytes(16), Extent(start, PLACE - 64 * KIB)).sealed())
        file.seek(start + 3 * SLOT)
        file.write(b"a record")
    return disk


def test_the_rest_of_a_journal_is_shown_and_zeroed(image: Path, tmp_path: Path) -> None:
    marked = image.read_bytes()
    said = aligntool("status", image)
    assert "a part of its journal is left" in " ".join(said.split())
    assert f"aligntool resume {image}" in said
    assert json.loads(aligntool("status", image, "--json").partition("\n")[2])["next"] == [f"aligntool resume {image}"]
    assert "a part of its journal is left" in " ".join(aligntool("resume", image, "--dry-run").split())
    assert "no terminal for the confirmation" in aligntool("resume", image, code=REFUSED)
    assert image.read_bytes() == marked
    assert "is zeroed" in aligntool("resume", image, "--yes")
    assert image.read_bytes() == (tmp_path / "clean.img").read_bytes()
    assert "nothing is in flight" in aligntool("resume", image, "--yes", code=REFUSED)


def test_a_mark_in_a_partition_is_kept(image: Path) -> None:
    """Another program has made a partition there since: the bytes may be its own."""
    run("sfdisk", "-q", "--append", image, stdin=f"start={(image.stat().st_size - MIB) // 512}\n")
    marked = image.read_bytes()
    assert "nothing is in flight" in aligntool("resume", image, "--yes", code=REFUSED)
    assert image.read_bytes() == marked
