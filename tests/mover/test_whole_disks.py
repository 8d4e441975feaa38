"""Real file systems on a whole disk become a partition and a whole disk again: the same files, and no
tool complains.
"""

import json
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged
from aligntool.change import RealignGoal
from aligntool.claims import ALL_FREE
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits, Layer, Partition, Segment
from aligntool.linux.block import ReadOnlyDevice, open_read_only
from aligntool.realign.request import Request
from aligntool.units import KIB, MIB, Extent, align_up
from aligntool.whole_disk import operation as partition_request
from aligntool.whole_disk.operation import WholeDisk, named_in_files
from aligntool.whole_disk.planning import plan_partition, refuse_unmovable, with_needed_length
from tests.by_hand import command_of, section_of, type_by_hand
from tests.conftest import digest, run
from tests.contents.test_other_kinds import zfs_label
from tests.mover.command_line import REFUSED, aligntool
from tests.mover.containers import CONTAINERS, LVM, every_byte, lvm_on
from tests.mover.filesystems import FILESYSTEMS, SECTOR, Kind
from tests.mover.test_kills import killed
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "sgdisk", "blkid", "mke2fs", "e2fsck", "debugfs", "mkswap")

NAMED = {kind.name: kind for kind in (*FILESYSTEMS, *CONTAINERS)}
MOVED = ("ext2", "ext4", "xfs", "btrfs", "ntfs", "fat12", "fat32", "exfat", "swap")
TYPES = {"swap": "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "ntfs": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"}
FREE = 4 * MIB


def parameters(names: tuple[str, ...]) -> list[object]:
    return [NAMED[name].parameter() for name in names if name in NAMED]


def facts(image: Path, start: int = 0, length: int = 0) -> dict[str, str]:
    """Return what libblkid reports of a place, without the facts of the table."""
    where = ("-O", str(start), "-S", str(length)) if length else ()
    said = run("blkid", "-p", "-o", "export", *where, image)
    pairs = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    return {name: value for name, value in pairs.items() if name in ("UUID", "TYPE", "LABEL", "VERSION")}


def partition_of(image: Path) -> tuple[int, int, str]:
    """Return start and length in bytes, and the type."""
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    (part,) = table["partitions"]
    size = table["sectorsize"]
    return part["start"] * size, part["size"] * size, part["type"]


def cut_out(image: Path, to: Path, start: int, length: int) -> Path:
    with image.open("rb") as file, to.open("wb") as out:
        file.seek(start)
        out.write(file.read(length))
    return to


def check_table(image: Path, label: str) -> None:
    assert "No errors detected" in run("sfdisk", "--verify", image)
    if label == "gpt":
        assert "No problems found" in run("sgdisk", "--verify", image)
    assert aligntool("audit", "--json", image)


@sample(4)
@pytest.mark.parametrize("kind", parameters(MOVED))
def test_a_file_system_keeps_its_files_and_its_uuid(kind: Kind, tmp_path: Path) -> None:
    content, image = tmp_path / "content", tmp_path / "disk.img"
    with content.open("wb") as file:
        file.truncate(kind.length)
    kind.make(content)
    files = kind.read(content)
    shutil.copy(content, image)
    with image.open("r+b") as file:
        file.truncate(align_up(kind.length, MIB) + FREE)
    before = facts(image)
    label = random.Random(kind.name).choice(("gpt", "dos"))
    aligntool("partition", image, "--table", label, "--yes")
    start, length, type_ = partition_of(image)
    assert start == MIB
    if label == "gpt" and kind.name in TYPES:
        assert type_ == TYPES[kind.name]
    assert facts(image, start, length) == before
    check_table(image, label)
    part = cut_out(image, tmp_path / "part", start, length)
    kind.check(part)
    assert kind.read(part) == files
    aligntool("partition", image, "--undo", "--yes")
    assert facts(image) == before
    assert "start=" not in run("sfdisk", "--dump", image, fails=True)
    back = cut_out(image, tmp_path / "back", 0, length)
    kind.check(back)
    assert kind.read(back) == files


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_bytes_behind_the_last_whole_sector_of_an_image_prevent_nothing(label: str, tmp_path: Path) -> None:
    ext4(image := tmp_path / "disk.img", 32 * MIB)
    with image.open("r+b") as file:
        file.truncate(48 * MIB)
        file.seek(48 * MIB)
        file.write(b"x" * 100)
    before = facts(image)
    aligntool("partition", image, "--table", label, "--yes")
    assert facts(image, MIB, 32 * MIB) == before
    check_table(image, label)
    aligntool("partition", image, "--undo", "--yes")
    assert facts(image) == before and "clean" in run("e2fsck", "-n", image)
    assert image.read_bytes()[48 * MIB :] == b"x" * 100


@pytest.mark.parametrize("name", ["LUKS1", "LUKS2"])
@pytest.mark.needs_tools("cryptsetup")
def test_luks_is_refused_on_a_full_disk_and_can_be_moved_out_of_a_partition(name: str, tmp_path: Path) -> None:
    """Its header does not give its length, so nothing behind it is free; in the other direction nothing prevents it."""
    luks, image = tmp_path / "luks", tmp_path / "disk.img"
    luks.write_bytes(bytes(20 * MIB))
    fast = ("--pbkdf-force-iterations", "1000")
    run("cryptsetup", "luksFormat", "-q", "--type", name.lower(), *(("--pbkdf", "pbkdf2") if name == "LUKS2" else ()),
        *fast, luks, "-", stdin="secret")  # fmt: skip
    said = aligntool("plan", "partition", luks, code=REFUSED)
    found = re.search(r"takes 20971520 bytes, .* there is room for (\d+), (\d+) bytes \(\S+\) fewer", said)
    assert found
    room, fewer = map(int, found.groups())
    assert room + fewer == 20 * MIB
    assert 0 < room < 20 * MIB - MIB - 33 * SECTOR
    image.write_bytes(bytes(24 * MIB))
    run("sfdisk", "-q", image, stdin=f"label: gpt\nstart=1MiB, size={20 * MIB // SECTOR}\n")
    with image.open("r+b") as file:
        file.seek(MIB)
        file.write(luks.read_bytes())
    uuid = run("cryptsetup", "luksUUID", luks)
    aligntool("partition", image, "--undo", "--yes", "--not-suspended")
    assert every_byte(cut_out(image, tmp_path / "back", 0, 20 * MIB)) == every_byte(luks)
    assert run("cryptsetup", "luksUUID", image) == uuid


@pytest.mark.needs_tools("cryptsetup")
@pytest.mark.parametrize("rest", [0, SECTOR])
def test_a_luks_stays_in_its_partition_if_the_disk_is_not_a_multiple_of_its_sectors(rest: int, tmp_path: Path) -> None:
    luks, image = tmp_path / "luks", tmp_path / "disk.img"
    luks.write_bytes(bytes(20 * MIB))
    run("cryptsetup", "luksFormat", "-q", "--type", "luks2", "--sector-size", "4096", "--pbkdf", "pbkdf2",
        "--pbkdf-force-iterations", "1000", luks, "-", stdin="secret")  # fmt: skip
    image.write_bytes(bytes(24 * MIB + rest))
    run("sfdisk", "-q", image, stdin=f"label: gpt\nstart=1MiB, size={20 * MIB // SECTOR}\n")
    with image.open("r+b") as file:
        file.seek(MIB)
        file.write(luks.read_bytes())
    said = aligntool("plan", "partition", "--undo", image, code=REFUSED if rest else 0)
    assert ("which is not a multiple of that, so it would not open" in " ".join(said.split())) is bool(rest)


LUKS2 = Layer("crypto_LUKS", Extent(0, 64 * MIB), "LUKS2", data_start=16 * MIB, data_unit=4096)
EXT4 = Layer("ext4", Extent(0, 30 * MIB), claims_size=30 * MIB + 512)


@pytest.mark.parametrize(
    ("inside", "decrypted", "why"),
    [
        ((), 48 * MIB, "nothing is recognised"),
        ((EXT4, EXT4), 48 * MIB, "ext4 and ext4 is recognised"),
        ((Layer("zfs_member", Extent(0, MIB), claims_size=MIB),), 48 * MIB, "zfs_member is recognised"),
        ((Layer("crypto_LUKS", Extent(0, MIB)),), 48 * MIB, "LUKS is recognised"),
        ((replace(EXT4, problems=("cut off",)),), 48 * MIB, "ext4 is recognised"),
        ((replace(EXT4, unclean="needs its journal replayed"),), 48 * MIB, "needs its journal replayed"),
        ((EXT4,), 47 * MIB, "do not extend from byte"),  # as with dm-integrity
    ],
)
def test_the_length_of_a_luks_is_derived_from_its_content_only_where_that_is_certain(
    inside: tuple[Layer, ...], decrypted: int, why: str
) -> None:
    disk = Disk("sdz", "/dev/sdz", DiskKind.SCSI, 64 * MIB, IoLimits(), content=(LUKS2,))
    assert with_needed_length(LUKS2, (EXT4,), 48 * MIB, disk).claims_size == 46 * MIB + 4096
    with pytest.raises(Refused, match=why):
        with_needed_length(LUKS2, inside, decrypted, disk)


def test_a_volume_group_in_a_luks_is_deactivated_before_the_luks_is_closed() -> None:
    """LVM activates it as soon as the LUKS is open (lvmautoactivation(7))."""
    run_of_root = Segment("my vg/root", 0, Extent(MIB, 44 * MIB))
    group = Layer("LVM2_member", Extent(0, 47 * MIB), claims_size=47 * MIB, segments=(run_of_root,))
    disk = Disk("sdz", "/dev/sdz", DiskKind.SCSI, 64 * MIB, IoLimits(512, 4096), table_read=True, content_read=True)
    disk = replace(disk, content=(with_needed_length(LUKS2, (group,), 48 * MIB, replace(disk, content=(LUKS2,))),))
    with pytest.raises(Refused, match="its length depends on the LVM2 PV inside") as refused:
        plan_partition(audit(Inventory((disk,)), {}).judged[0], RealignGoal(), "gpt", {}, ALL_FREE)
    assert refused.value.hint == "by hand, with pvresize on /dev/sdz: docs/by-hand.md#make-a-content-shorter"
    (row,) = (line for line in section_of(refused.value.hint).splitlines() if line.startswith("| LVM in LUKS |"))
    assert 0 < row.index("pvresize") < row.index("vgchange -an GROUP") < row.index("cryptsetup close inside")


@pytest.mark.parametrize("length", [0, 8 * MIB + 1])
def test_a_key_file_that_cannot_hold_a_key_is_refused(tmp_path: Path, length: int) -> None:
    """cryptsetup reads 8 MiB of a key file at most (cryptsetup(8), NOTES ON PASSPHRASE PROCESSING)."""
    image, key = tmp_path / "disk.img", tmp_path / "key"
    for file, size in ((image, 64 * MIB), (key, length)):
        with file.open("wb") as opened:
            opened.truncate(size)
    said = aligntool("partition", "--yes", "--not-suspended", "--key-file", key, image, code=REFUSED)
    assert "is not a key file: it is empty, or longer than 8388608 bytes" in said


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the content of a LUKS of 48 MiB, an ext4 of 30 MiB, which is opened without a key."""
    content = ext4(tmp_path / "inside", 30 * MIB, disk=48 * MIB)

    @contextmanager
    def decrypted(_device: str, _key: bytes) -> Iterator[ReadOnlyDevice]:
        with open_read_only(str(content)) as opened:
            yield opened

    monkeypatch.setattr(partition_request, "open_luks", decrypted)
    monkeypatch.setattr(partition_request, "read_only_loop", lambda _path, _extent: nullcontext("/dev/loop0"))
    monkeypatch.setattr(partition_request, "_others", lambda _disk: ())
    assert length_of_luks() == 46 * MIB
    return content


def length_of_luks() -> int | None:
    disk = Disk(
        "sdz", "/dev/sdz", DiskKind.SCSI, 64 * MIB, IoLimits(), content=(LUKS2,), table_read=True, content_read=True
    )
    return WholeDisk(Request())._with_length(Judged(disk, (), ()), b"key").content[0].claims_size


def test_a_partition_table_inside_a_luks_is_ambiguous(inside: Path) -> None:
    """The file system under it may be an old one: its length does not show which partitions are in use."""
    run("sfdisk", "-q", inside, stdin="label: dos\n2048,20MiB,83\n")
    with pytest.raises(Refused, match="ambiguous: ext4 and a partition table"):
        length_of_luks()


def test_a_second_file_system_inside_a_luks_is_not_cut_off(inside: Path) -> None:
    """Its bytes are encrypted: nothing is recognised in them if they are named with --overwrite-bytes."""
    run("mke2fs", "-q", "-F", "-t", "ext4", "-E", f"offset={30 * MIB}", inside, "18M")
    with pytest.raises(Refused, match=f"ext4 begins at byte {30 * MIB}, where the ext4 on sdz ends"):
        length_of_luks()


@pytest.mark.needs_root
@pytest.mark.needs_tools("cryptsetup")
def test_a_luks_that_is_being_encrypted_is_refused_with_the_command_that_finishes_it(tmp_path: Path) -> None:
    """Its segments in use end long before its data do: cryptsetup moved the first 16 MiB of them to the end."""
    image, key, size = tmp_path / "disk.img", tmp_path / "key", 96 * MIB
    key.write_text("secret")
    with image.open("wb") as file:
        file.truncate(size)
    run("mke2fs", "-q", "-F", "-t", "ext4", image, f"{32 * MIB // KIB}k")
    words = ("--encrypt", "--init-only", "--type", "luks2", "--reduce-device-size", "32M", "--key-file", key)
    run("cryptsetup", "reencrypt", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", *words, image)
    segments = json.loads(run("cryptsetup", "luksDump", "--dump-json-metadata", image))["segments"].values()
    (moved,) = (one for one in segments if "backup-moved-segment" in one.get("flags", ()))
    assert int(moved["offset"]) + int(moved["size"]) == size
    before = digest(image)
    said = aligntool("partition", "--yes", image, code=REFUSED)
    assert "re-encryption is not finished" in said and "cryptsetup reencrypt --resume-only" in section_of(said)
    assert digest(image) == before
    layer = json.loads(run_aligntool("audit", "--json", image, code=0).stdout)["disks"][0]["content"][0]
    assert (layer["claims_size"], layer["data_start"]) == (None, 16 * MIB)
    assert "online-reencrypt" in layer["unclean"]


@pytest.mark.needs_root
@pytest.mark.needs_tools("lvm")
def test_the_length_of_a_volume_without_metadata_of_its_own_is_unknown(tmp_path: Path) -> None:
    """pvresize changes it in the metadata, which are on another disk, and not in the label."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    with lvm_on(image) as (lvm, device):
        lvm("pvcreate", "-q", "-q", "--pvmetadatacopies", "0", "--setphysicalvolumesize", "24M", "-y", device)
    layer = json.loads(run_aligntool("audit", "--json", image, code=0).stdout)["disks"][0]["content"][0]
    assert (layer["kind"], layer["claims_size"]) == ("LVM2_member", None)
    before = digest(image)
    assert "67108864 bytes" in aligntool("partition", "--yes", image, code=REFUSED)
    assert digest(image) == before


@pytest.mark.needs_root
@pytest.mark.needs_tools("lvm", "mkfs.ext4", "debugfs", "e2fsck")
def test_a_volume_gets_a_table_after_pvresize_to_the_length_that_the_refusal_states(tmp_path: Path) -> None:
    kind, image = NAMED["lvm"], tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    kind.make(image)
    said = " ".join(aligntool("plan", "partition", image, code=REFUSED).split())
    found = re.search(r"there is room for (\d+), ", said)
    assert found and f"with pvresize on {image}: " in said
    assert command_of(said, "pvresize", BYTESB=f"{found[1]}B", PV="x").endswith(f"size {found[1]}B x")
    with lvm_on(image) as (lvm, device):
        before = lvm("pvs", "--noheadings", "-o", "pv_uuid,vg_uuid,lv_uuid", device)
        lvm("pvresize", "-q", "-q", "-y", "--setphysicalvolumesize", f"{found[1]}B", device)
    aligntool("partition", image, "--yes")
    start, length, type_ = partition_of(image)
    assert (start, type_) == (MIB, LVM) and length <= int(found[1])
    check_table(image, "gpt")
    part = cut_out(image, tmp_path / "part", start, length)
    kind.check(part)
    with lvm_on(part) as (lvm, device):
        assert lvm("pvs", "--noheadings", "-o", "pv_uuid,vg_uuid,lv_uuid", device) == before
    aligntool("partition", image, "--undo", "--yes")
    kind.check(image)


def ext4(path: Path, size: int, *, disk: int = 0) -> Path:
    with path.open("wb") as file:
        file.truncate(disk or size)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", path, str(size // KIB) + "k")  # Ubuntu's default is 4096
    return path


def full_ext4(path: Path) -> Path:
    """Make one of 16 MiB that no tool can shrink by 4 MiB."""
    folder = path.parent / "files"
    folder.mkdir()
    (folder / "noise").write_bytes(random.Random(16).randbytes(13 * MIB))
    run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-b", "1024", "-d", folder, path, "16m")
    return path


def swap(path: Path, size: int) -> Path:
    path.write_bytes(bytes(size))
    run("mkswap", path)
    return path


def both(path: Path) -> Path:
    """Make an XFS with the header of a swap space behind its superblock."""
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(320 * MIB)
        run("mkfs.xfs", "-q", "-d", "size=300m", path)
        file.seek(KIB)
        file.write(swap(path.with_name("swap"), MIB).read_bytes()[KIB : 4 * KIB])
    assert not run("blkid", "-p", path, fails=True)  # "ambivalent result" is its only output
    return path


def gpt(path: Path) -> Path:
    ext4(path, 16 * MIB, disk=32 * MIB)
    run("sfdisk", "-q", "-w", "never", path, stdin="label: gpt\n,8MiB\n,\n")
    return path


def table_in_it(path: Path) -> Path:
    """Make an ext4 in a partition that begins with a table, which ext4 ignores in its first 1024 bytes."""
    part = ext4(path.with_name("part"), 16 * MIB)
    with path.open("wb") as file:
        file.truncate(32 * MIB)
    run("sfdisk", "-q", "-w", "never", path, stdin="label: gpt\nstart=1MiB, size=16MiB\n")
    sector_0 = path.read_bytes()[:SECTOR]
    with path.open("r+b") as file:
        file.seek(MIB)
        file.write(sector_0 + part.read_bytes()[SECTOR:])
    return path


def zfs_at_the_end(path: Path) -> Path:
    """Make an ext4 in a partition of a disk that was a member of a ZFS pool as a whole."""
    image = with_one_partition(path.parent, "gpt", MIB)
    with image.open("r+b") as file:
        for back in (512 * KIB, 256 * KIB):
            file.seek(64 * MIB - back)
            file.write(zfs_label(ashift=12, order="<")[: back - 34 * SECTOR])
    return image


CASES: tuple[tuple[Callable[[Path], Path], tuple[str, ...], str], ...] = (
    (lambda path: ext4(path, 32 * MIB), (), "33554432 bytes, but beside the table and the journal there is room for"),
    (lambda path: ext4(path, 32 * MIB), ("--undo",), "has no partition table"),
    (full_ext4, (), "→ aligntool plan partition"),
    (full_ext4, ("--shrink",), "→ delete files on it, or use --journal FILE"),
    (full_ext4, ("--shrink", "--journal", "journal"), "→ delete files on it, and plan again"),
    (lambda path: swap(path, 8 * MIB), (), "→ by hand, with mkswap on "),
    (lambda path: swap(path, 2 * MIB), (), "→ aligntool audit"),
    (lambda path: (swap(path, 8 * MIB), run("mkswap", "-U", "clear", path), path)[2], (), "→ by hand, with mkswap on "),
    (gpt, (), "already has a partition table"),
    (table_in_it, ("--undo",), "partition 1 begins with a table of its own"),
    (zfs_at_the_end, ("--undo",), "ext4 and zfs_member would be recognised"),
    (gpt, ("--undo",), "has 2 partitions; only a single primary one"),
    (lambda path: (path.write_bytes(bytes(MIB * 8)), path)[1], (), "nothing is recognised"),
)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_content_that_cannot_be_moved_is_refused_with_the_reason(case: int, tmp_path: Path) -> None:
    make, options, said = CASES[case]
    image = make(tmp_path / "disk.img")
    before = every_byte(image)
    assert said in aligntool("partition", image, "--yes", *options, code=REFUSED)
    assert every_byte(image) == before


def test_content_that_only_udev_recognises_is_reported_and_no_new_table_is_proposed() -> None:
    """A btrfs on a zoned drive: its superblocks are in a log, at no fixed place."""
    disk = Disk("nvme0n1", "/dev/nvme0n1", DiskKind.NVME, 64 * MIB, IoLimits(512, 512), content_hint="btrfs")
    judged = audit(Inventory((replace(disk, table_read=True, content_read=True),)), {}).judged[0]
    with pytest.raises(Refused) as refused:
        refuse_unmovable(judged, ())
    assert "udev reports btrfs" in str(refused.value) and "layout" not in refused.value.hint


@pytest.mark.parametrize("grub", [True, False])
def test_a_boot_program_that_is_lost_with_the_table_needs_attention(grub: bool, tmp_path: Path) -> None:
    """GRUB's boot sector, by its boot.S: the first sector of the core image at 0x5c, messages behind the code."""
    part, image = ext4(tmp_path / "part", 16 * MIB), tmp_path / "disk.img"
    image.write_bytes(bytes(32 * MIB))
    run("sfdisk", "-q", image, stdin="label: dos\nstart=1MiB, size=16MiB\n")
    with image.open("r+b") as file:
        for at, raw in (0x5C, struct.pack("<Q", 1)), (0x180, b"GRUB \0Geom\0Hard Disk\0Read\0 Error\r\n\0"):
            file.seek(at)
            file.write(raw * grub)
        file.seek(MIB)
        file.write(part.read_bytes())
    said = " ".join(aligntool("plan", "partition", "--undo", image).split())
    assert ("lost: GRUB, found at byte 512: this disk no longer starts" in said) is grub
    assert ("grub-install" in said) is grub


def test_a_boot_program_of_the_only_partition_is_not_lost_with_the_table(tmp_path: Path) -> None:
    """Its boot sector becomes that of the disk."""
    part, image = ext4(tmp_path / "part", 16 * MIB), tmp_path / "disk.img"
    image.write_bytes(bytes(32 * MIB))
    run("sfdisk", "-q", image, stdin="label: dos\nstart=1MiB, size=16MiB\n")
    with image.open("r+b") as file:
        file.seek(MIB)
        file.write(part.read_bytes())
        file.seek(MIB + 6)
        file.write(b"LILO")
    said = " ".join(aligntool("plan", "partition", "--undo", image).split())
    assert "LILO in the boot sector of partition 1 keeps a list of absolute sectors" in said
    assert "is lost with the table" not in said


@pytest.mark.parametrize("boot", [True, False])
def test_a_boot_program_that_moves_with_the_content_needs_attention(boot: bool, tmp_path: Path) -> None:
    """Images of virtual machines start from extlinux in the first sector of an ext4 without a table."""
    image = ext4(tmp_path / "disk.img", 32 * MIB, disk=128 * MIB)
    with image.open("r+b") as file:
        file.write(b"\xeb\x58\x90EXTLINUX" * boot)
    said = " ".join(aligntool("plan", "partition", image).split())
    assert (f"the boot program in the first sector of {image} moves with the content: no BIOS" in said) is boot


def write_pieces(image: Path, *pieces: tuple[int, bytes]) -> None:
    with image.open("r+b") as file:
        for at, raw in pieces:
            file.seek(at)
            file.write(raw)


def with_one_partition(folder: Path, label: str, start: int) -> Path:
    """Return an image of 64 MiB with a table and an ext4 of 16 MiB at this byte."""
    part, image = ext4(folder / "part", 16 * MIB), folder / "disk.img"
    image.write_bytes(bytes(64 * MIB))
    run("sfdisk", "-q", image, stdin=f"label: {label}\nstart={start // SECTOR}, size=16MiB\n")
    with image.open("r+b") as file:
        file.seek(start)
        file.write(part.read_bytes())
    return image


@pytest.mark.parametrize(("label", "at"), [("dos", 32 * KIB), ("gpt", 128 * KIB), ("gpt", 8 * MIB)])
def test_unlisted_data_before_the_partition_are_only_overwritten_if_named(label: str, at: int, tmp_path: Path) -> None:
    image = with_one_partition(tmp_path, label, 16 * MIB if at > MIB else MIB)
    check_named(image, Extent(at, SECTOR), "--undo")


def check_named(image: Path, data: Extent, *options: str) -> None:
    """Check that data in no partition prevent the change, until they are named; and that --save keeps a copy."""
    saved = image.with_name("saved.img")
    aligntool("plan", "partition", *options, image)
    with image.open("r+b") as file:
        file.seek(data.start)
        file.write(b"\x5a" * data.length)
    before = every_byte(image)
    said = aligntool("partition", *options, image, "--yes", code=REFUSED)
    assert f"bytes {data.start}..{data.end} of {image} are in no partition and do not read as zero" in " ".join(
        said.split()
    )
    assert every_byte(image) == before
    range_ = f"{data.start}..{data.end}"
    named = ("--overwrite-bytes", range_, "--save", saved)
    assert f"--overwrite-bytes {range_} --save FILE" in said
    planned = " ".join(aligntool("plan", "partition", *options, image, *named).split())
    assert f"bytes {range_} may be overwritten, as requested, after a copy to {saved}" in planned and "5a 5a" in planned
    aligntool("partition", *options, image, *named, "--yes")
    assert saved.read_bytes()[data.start :] == b"\x5a" * data.length


@pytest.mark.needs_root
@pytest.mark.needs_tools("lvm")
def test_a_physical_volume_below_a_later_table_is_not_overwritten(tmp_path: Path) -> None:
    """An MBR leaves its label in sector 1, and the first volume begins where the partition does."""
    with_table, image = with_one_partition(tmp_path, "dos", MIB), tmp_path / "volume.img"
    image.write_bytes(bytes(64 * MIB))
    with lvm_on(image) as (lvm, device):
        lvm("pvcreate", "-q", device)
        lvm("vgcreate", "-q", "group", device)
    content = image.read_bytes()[SECTOR:MIB]
    with with_table.open("r+b") as file:
        file.seek(SECTOR)
        file.write(content)
    said = aligntool("partition", "--undo", "--yes", with_table, code=REFUSED)
    assert "are in no partition and do not read as zero" in " ".join(said.split())
    assert with_table.read_bytes()[SECTOR:MIB] == content


@pytest.mark.needs_tools("mkfs.btrfs")
def test_a_file_system_in_the_gap_of_grub_is_not_overwritten(tmp_path: Path) -> None:
    """What GRUB keeps before the first partition is overwritten only if it is named; a superblock is never."""
    image, other = with_one_partition(tmp_path, "dos", MIB), tmp_path / "other.img"
    with other.open("wb") as file:
        file.truncate(128 * MIB)
    run("mkfs.btrfs", "-q", other)
    superblock = other.read_bytes()[64 * KIB : 68 * KIB]
    core = ((0x5C, struct.pack("<Q", 1)), (0x180, b"GRUB \0Geom\0Hard Disk\0Read\0 Error\r\n\0"), (32 * KIB, b"core"))
    write_pieces(image, *core)
    refused = aligntool("plan", "partition", "--undo", image, code=REFUSED)
    assert "are in no partition and do not read as zero" in " ".join(refused.split())
    named = aligntool("plan", "partition", "--undo", image, "--overwrite-bytes", "32768..33280")
    assert "lost: GRUB, found at byte 512" in " ".join(named.split())
    write_pieces(image, (64 * KIB, superblock))
    before = every_byte(image)
    for words in ((), ("--overwrite-bytes", "32768..69120")):
        said = " ".join(aligntool("partition", "--undo", "--yes", image, *words, code=REFUSED).split())
        assert ("recognised" if words else "do not read as zero") in said
    assert every_byte(image) == before


def test_unlisted_data_at_the_end_of_an_mbr_disk_are_only_overwritten_if_named(tmp_path: Path) -> None:
    image = with_one_partition(tmp_path, "dos", MIB)
    check_named(image, Extent(64 * MIB - SECTOR, SECTOR), "--undo")


@sample(1)
@pytest.mark.needs_tools("sgdisk")
@pytest.mark.parametrize("words", [("-S", "256"), ("-j", "40"), ()], ids=["entries", "place", "grown"])
def test_the_plan_refuses_a_gpt_of_another_form_with_a_hint(words: tuple[str, ...], tmp_path: Path) -> None:
    part, image = ext4(tmp_path / "part", 16 * MIB), tmp_path / "disk.img"
    image.write_bytes(bytes(64 * MIB))
    run("sgdisk", *words, "-n", "1:2048:+16M", image)
    with image.open("r+b") as file:
        file.seek(MIB)
        file.write(part.read_bytes())
        if not words:
            file.truncate(80 * MIB)
    said = aligntool("plan", "partition", "--undo", image, code=REFUSED)
    type_by_hand(said, "sgdisk -S 128", DISK=image)
    aligntool("partition", "--undo", image, "--yes")


@pytest.mark.parametrize("at", [32 * MIB, 33 * MIB - SECTOR, 128 * MIB - SECTOR], ids=["first", "last", "table"])
def test_unlisted_data_behind_the_content_are_only_overwritten_if_named(at: int, tmp_path: Path) -> None:
    check_named(ext4(tmp_path / "disk.img", 32 * MIB, disk=128 * MIB), Extent(at, SECTOR))


def test_the_journal_is_put_beside_unlisted_data(tmp_path: Path) -> None:
    image = ext4(tmp_path / "disk.img", 32 * MIB, disk=128 * MIB)
    noise = random.Random(1).randbytes(5 * MIB)
    with image.open("r+b") as file:
        file.seek(100 * MIB)
        file.write(noise)
    aligntool("partition", image, "--yes")
    content = image.read_bytes()
    assert content[100 * MIB : 105 * MIB] == noise
    assert not any(content[34 * MIB : 100 * MIB]) and not any(content[105 * MIB : 127 * MIB])


def test_a_file_system_behind_the_content_is_also_refused_if_its_bytes_are_named(tmp_path: Path) -> None:
    """The named bytes begin at its superblock, which is not where the file system begins."""
    image, second = ext4(tmp_path / "disk.img", 32 * MIB, disk=128 * MIB), 32 * MIB
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-E", f"offset={second}", image, "32M")
    before = every_byte(image)
    said = aligntool("partition", image, "--yes", code=REFUSED)
    named = re.findall(r"--overwrite-bytes (\d+\.\.\d+)", said)
    assert named and named[0].startswith(f"{second + KIB}..")
    words = [word for range_ in named for word in ("--overwrite-bytes", range_)]
    said = aligntool("partition", image, "--yes", *words, code=REFUSED)
    assert f"ext4 is recognised at byte {second}, before the range {named[0]}" in " ".join(said.split())
    assert every_byte(image) == before


@pytest.mark.needs_tools("veritysetup")
def test_a_hash_tree_behind_the_file_system_is_refused(tmp_path: Path) -> None:
    image = ext4(tmp_path / "disk.img", 32 * MIB, disk=128 * MIB)
    blocks = ("--data-block-size=4096", f"--data-blocks={32 * MIB // 4096}", f"--hash-offset={32 * MIB}")
    run("veritysetup", "format", *blocks, image, image)
    before = every_byte(image)
    said = aligntool("partition", image, "--yes", code=REFUSED)
    assert f"bytes {32 * MIB}.." in " ".join(said.split())
    assert every_byte(image) == before


@pytest.mark.needs_tools("mkfs.xfs")
def test_two_signatures_are_refused(tmp_path: Path) -> None:
    image = both(tmp_path / "disk.img")
    before = every_byte(image)
    assert "ambiguous: " in aligntool("partition", image, "--yes", code=REFUSED)
    assert every_byte(image) == before


@pytest.mark.on_disk
def test_with_the_journal_in_a_file_only_the_table_needs_room(tmp_path: Path) -> None:
    """The last 33 sectors are 16.5 KiB; the blocks of this file system have 1 KiB."""
    longest = 31 * MIB - 17 * KIB
    image, journal = ext4(tmp_path / "disk.img", longest + KIB, disk=32 * MIB), tmp_path / "journal"
    aligntool("partition", image, "--yes", "--journal", journal, code=REFUSED)
    ext4(image, longest, disk=32 * MIB)
    aligntool("partition", image, "--yes", code=REFUSED)
    aligntool("partition", image, "--yes", "--journal", journal)
    assert partition_of(image)[:2] == (MIB, longest)
    check_table(image, "gpt")


@pytest.mark.needs_root
@pytest.mark.needs_tools("resize2fs", "losetup")
def test_shrinking_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    image = ext4(tmp_path / "disk.img", 128 * MIB)
    run("debugfs", "-w", "-R", f"write {__file__} kept", image)
    uuid = facts(image)["UUID"]
    aligntool("partition", image, "--yes", code=REFUSED)
    aligntool("partition", image, "--yes", "--shrink")
    start, length, _ = partition_of(image)
    assert facts(image, start, length)["UUID"] == uuid
    part = cut_out(image, tmp_path / "part", start, length)
    run("e2fsck", "-fn", part)
    assert run("debugfs", "-R", "cat kept", part) == Path(__file__).read_text()
    check_table(image, "gpt")


@pytest.mark.parametrize(
    ("words", "size", "helps"),
    [
        (("mke2fs", "-q", "-t", "ext4"), 4 * MIB, "→ delete files on it, or use --journal FILE"),
        (("mkfs.btrfs", "-q", "-M"), 200 * MIB, "→ copy its files to another disk: a btrfs is not shrunk below 256MiB"),
    ],
    ids=["ext4", "btrfs"],
)
@pytest.mark.needs_tools("mkfs.btrfs")
def test_if_shrinking_makes_too_little_room_the_same_command_is_not_suggested_again(
    words: tuple[str, ...], size: int, helps: str, tmp_path: Path
) -> None:
    image = tmp_path / "disk.img"
    with image.open("xb") as file:
        file.truncate(size)
    run(*words, image)
    said = aligntool("plan", "partition", image, "--shrink", code=REFUSED)
    assert helps in said and "--shrink" not in said.split("→")[1]


@sample(2)
@pytest.mark.needs_root
@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("undo", [False, True])
def test_a_kill_at_any_moment_leaves_nothing_half_done(
    tmp_path: Path, loop: Callable[..., Path], sector: int, undo: bool
) -> None:
    """SIGKILL on a real block device; the kernel shows the partition afterwards, or none."""
    made, luck = NAMED["ext4"], random.Random(sector)
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(made.length)
    made.make(image)
    files = made.read(image)
    with image.open("r+b") as file:
        file.truncate(align_up(made.length, MIB) + FREE)
    if undo:
        aligntool("partition", image, "--yes", "--sector-size", str(sector))
    device = loop(image, sector_size=sector)
    words = ("partition", str(device), "--yes", *(("--undo",) if undo else ()))
    is_new = was_ended = False
    for _ in range(3):
        was_ended = not killed(device, luck.randrange(2000, 30_000), *words)
        if "in flight:" in aligntool("status", device):
            aligntool("resume", device, "--yes")
            was_ended = True
        is_new = (facts(device).get("TYPE") == "ext4") is undo
        if is_new:  # also when it was killed after the point from which that is true
            break
    place = (0, made.length) if undo else (MIB, made.length)
    if is_new:
        seen = facts(device, *(() if undo else place))
        assert seen["TYPE"] == "ext4"
        if was_ended:
            assert Path("/sys/block", device.name, f"{device.name}p1").exists() is not undo
        part = cut_out(device, tmp_path / "part", *place)
        made.check(part)
        assert made.read(part) == files


def test_lines_that_name_the_disk_are_shown_with_their_replacements(tmp_path: Path) -> None:
    (tmp_path / "fstab").write_text(
        "# /dev/sdz /old ext4 defaults 0 0\n/dev/sdz /srv ext4 defaults 0 2\nUUID=11-22 /mnt ext4 defaults 0 2\n"
    )
    (tmp_path / "crypttab").write_text("data /dev/sdz none luks\nother /dev/sdzz none luks\n")
    (tmp_path / "lvm").mkdir()
    (tmp_path / "lvm" / "lvm.conf").write_text('# "/dev/sdz"\n\tpreferred_names = [ "/dev/sdz" ]\n')
    whole = Layer("ext4", Extent(0, MIB), uuid="ab-cd")
    disk = Disk("sdz", "/dev/sdz", DiskKind.SCSI, 8 * MIB, IoLimits(), content=(whole,))
    fstab, crypttab, lvm = named_in_files(disk, undo=False, etc=tmp_path)
    assert fstab.endswith("`/dev/sdz /srv ext4 defaults 0 2` with: UUID=ab-cd /srv ext4 defaults 0 2")
    assert crypttab.endswith("with: data UUID=ab-cd none luks")
    assert "/dev/sdz1" in lvm
    part = Partition(1, Extent(MIB, MIB), name="my data", uuid="12-34", node="sdz1", content=(whole,))
    (tmp_path / "fstab").write_text(
        'PARTUUID="12-34" /srv ext4 defaults 0 2\n/dev/sdz1 /mnt ext4 defaults 0 2\n'
        "PARTLABEL=my\\040data /old ext4 defaults 0 2\nPARTLABEL=other /new ext4 defaults 0 2\n"
    )
    parted = Disk("sdz", "/dev/sdz", DiskKind.SCSI, 8 * MIB, IoLimits(), partitions=(part,))
    assert [line.partition("with: ")[2] for line in named_in_files(parted, undo=True, etc=tmp_path)] == [
        f"UUID=ab-cd {place} ext4 defaults 0 2" for place in ("/srv", "/mnt", "/old")
    ]


@pytest.mark.needs_tools("mke2fs", "sgdisk")
def test_data_where_an_old_gpt_had_its_backup_are_kept(tmp_path: Path) -> None:
    """The header in sector 1 is of the time when the disk was smaller."""
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(48 * MIB))
    run("sgdisk", "-n", "1:2048:+16M", image)
    header = image.read_bytes()[SECTOR : 2 * SECTOR]
    image.write_bytes(bytes(64 * MIB))
    run("mke2fs", "-q", "-F", "-t", "ext4", image, "16m")
    write_pieces(image, (SECTOR, header), (64 * MIB - 8 * SECTOR, b"data" * SECTOR))
    refused = aligntool("plan", "partition", image, code=REFUSED)
    assert "are in no partition and do not read as zero" in " ".join(refused.split())


@pytest.mark.needs_tools("mke2fs")
def test_free_blocks_are_moved_where_data_follow_the_whole_file_system(tmp_path: Path) -> None:
    """They may be a hash tree that covers free blocks, too."""
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(128 * MIB))
    run("mke2fs", "-q", "-F", "-t", "ext4", image, "16m")
    assert "everything" not in aligntool("plan", "partition", image)
    write_pieces(image, (40 * MIB, b"hash"))
    assert "everything: dm-verity hashes" in " ".join(aligntool("plan", "partition", image).split())
