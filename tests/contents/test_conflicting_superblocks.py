"""Several superblocks in one place, empty places, and an unreadable medium."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.contents.layers import read_layers
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.contents.placed_partitions import blkid, bytes_of, layers_of, place
from tests.in_memory import BytesReader

Sparse = Callable[..., Path]


@pytest.mark.needs_tools("mkfs.ext4", "mkfs.btrfs", "blkid")
def test_ext4_and_btrfs_in_one_place_are_both_reported_where_blkid_refuses(sparse: Sparse) -> None:
    content, stale = sparse(128 * MIB), sparse(128 * MIB, "stale.img")
    run("mkfs.btrfs", "-q", stale)
    run("mkfs.ext4", "-q", "-F", content)
    with content.open("r+b") as file:
        file.seek(64 * KIB)
        file.write(bytes_of(stale, 64 * KIB, 4 * KIB))
    placed = place(content, MIB)
    assert placed.blkid() == {}
    layers = placed.layers()
    assert [layer.kind for layer in layers] == ["ext4", "btrfs"]
    assert all(layer.problems == () for layer in layers), "AT408 reports that there are two, once"


QUICK = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000 -q --key-file - --disable-locks"


@pytest.mark.needs_tools("mkfs.ext4", "cryptsetup", "blkid")
@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("mkfs.ext4 -q -F {} 63M", ["drbd"]),
        ("mkfs.ext4 -q -F {} 64M", ["drbd", "ext4"]),
        (f"cryptsetup luksFormat --type luks2 {QUICK} {{}}", ["drbd"]),
    ],
    ids=["ext4", "ext4 over its metadata", "LUKS2"],
)
def test_the_content_of_a_drbd_is_reported_only_if_it_is_as_long_as_the_member(
    sparse: Sparse, command: str, kinds: list[str]
) -> None:
    """Its metadata are at the end; a file system over them shows that they are left over."""
    content = sparse(64 * MIB)
    run(*command.format(content).split(), stdin="secret")
    with content.open("r+b") as file:
        file.seek(64 * MIB - 4 * KIB + 60)
        file.write(b"\x83\x74\x02\x6b" + bytes(16) + (4096).to_bytes(4))  # libblkid's drbd.c
    placed = place(content, MIB)
    assert placed.blkid()["TYPE"] in ("drbd", "crypto_LUKS")  # libblkid 2.39 looks for LUKS first
    assert [layer.kind for layer in placed.layers()] == kinds


@pytest.mark.needs_tools("mkfs.ext4", "mkfs.btrfs")
def test_a_damaged_superblock_is_listed_after_an_intact_one(sparse: Sparse) -> None:
    content, other = sparse(128 * MIB), sparse(128 * MIB, "other.img")
    run("mkfs.btrfs", "-q", other)
    run("mkfs.ext4", "-q", "-F", content)
    with content.open("r+b") as file:
        file.seek(64 * KIB)
        file.write(bytes_of(other, 64 * KIB, 4 * KIB))
        file.seek(1024 + 120)
        file.write(b"spoilt")  # the label, so that the checksum fails
    layers = layers_of(content)
    assert [layer.kind for layer in layers] == ["btrfs", "ext4"]
    assert layers[0].problems == ()
    assert any("checksum of the ext4 superblock is wrong" in problem for problem in layers[1].problems)


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.btrfs", "mkfs.exfat")
@pytest.mark.parametrize(
    ("command", "size", "at"),
    [
        (("mkfs.xfs", "-q", "-f"), 600 * MIB, 108),
        (("mkfs.btrfs", "-q"), 128 * MIB, 64 * KIB + 299),
        (("mkfs.btrfs", "-q", "--csum", "xxhash"), 128 * MIB, 64 * KIB + 299),
        (("mkfs.btrfs", "-q", "--csum", "sha256"), 128 * MIB, 64 * KIB + 299),
        (("mkfs.btrfs", "-q", "--csum", "blake2"), 128 * MIB, 64 * KIB + 299),
        (("mkfs.exfat",), 64 * MIB, 300),
        (("mkfs.f2fs", "-q", "-O", "extra_attr,sb_checksum"), 64 * MIB, 1024 + 0x7C),
        (("make-bcache", "-B"), 32 * MIB, 4096 + 72),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_one_wrong_byte_breaks_the_checksum_and_is_reported(
    sparse: Sparse, command: tuple[str, ...], size: int, at: int
) -> None:
    content = sparse(size)
    run(*command, content)
    assert [layer.problems for layer in layers_of(content)] == [()]
    with content.open("r+b") as file:
        file.seek(at)
        file.write(b"!")
    (layer,) = layers_of(content)
    assert any(problem.startswith("checksum of") for problem in layer.problems)


@pytest.mark.needs_tools("genisoimage", "mkfs.fat", "blkid")
def test_a_disc_image_with_a_fat_boot_sector_is_ambiguous_to_blkid_as_well(tmp_path: Path, sparse: Sparse) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "word").write_text("word" * 1_000_000)
    run("genisoimage", "-quiet", "-o", tmp_path / "image", tmp_path / "files")
    fat = sparse(4 * MIB, "fat.img")
    run("mkfs.fat", fat)
    with (tmp_path / "image").open("r+b") as file:
        file.write(fat.read_bytes()[:4096])
    assert blkid(tmp_path / "image") == {}
    assert [layer.kind for layer in layers_of(tmp_path / "image")] == ["vfat", "iso9660"]


@pytest.mark.parametrize("size", [0, 1, 511, 512, 1024, 4096, 64 * KIB, 2 * MIB])
def test_nothing_is_recognised_in_empty_places(size: int) -> None:
    for filler in (b"\0", b"\xff", b"\x55"):
        assert read_layers(BytesReader(filler * size), Extent(0, size)) == ()


@pytest.mark.parametrize(
    "extent", [Extent(8 * MIB, MIB), Extent(MIB - 512, 8 * MIB), Extent(0, 1 << 62), Extent(1 << 70, MIB), Extent(0, 0)]
)
def test_an_extent_beyond_the_disk_does_not_cause_an_error(extent: Extent) -> None:
    assert read_layers(BytesReader(bytes(MIB)), extent) == ()


class Broken:
    """A disk that fails with EIO in one range of bytes and is an image elsewhere; it counts what is read."""

    def __init__(self, content: bytes, bad: range = range(0)) -> None:
        self.content, self.bad, self.asked, self.requests = content, bad, 0, 0

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        self.asked, self.requests = self.asked + length, self.requests + 1
        if offset < self.bad.stop and self.bad.start < offset + length:
            raise OSError(errno.EIO, "Input/output error")
        return self.content[offset : offset + length]


@pytest.mark.parametrize("bad", [range(0, 512), range(60_000, 60_001), range(64 * MIB - 512, 64 * MIB)])
def test_a_medium_that_cannot_be_read_raises_its_own_error(bad: range) -> None:
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_layers(Broken(bytes(64 * MIB), bad), Extent(0, 64 * MIB))
    assert caught.value.errno == errno.EIO


@pytest.mark.needs_tools("mkfs.ext4", "mkfs.fat", "mkfs.ntfs", "cryptsetup")
@pytest.mark.parametrize("kind", ["empty", "ext4", "vfat", "ntfs", "crypto_LUKS"])
def test_a_partition_requires_few_bytes_and_few_requests(sparse: Sparse, kind: str) -> None:
    content = sparse(80 * MIB)
    commands = {
        "ext4": ("mkfs.ext4", "-q", "-F"),
        "vfat": ("mkfs.fat", "-F32"),
        "ntfs": ("mkfs.ntfs", "-q", "-F", "-f"),
        "crypto_LUKS": ("cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
                        "--key-file", "-", "--disable-locks"),
    }  # fmt: skip
    if kind != "empty":
        run(*commands[kind], content, stdin="secret")
    disk = Broken(content.read_bytes())
    assert [layer.kind for layer in read_layers(disk, Extent(0, disk.size))] == ([] if kind == "empty" else [kind])
    assert disk.asked < 1.5 * MIB
    assert disk.requests < 18
