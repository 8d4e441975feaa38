"""Sector sizes that no drive can have are a usage error of every command that accepts them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from aligntool.cli.app import app

COMMANDS = {
    "audit": [],
    "report": [],
    "plan realign": [],
    "realign": ["--dry-run"],
    "plan layout": ["--part", "rest:linux"],
    "layout": ["--part", "rest:linux", "--dry-run"],
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_physical_sector_smaller_than_the_logical_one_is_a_usage_error(
    command: str, reverse: bool, tmp_path: Path
) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(8 << 20))
    sizes = [["--sector-size", "4096"], ["--physical-sector-size", "512"]]
    words = [word for pair in (reversed(sizes) if reverse else sizes) for word in pair]
    done = CliRunner().invoke(app, [*command.split(), str(image), *COMMANDS[command], *words])
    assert done.exit_code == 2 and "smaller than" in done.output
