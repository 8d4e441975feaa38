"""Several contents recognised at one position, one fact reported once; images are made by the tools of each format."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Report
from aligntool.linux.look import look
from aligntool.units import MIB
from tests.conftest import run

Sparse = Callable[..., Path]


def judged(path: Path) -> Report:
    return audit(look([str(path)]), {})


def codes(report: Report) -> list[str]:
    return sorted(one.code.value for one in report.findings if one.code.value.startswith("AT40"))


@pytest.mark.needs_tools("genisoimage", "blkid")
@pytest.mark.parametrize(("options", "kinds"), [(("-udf",), {"iso9660", "udf"}), (("-hfs",), {"iso9660", "hfs"})])
def test_the_formats_of_a_bridge_disc_do_not_conflict(
    tmp_path: Path, options: tuple[str, ...], kinds: set[str]
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "song.ogg").write_bytes(bytes(MIB))
    image = tmp_path / "disc.iso"
    run("genisoimage", "-quiet", *options, "-o", image, tmp_path / "files")
    assert run("blkid", "-p", image)
    report = judged(image)
    assert {layer.kind for layer in report.judged[0].disk.content} == kinds
    assert not {"AT407", "AT408", "AT409"} & set(codes(report))


@pytest.mark.needs_tools("mke2fs", "sfdisk")
def test_a_file_system_larger_than_its_partition_is_one_finding(sparse: Sparse) -> None:
    image = sparse(40 * MIB)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=2048, size=40960\n")
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-E", f"offset={MIB}", image, str(24 * MIB // 4096))
    assert codes(judged(image)) == ["AT407"]


@pytest.mark.needs_tools("mke2fs", "mkfs.btrfs", "blkid")
def test_two_file_systems_are_one_finding_without_claims_about_other_programs(sparse: Sparse) -> None:
    image, stale = sparse(128 * MIB), sparse(128 * MIB, "stale.img")
    run("mkfs.btrfs", "-q", stale)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", image)
    with image.open("r+b") as file, stale.open("rb") as other:
        file.seek(64 * 1024)
        other.seek(64 * 1024)
        file.write(other.read(4096))
    report = judged(image)
    assert codes(report) == ["AT408"]
    assert all("blkid" not in one.summary for one in report.findings)


@pytest.mark.needs_tools("cryptsetup", "mkswap", "blkid")
@pytest.mark.parametrize("signature", ["over the whole page", "in the two places of a swap header"])
def test_a_swap_signature_over_a_luks2_volume_is_not_reported_as_swap_alone(sparse: Sparse, signature: str) -> None:
    """`cryptsetup repair` restores such a volume from its second header, which blkid recognises too."""
    image, swap = sparse(32 * MIB), sparse(32 * MIB, "swap.img")
    words = ("--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--batch-mode")
    run("cryptsetup", "luksFormat", *words, image, "-", stdin="secret")
    run("mkswap", swap)
    page = swap.read_bytes()[:4096]
    with image.open("r+b") as file:
        if signature == "over the whole page":
            file.write(page)
        else:
            for at, end in ((1024, 1536), (4086, 4096)):
                file.seek(at)
                file.write(page[at:end])
    assert 'TYPE="crypto_LUKS"' in run("blkid", "-p", image)
    report = judged(image)
    assert [layer.kind for layer in report.judged[0].disk.content] == ["crypto_LUKS", "swap"]
    assert "AT408" in codes(report)
