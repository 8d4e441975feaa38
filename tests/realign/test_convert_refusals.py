"""Refusals of a sector size conversion, and whether the suggested commands work."""

import subprocess
from pathlib import Path

import pytest

from aligntool.errors import Refusal, Refused
from aligntool.realign.convert_request import Conversion
from aligntool.realign.request import Request
from aligntool.units import KIB, MIB
from tests.conftest import run
from tests.moving.disks import place


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
    "kind", ["21686148-6449-6E6F-744E-656564454649", "E3C9E316-0B5C-4DB8-817D-F92DF00215AE"], ids=["bios-boot", "msr"]
)
@pytest.mark.parametrize("start", [34, 40])
def test_a_partition_that_a_realign_leaves_where_it_is_may_be_deleted(tmp_path: Path, kind: str, start: int) -> None:
    """gdisk creates them directly behind the table, in sector 34 or 40."""
    disk = tmp_path / "disk.img"
    line = f"first-lba: 34\nstart={start},size={2048 - start},type={kind}\n"
    with_swap(disk, line)
    (reason,) = reasons(disk)
    command = (reason.hint or "").partition(": ")[2]
    run("sh", "-c", command)
    request = Request()
    assert Conversion(request, (4096,)).find_plan(str(disk), request).plan.disk.size == 4 * MIB


@pytest.mark.parametrize("at", [20_000, 4 * MIB - 20 * KIB + 100], ids=["start", "end"])
@pytest.mark.needs_tools("sfdisk", "mkswap")
def test_what_a_table_for_other_sectors_left_can_be_cleared(tmp_path: Path, at: int) -> None:
    """The backup entries for 4096 begin 20 KiB before the end, those for 512 bytes 16.5 KiB: the former remain."""
    disk, size = tmp_path / "disk.img", 4 * MIB
    disk.write_bytes(bytes(size))
    with_swap(disk, "")
    table = run("sfdisk", "--json", disk)
    content = bytearray(disk.read_bytes())
    content[at : at + 200] = b"L" * 200
    disk.write_bytes(content)
    (reason,) = reasons(disk)
    looking, clearing = (reason.hint or "").removeprefix("view it with ").split("; if nothing needs it: ")
    assert "L   L   L" in run("sh", "-c", looking)
    run("sh", "-c", clearing)
    content[at : at + 200] = bytes(200)
    assert disk.read_bytes() == content
    assert run("sfdisk", "--json", disk) == table
    request = Request()
    assert Conversion(request, (4096,)).find_plan(str(disk), request).plan.disk.size == size


@pytest.mark.needs_tools("sfdisk", "cryptsetup")
@pytest.mark.parametrize("version", ["luks1", "luks2"])
def test_a_luks_gets_longer_sectors_while_it_is_open(tmp_path: Path, version: str) -> None:
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
    hint = reason.hint or ""
    opened, changed = hint.index("cryptsetup open"), hint.index("cryptsetup reencrypt --sector-size 4096")
    assert ("cryptsetup convert --type luks2" in hint[:opened]) == (version == "luks1")
    assert opened < changed < hint.index("cryptsetup close") < hint.index("losetup -d")
    subprocess.run(["sh", "-n", "-c", hint], check=True)
    assert "DEVICE" not in hint
