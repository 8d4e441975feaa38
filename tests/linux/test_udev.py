"""udev's database and the mount table, in the formats of a capture."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.linux.sysfs import SWAP, Tree, UdevDatabase, parse_dump, parse_record, read_mounts, unescape_udev
from tests.conftest import find_tool, run

RECORD = b"""S:disk/by-id/ata-WDC_WD20EARS_1
S:disk/by-path/pci-0000:00:1f.2-ata-1
I:1234567
E:ID_MODEL=WDC_WD20EARS
E:ID_MODEL_ENC=WDC\\x20WD20EARS-00MVWB0\\x20\\x20
E:ID_PART_ENTRY_NAME=r\\xc3\\xa9sum\\xc3\\xa9\\x2fx
E:ID_PART_ENTRY_OFFSET=63
E:EQUALS=a=b=c
E:BROKEN
G:systemd
"""


def test_a_record_has_properties_and_links() -> None:
    record = parse_record(RECORD)
    assert record.get("ID_MODEL") == "WDC_WD20EARS"
    assert record.decoded("ID_MODEL_ENC") == "WDC WD20EARS-00MVWB0"
    assert record.decoded("ID_PART_ENTRY_NAME") == "résumé/x"
    assert record.number("ID_PART_ENTRY_OFFSET") == 63
    assert record.get("EQUALS") == "a=b=c"
    assert record.get("BROKEN") is None
    assert record.links == ("disk/by-id/ata-WDC_WD20EARS_1", "disk/by-path/pci-0000:00:1f.2-ata-1")


def test_the_format_that_lsblk_sysroot_reads_is_read() -> None:
    record = parse_dump(b"DEVLINKS=/dev/disk/by-id/x /dev/y\nID_FS_TYPE=ext4\nOWNER=root\n")
    assert record.get("ID_FS_TYPE") == "ext4"
    assert record.links == ("disk/by-id/x", "y")


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [("", ""), ("a\\x20b", "a b"), ("\\x2", "\\x2"), ("\\xzz", "\\xzz"), ("\\x5cx20", "\\x20"), ("é\\x20", "é ")],
)
def test_escapes_are_decoded(escaped: str, plain: str) -> None:
    assert unescape_udev(escaped) == plain


@given(st.text(alphabet="\\x20fé", max_size=20))
def test_any_text_can_be_unescaped(text: str) -> None:
    unescape_udev(text).encode()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_a_record(content: bytes) -> None:
    for record in (parse_record(content), parse_dump(content)):
        assert all("\n" not in key for key in record.properties)


def test_the_database_of_a_tree_is_found_by_number_and_by_name(tmp_path: Path) -> None:
    (tmp_path / "run/udev/data").mkdir(parents=True)
    (tmp_path / "run/udev/data/b8:1").write_text("E:ID_FS_TYPE=xfs\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/sdb1").write_text("ID_FS_TYPE=vfat\n")
    database = UdevDatabase(Tree(str(tmp_path)))
    assert database.record("8:1", "sda1").get("ID_FS_TYPE") == "xfs"
    assert database.record("8:17", "sdb1").get("ID_FS_TYPE") == "vfat"
    assert database.record(None, "sdc").properties == {}


def test_the_udev_files_of_this_machine_are_not_read_below_dev() -> None:
    assert not UdevDatabase(Tree("")).has_files


def test_mount_points_are_found_by_number_by_node_and_with_their_spaces(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        "21 1 8:1 / / rw - ext4 /dev/root rw\n"
        "22 21 8:1 /sub /mnt/my\\040disk rw,x shared:1 master:2 - ext4 /dev/root rw\n"
        "23 21 0:40 /@home /home rw shared:3 - btrfs /dev/sdb2 rw,subvol=/@home\n"
        "24 21 0:41 / /net rw - nfs4 server:/x rw\n"
        "half a line\n"
    )
    (tmp_path / "proc/swaps").write_text(
        "Filename\tType\tSize\tUsed\tPriority\n/dev/sdb3 partition 1 0 -2\n/swap.img file 1 0 -3\n"
    )
    mounts = read_mounts(Tree(str(tmp_path)))
    assert mounts.of("8:1", "/dev/sda1") == ("/", "/mnt/my disk")
    assert mounts.of("8:18", "/dev/sdb2") == ("/home",)
    assert mounts.of("8:19", "/dev/sdb3") == (SWAP,)
    assert mounts.of("8:20") == ()


def test_every_device_of_a_mounted_btrfs_is_in_use(tmp_path: Path) -> None:
    """The mount table names one of them; the kernel's folder of the file system links all."""
    for one, names in (("aaaa", ("sda1", "dm-3", "cciss!c0d0p1")), ("bbbb", ("sdc1",))):
        (tmp_path / "sys/fs/btrfs" / one / "devices").mkdir(parents=True)
        for name in names:
            (tmp_path / "sys/fs/btrfs" / one / "devices" / name).touch()
    (tmp_path / "sys/block/dm-3/dm").mkdir(parents=True)
    (tmp_path / "sys/block/dm-3/dm/name").write_text("luks-1\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    rows = ("23 21 0:40 / /srv rw - btrfs /dev/mapper/luks-1 rw", "24 21 0:41 / /one rw - btrfs /dev/sdc1 rw")
    (tmp_path / "proc/self/mountinfo").write_text("\n".join(rows))
    mounts = read_mounts(Tree(str(tmp_path)))
    for node in ("/dev/sda1", "/dev/dm-3", "/dev/mapper/luks-1", "/dev/cciss/c0d0p1"):
        assert mounts.of(None, node) == ("/srv",), node
    assert mounts.of(None, "/dev/sdc1") == ("/one",)


@pytest.mark.needs_tools("findmnt")
def test_the_mounts_of_this_machine_are_those_that_findmnt_shows() -> None:
    rows = [line.split(None, 1) for line in run("findmnt", "-rno", "MAJ:MIN,TARGET").splitlines()]
    mounts = read_mounts(Tree(""))
    for number, target in rows:
        assert unescape_udev(target) in mounts.of(number)


@pytest.mark.needs_tools("systemd-escape")
def test_the_escapes_of_systemd_escape_are_decoded() -> None:
    """systemd-escape writes the same \\x.. as udev for anything but letters, digits, ":", "_" and "."."""
    text = "Büro 3! {x}"
    escaped = subprocess.run(
        [shutil.which("systemd-escape") or find_tool("systemd-escape") or "", text],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert escaped != text
    assert unescape_udev(escaped) == text
