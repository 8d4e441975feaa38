"""The content of an initramfs, compared with the programs that make and unpack them."""

import os
import shutil
from pathlib import Path

import pytest

from aligntool.linux import system
from aligntool.linux.system import read_initramfs
from aligntool.system import Initramfs
from tests.conftest import run
from tests.raid.initramfs_images import LINE, UUID, by_cpio, by_dracut, by_mkinitramfs
from tests.thorough import sample, when_thorough

CONF = f"HOMEHOST <system>\n{LINE}"
LONG = when_thorough("makes an initramfs")
FILES = {"conf/initramfs.conf": b"x", "etc/mdadm/mdadm.conf": CONF.encode(), "sbin/mdadm": b"\x7fELF" * 3000}


def inside(image: Path) -> Initramfs:
    descriptor = os.open(image, os.O_RDONLY)
    try:
        return read_initramfs(descriptor, str(image))
    finally:
        os.close(descriptor)


def uuids(found: Initramfs) -> list[str | None]:
    return [line.uuid for line in found.conf.arrays] if found.conf else []


def unpacked_conf(image: Path, into: Path) -> str:
    """Return the file as unmkinitramfs of initramfs-tools finds it."""
    run("unmkinitramfs", image, into)
    return "".join(path.read_text() for path in sorted(into.rglob("etc/mdadm/mdadm.conf")))


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkinitramfs", "unmkinitramfs", "lsinitramfs", "unshare", "depmod", "mdadm", "zstd")
@LONG
@pytest.mark.parametrize("compress", ["gzip", "zstd"])
def test_an_image_of_debian_is_read_as_by_unmkinitramfs(tmp_path: Path, compress: str) -> None:
    image = by_mkinitramfs(tmp_path, CONF, compress=compress)
    found = inside(image)
    assert found.maker == "initramfs-tools" and not found.unseen
    assert uuids(found) == [UUID]
    assert LINE in unpacked_conf(image, tmp_path / "out").splitlines()
    assert found.has_mdadm and "usr/sbin/mdadm" in run("lsinitramfs", image).split()


@LONG
@pytest.mark.needs_root
@pytest.mark.needs_tools("dracut", "lsinitrd", "mdadm")
def test_an_image_of_dracut_is_read_as_by_lsinitrd(tmp_path: Path) -> None:
    image = by_dracut(tmp_path, CONF, command_line=f"rd.md.uuid={UUID}")
    found = inside(image)
    assert (found.maker, found.has_mdadm, found.unseen) == ("dracut", True, "")
    assert run("lsinitrd", "-f", "etc/mdadm.conf", image).split("\n")[1] == LINE
    assert uuids(found) == [UUID] and found.conf and found.conf.homehost == "<system>"
    assert run("lsinitrd", "-f", "etc/cmdline.d/90mdraid.conf", image).strip() == f"rd.md.uuid={UUID}"
    assert found.arrays_asked == (UUID,)


@sample(4)
@pytest.mark.needs_tools("cpio", "unmkinitramfs")
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("compress", ["", "gzip", "zstd", "xz", "bzip2", "lz4"])
def test_an_image_is_read_with_any_compression_and_any_preceding_archive(
    tmp_path: Path, compress: str, early: bool
) -> None:
    if compress and not shutil.which(compress):
        pytest.skip(f"not installed: {compress}; `make test` installs it")
    image = by_cpio(tmp_path, FILES, compress=compress, early=early)
    found = inside(image)
    assert (found.maker, found.has_mdadm, found.unseen) == ("initramfs-tools", True, "")
    assert uuids(found) == [UUID]
    if compress:  # unmkinitramfs expects a packed archive at the end
        assert unpacked_conf(image, tmp_path / "out") == CONF


@pytest.mark.needs_tools("cpio", "gzip")
def test_only_one_of_two_main_files_in_an_image_is_used(tmp_path: Path) -> None:
    """mdadm reads one, so a line that both have does not match an array twice."""
    files = {"usr/lib/dracut/modules.txt": b"", "etc/mdadm.conf": LINE.encode(), "etc/mdadm/mdadm.conf": LINE.encode()}
    assert uuids(inside(by_cpio(tmp_path, files))) == [UUID]


@pytest.mark.needs_tools("cpio", "gzip")
def test_an_image_without_mdadm_is_reported(tmp_path: Path) -> None:
    found = inside(by_cpio(tmp_path, {"conf/initramfs.conf": b"x", "etc/fstab": b""}, compress="gzip"))
    assert (found.has_mdadm, found.conf, found.unseen) == (False, None, "")


@pytest.mark.needs_tools("cpio", "gzip")
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_image_is_never_taken_for_one_without_mdadm(tmp_path: Path, share: float) -> None:
    """Random bytes, which cannot be compressed, precede everything that is searched for."""
    image = by_cpio(tmp_path, {"bin/x": os.urandom(200_000), **FILES}, compress="gzip", early=True)
    content = image.read_bytes()
    image.write_bytes(content[: int(len(content) * share)])
    assert inside(image).unseen


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"MZ" + bytes(100), "unified kernel image"),
        (b"hello, world" * 10, "compression is unknown"),
        (b"", "unknown"),
        (bytes(5000), "unknown"),
        (b"070701" + b"g" * 104, "headers is damaged"),
        (b"070701" + b"0" * 48 + b"FFFFFFFF" + b"0" * 32 + b"00000002" + b"0" * 8 + b"x\0", "the middle"),
        (b"\x1f\x8b\x08" + bytes(60), "not a cpio archive"),
    ],
)
def test_an_image_that_cannot_be_read_is_reported_with_the_reason(tmp_path: Path, content: bytes, why: str) -> None:
    image = tmp_path / "x.img"
    image.write_bytes(content)
    assert why in inside(image).unseen


@pytest.mark.needs_tools("cpio")
def test_an_image_with_a_squashfs_is_reported_as_unread(tmp_path: Path) -> None:
    found = inside(by_cpio(tmp_path, {"usr/lib/dracut/x": b"", "squash-root.img": b"hsqs"}))
    assert "squashfs" in found.unseen


def test_an_implausibly_large_image_is_not_read(tmp_path: Path) -> None:
    """It contains a file of 4 GiB, which is a hole in the image."""
    image = tmp_path / "large.img"
    with image.open("wb") as file:
        file.write(b"070701" + b"0" * 48 + b"FFFFFFF0" + b"0" * 32 + b"00000004" + b"0" * 8 + b"bin\0" + bytes(2))
        file.truncate(5 << 30)
    assert image.stat().st_size > system.MOST_BYTES
    assert "larger than an initramfs can be" in inside(image).unseen
