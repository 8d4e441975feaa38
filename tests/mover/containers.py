"""Contents of partitions other than file systems: swap, encryption, volumes, arrays, unknown data.

As in `filesystems`, each is made in a content file and read back as hashes, here of every byte, because a mover that
does not know the content has to keep every byte. The container's own tool checks it as well.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB
from tests.conftest import digest, run
from tests.contents.test_lvm import Lvm
from tests.contents.test_md import SIZE as MEMBER
from tests.contents.test_md import superblock_0_90, superblock_1
from tests.contents.test_other_kinds import zfs_label
from tests.mover.fileset import noise
from tests.mover.filesystems import LINUX, SECTOR, Hashes, Kind, check_ext, make_ext, needs_root
from tests.mover.loop_mounts import looped

RAID = "A19D880F-05FC-4D3B-A006-743F0F84911E"
LVM = "E6D6D379-F507-44C2-A23C-238F2A3DF928"
SWAP = "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"
PASSWORD = "secret"


def every_byte(content: Path) -> Hashes:
    return {"every byte": digest(content)}


def write(content: Path, at: int, what: bytes) -> None:
    with content.open("r+b") as file:
        file.seek(at)
        file.write(what)


def write_both_ends(content: Path, *, start: int, end: int) -> None:
    """Write data to the first and the last sectors that may hold data, and a little in the middle."""
    for at in (start, (start + end) // 2 // SECTOR * SECTOR, end - 5 * SECTOR):
        write(content, at, noise(f"data at {at}", 5 * SECTOR))


# Swap


def make_swap(content: Path) -> None:
    run("mkswap", "-L", "a swap", content)


def read_swap(content: Path) -> Hashes:
    """Return the header page, which is all that an inactive swap space keeps."""
    with content.open("rb") as file:
        return {"header": hashlib.sha256(file.read(4096)).hexdigest(), "said": run("swaplabel", content)}


def check_swap(content: Path) -> None:
    assert "a swap" in run("swaplabel", content)


# LUKS


@contextmanager
def _passphrase() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile("w", prefix="aligntool-key-") as file:
        file.write(PASSWORD)
        file.flush()
        yield Path(file.name)


def _format(content: Path, kind: str) -> None:
    cheap = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
    with _passphrase() as key:
        run("cryptsetup", "luksFormat", "-q", "--type", kind, *cheap, "--key-file", key, content)


def rewrite_segment(content: Path, segment: Mapping[str, object]) -> None:
    """Change fields of the only segment of a LUKS2 with metadata of 16 KiB, in both headers."""
    with content.open("r+b") as file:
        for at in (0, 16 * KIB):
            file.seek(at)
            header = bytearray(file.read(16 * KIB))
            tree = json.loads(header[4096:].split(b"\0", 1)[0])
            tree["segments"]["0"] |= segment
            header[4096:] = json.dumps(tree).encode().ljust(12 * KIB, b"\0")
            header[448:512] = bytes(64)  # the checksum is that of a header without it (specification 2.3)
            header[448:480] = hashlib.sha256(header).digest()
            file.seek(at)
            file.write(header)


def check_luks(content: Path) -> None:
    """Check that the passphrase opens it: the bytes of a key slot are spread over the area of the header."""
    with _passphrase() as key:
        run("cryptsetup", "open", "--test-passphrase", "--key-file", key, content)


def make_luks1(content: Path) -> None:
    """Make a LUKS1 with an ext4: QEMU writes through the encryption, for which the kernel would need a driver."""
    _format(content, "luks1")
    with tempfile.TemporaryDirectory(prefix="aligntool-made-") as name, _passphrase() as key:
        inner = Path(name) / "inner"
        _empty(inner, content.stat().st_size - 2 * MIB)
        make_ext(inner, "ext4")
        run("qemu-img", "convert", "-n", "-f", "raw", inner, *_qemu_luks("--target-image-opts", content, key))


def _qemu_luks(option: str, content: Path, key: Path) -> tuple[str, ...]:
    secret = ("--object", f"secret,id=key,file={key}")
    return (*secret, option, f"driver=luks,key-secret=key,file.filename={content}")


def check_luks1(content: Path) -> None:
    check_luks(content)
    with tempfile.TemporaryDirectory(prefix="aligntool-read-") as name, _passphrase() as key:
        inner = Path(name) / "inner"
        run("qemu-img", "convert", *_qemu_luks("--image-opts", content, key), "-O", "raw", inner)
        check_ext(inner)


def make_luks2(content: Path) -> None:
    _format(content, "luks2")
    write_both_ends(content, start=16 * MIB, end=content.stat().st_size)


# LVM


@contextmanager
def lvm_on(content: Path) -> Iterator[tuple[Lvm, Path]]:
    with looped(content) as device, tempfile.TemporaryDirectory(prefix="aligntool-lvm-") as name:
        yield Lvm(Path(name) / "lvm", device), device


def make_lvm(content: Path) -> None:
    with lvm_on(content) as (lvm, device):
        lvm("pvcreate", "-q", device)
        lvm("vgcreate", "-q", "proving", device)
        lvm.create("-q", "-n", "gap", "-L", "4M", "proving")
        lvm.create("-q", "-n", "root", "-L", "24M", "proving")
    inner = content.with_name(f"{content.name}-inner")
    _empty(inner, 24 * MIB)
    make_ext(inner, "ext4")
    write(content, 5 * MIB, inner.read_bytes())  # pe_start is 1 MiB, and the first extent is the gap's
    inner.unlink()


def check_lvm(content: Path) -> None:
    with lvm_on(content) as (lvm, device):
        lvm("vgck", "proving")
        lvm("pvck", "--dump", "headers", device)
        ((start, length),) = {(at, length) for name, at, length in lvm.segments(device) if name == "proving/root"}
    with tempfile.TemporaryDirectory(prefix="aligntool-read-") as name:
        inner = Path(name) / "inner"
        with content.open("rb") as file:
            file.seek(start)
            inner.write_bytes(file.read(length))
        check_ext(inner)


# md and ZFS members, and unknown data


def make_md(content: Path, superblock: tuple[int, bytes], *, start: int, end: int) -> None:
    """Make a member with data up to `end`, where the member's own data area ends."""
    write_both_ends(content, start=start, end=end)
    write(content, *superblock)


def check_md(content: Path) -> None:
    said = run("mdadm", "--examine", content)
    assert "correct" in said, said


def check_zfs(content: Path) -> None:
    assert "zfs_member" in run("blkid", "-p", content)


def check_unknown(content: Path) -> None:
    assert run("blkid", "-p", content, fails=True) == ""


def md(version: str, make: Callable[[Path], None]) -> Kind:
    # Three sectors more than the size for which the superblocks are made, and still at the right place for it.
    return Kind(
        f"md {version}", MEMBER + 3 * SECTOR, "fd", RAID, make, every_byte, check_md,
        (pytest.mark.needs_tools("mdadm"),), by_hand=True,
    )  # fmt: skip


def _empty(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def make_zfs(content: Path) -> None:
    label, length = zfs_label(ashift=12, order="<"), 96 * MIB
    for at in (0, 256 * KIB, length - 512 * KIB, length - 256 * KIB):
        write(content, at, label)
    write_both_ends(content, start=4 * MIB, end=length - 512 * KIB)


CONTAINERS = (
    Kind("swap", 9 * MIB + 3 * SECTOR, "82", SWAP, make_swap, read_swap, check_swap,
         (pytest.mark.needs_tools("mkswap", "swaplabel"),), by_hand=True),
    Kind("luks1", 22 * MIB + 3 * SECTOR, "83", LINUX, make_luks1, every_byte, check_luks1,
         (pytest.mark.needs_tools("cryptsetup", "qemu-img", "mkfs.ext4", "debugfs", "e2fsck"),), by_hand=True),
    Kind("luks2", 18 * MIB + 5 * SECTOR, "83", LINUX, make_luks2, every_byte, check_luks,
         (pytest.mark.needs_tools("cryptsetup"),), by_hand=True),
    Kind("lvm", 40 * MIB + 7 * SECTOR, "8e", LVM, make_lvm, every_byte, check_lvm,
         (pytest.mark.needs_tools("lvm", "mkfs.ext4", "debugfs", "e2fsck"), needs_root), by_hand=True),
    md("0.90", lambda content: make_md(content, superblock_0_90("raid1"), start=0, end=MEMBER - 128 * KIB)),
    md("1.0", lambda content: make_md(content, superblock_1("1.0", "raid0"), start=0, end=MEMBER - 64 * KIB)),
    md("1.2", lambda content: make_md(content, superblock_1("1.2", "raid0"), start=MIB, end=MEMBER)),
    Kind("zfs", 96 * MIB, "bf", LINUX, make_zfs, every_byte, check_zfs,
         (pytest.mark.needs_tools("blkid"),), by_hand=True),
    Kind("unknown", 7 * MIB + 11 * SECTOR, "da", LINUX,
         lambda content: write_both_ends(content, start=0, end=content.stat().st_size), every_byte, check_unknown,
         (pytest.mark.needs_tools("blkid"),), by_hand=True),
)  # fmt: skip
