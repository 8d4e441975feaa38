"""A snapshot gives the same Inventory as the machine, and contains no identities."""

import io
import lzma
import os
import re
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Inventory
from aligntool.linux import targets
from aligntool.linux.files import write_snapshot
from aligntool.linux.look import look
from aligntool.linux.snapshot import Entry, Masks, collect, mask_file
from aligntool.linux.sysfs import Tree
from aligntool.units import GIB, MIB
from tests.conftest import run
from tests.linux.test_ata import identify, vpd_page
from tests.linux.test_look import as_nobody
from tests.linux.trees import MadeDisk, MadePartition, make_tree

UUID = "11111111-2222-3333-4444-5555deadbeef"
SECRETS = [
    "WD-WMAZA1234567", "50014ee2b0a1b2c3", "eui.0025385b71b0f3a1", "deadbeef", "my-label", "Alices", "S3Z8NB0K",
    "alice", "nqn.2014.08.org:secret", "vg--work", "AB:CD:EF:01:02:03", "backup.img", "dark-web", "1a2b3c4d",
]  # fmt: skip


def machine(folder: Path) -> Path:
    """Return a machine with identities in every place that can hold one."""
    udev = {
        "ID_BUS": "ata", "ID_MODEL_ENC": "WDC\\x20WD20EARS-00MVWB0", "ID_SERIAL_SHORT": "WD-WMAZA1234567",
        "ID_SERIAL": "WDC_WD20EARS_WD-WMAZA1234567", "ID_WWN": "0x50014ee2b0a1b2c3", "ID_PART_TABLE_TYPE": "dos",
        "ID_PART_TABLE_UUID": "1a2b3c4d", "SOMETHING_NEW": "Alices disk",
    }  # fmt: skip
    part = {
        "ID_FS_TYPE": "ext4", "ID_FS_UUID": UUID, "ID_FS_LABEL": "my-label", "ID_PART_ENTRY_UUID": "1a2b3c4d-01",
        "ID_PART_ENTRY_TYPE": "0x83", "ID_PART_ENTRY_NAME": "Alices\\x20data", "ID_FS_LABEL_ENC": "my-label",
    }  # fmt: skip
    nvme = {"subsysnqn": "nqn.2014.08.org:secret", "novelty": "at AB:CD:EF:01:02:03", "wwid": "eui.0025385b71b0f3a1"}
    disks = [
        MadeDisk(
            "sda", 8 * GIB, [MadePartition(1, 32256, GIB, udev=part, mounted_at=["/home/alice/stuff", "/home"])],
            vendor="ATA", model="WDC WD20EARS-00M", udev=udev, links=["disk/by-id/ata-WD-WMAZA1234567"],
            device={"vpd_pg89": vpd_page(identify(w106=0x6003)), "wwid": "naa.50014ee2b0a1b2c3", "queue_depth": "32"},
        ),
        MadeDisk("nvme0n1", GIB, serial="S3Z8NB0K", model="PRO", device={"sqsize": "1023"}, attributes=nvme),
        MadeDisk("dm-0", GIB, attributes={"dm/name": "vg--work-lv", "dm/uuid": f"LVM-{UUID}"}, slaves=["sda1"],
                 udev={"DM_NAME": "vg--work-lv"}),
        MadeDisk("loop0", MIB, attributes={"loop/backing_file": "/home/alice/backup.img"}),
        MadeDisk("md0", MIB, attributes={"md/level": "raid1", "md/uuid": UUID, "md/metadata_version": "1.2"}),
    ]  # fmt: skip
    root = make_tree(folder, disks, pci={"0000:00:1f.2": {"numa_node": "0"}})
    with (root / "proc/self/mountinfo").open("a") as mounts:
        mounts.write("9 1 0:50 / /srv/dark-web rw - btrfs /dev/mapper/vg--work-lv rw\n")
        mounts.write("10 1 0:51 /x /net rw - nfs4 alice.example.org:/dark-web rw\n")
    return root


def captured(root: Path, *, serials: bool) -> list[Entry]:
    """Make `collect` read a captured machine as if it ran on it."""
    return list(collect(Tree(str(root)), serials=serials))


def test_a_snapshot_with_serials_gives_the_same_inventory(tmp_path: Path) -> None:
    root, archive = machine(tmp_path / "tree"), tmp_path / "all.tar.xz"
    write_snapshot(str(archive), captured(root, serials=True))
    assert look([], sysroot=str(archive)) == look([], sysroot=str(root))


def test_a_snapshot_without_serials_gives_the_same_numbers(tmp_path: Path) -> None:
    root, archive = machine(tmp_path / "tree"), tmp_path / "masked.tar.gz"
    write_snapshot(str(archive), captured(root, serials=False))
    masked, plain = look([], sysroot=str(archive)), look([], sysroot=str(root))
    assert [blurred(disk) for disk in masked.disks] == [blurred(disk) for disk in plain.disks]
    assert masked != plain


def blurred(disk: Disk) -> Disk:
    """Drop what a mask changes; the number of mounts is kept."""
    parts = tuple(
        replace(part, name=None, uuid=None, mounted_at=("x",) * len(part.mounted_at)) for part in disk.partitions
    )
    table = replace(disk.table, disk_id=None) if disk.table else None
    blanks: dict[str, object] = {
        "serial": None,
        "wwn": None,
        "mapping": None,
        "mounted_at": ("x",) * len(disk.mounted_at),
        "stands_on": ("x",) * len(disk.stands_on),
    }
    blanks |= {"array": replace(disk.array, uuid=None, name=None, links=())} if disk.array else {}
    return replace(disk, partitions=parts, table=table, **blanks)  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_identity_is_left_in_a_snapshot(tmp_path: Path, secret: str) -> None:
    root = machine(tmp_path)
    plain = captured(root, serials=True)
    needle = secret.encode()
    swapped = b"".join(needle[at + 1 : at + 2] + needle[at : at + 1] for at in range(0, len(needle), 2))
    assert any(needle in entry.content for entry in plain), "the secret was never there"
    for entry in captured(root, serials=False):
        assert secret not in entry.path
        assert needle not in entry.content, entry.path
        assert swapped not in entry.content, entry.path


def test_the_facts_that_a_verdict_requires_are_kept_in_a_snapshot(tmp_path: Path) -> None:
    archive = tmp_path / "masked.tar.xz"
    write_snapshot(str(archive), captured(machine(tmp_path / "tree"), serials=False))
    inventory = look([], sysroot=str(archive))
    sda, mapping = inventory.disk("sda"), inventory.disk("dm-0")
    assert sda is not None and mapping is not None
    assert sda.model == "WDC WD20EARS-00MVWB0"
    assert sda.ata is not None and sda.ata.physical_sector_size == 4096
    (part,) = sda.partitions
    assert (part.extent.start, part.type_code, part.content_hint) == (32256, "0x83", "ext4")
    assert part.mounted_at[1] == "/home" and part.mounted_at[0].startswith("/home/masked/")
    assert mapping.mapping is not None and mapping.mapping.startswith("lvm ")
    assert mapping.mounted_at != ()  # its masked name is the same in the mounts
    assert sda.serial is not None and sda.wwn is not None


@pytest.mark.needs_root
def test_the_snapshot_of_this_machine_equals_a_read_without_root(tmp_path: Path) -> None:
    archive = tmp_path / "here.tar.xz"
    write_snapshot(str(archive), collect(Tree(""), serials=True))
    here, there = told(as_nobody(lambda: look([]))), told(look([], sysroot=str(archive)))
    assert here and here == there


def told(inventory: Inventory) -> dict[str, Disk]:
    """Drop the reasons why something was not read, and Identify and health, which root's snapshot has."""
    disks = [disk for disk in inventory.disks if disk.kind is not DiskKind.LOOP]  # others belong to other tests
    return {disk.name: replace(disk, unseen=(), nvme=None, failing=None, health=None) for disk in disks}


class TestMasks:
    def test_the_same_value_gets_the_same_placeholder(self) -> None:
        masks = Masks()
        assert masks.value("S3Z8NB0K") == masks.value("S3Z8NB0K") != masks.value("S3Z8NB0L")
        assert masks.value(" WD-1234 \n").strip() == masks.value("WD-1234")

    @pytest.mark.parametrize("value", [UUID, "0x50014ee2b0a1b2c3", "naa.50014ee2b0a1b2c3", "1a2b3c4d-01", "ABCD-0123"])
    def test_the_placeholder_of_a_number_has_the_same_notation(self, value: str) -> None:
        masked = Masks().value(value)
        assert masked != value
        assert re.sub("[0-9a-f]", "0", masked) == re.sub("[0-9a-fA-F]", "0", value)

    def test_one_uuid_has_one_placeholder_in_all_notations(self) -> None:
        masks, digits = Masks(), UUID.replace("-", "")
        colons = ":".join(digits[at : at + 8] for at in range(0, 32, 8))
        masked = {masks.value(each).replace("-", "").replace(":", "") for each in (UUID, digits, colons, UUID.upper())}
        assert len(masked) == 1 and masked != {digits}

    def test_placeholders_are_unique_among_many_values(self) -> None:
        masks = Masks()
        secrets = [
            *(f"disk {number}" for number in range(300)),
            *(f"{number:08x}" for number in range(1, 300)),
            *"abcdef",
        ]
        assert len({masks.value(each) for each in secrets}) == len(secrets)

    def test_zeros_are_not_masked(self) -> None:
        assert Masks().value("0000000000000000") == "0000000000000000"

    def test_a_masked_lvm_name_is_still_a_valid_lvm_name(self) -> None:
        masked = Masks().name("vg--one-root")
        assert masked.replace("--", "").count("-") == 1

    def test_only_serial_nguid_and_vendor_bytes_of_identify_pages_are_masked(self) -> None:
        page = bytes(range(1, 256)) * 16 + bytes(16)
        masks = Masks()
        controller = mask_file(masks, "/aligntool/identify/nvme0n1.ctrl", page) or b""
        namespace = mask_file(masks, "/aligntool/identify/nvme0n1.ns", page) or b""
        assert len(controller) == len(namespace) == 4096
        assert controller[24:112] == page[24:112] and controller[4:24] != page[4:24]
        assert controller[128:768] == page[128:768] and not any(controller[3072:])
        assert namespace[:104] == page[:104] and not any(namespace[104:128])
        assert namespace[128:384] == page[128:384]

    def test_the_ata_identify_page_loses_its_world_wide_name_and_keeps_its_geometry(self) -> None:
        page = vpd_page(identify(w106=0x6003, w108=0x5001, w109=0x4EE2, w110=0xB0A1, w111=0xB2C3, w209=0x4001))
        masked = mask_file(Masks(), "/sys/devices/x/vpd_pg89", page) or b""
        words = struct.unpack("<256H", masked[60:572])
        assert words[10:20] == (0,) * 10 and words[108:112] == (0,) * 4
        assert (words[106], words[209], words[75]) == (0x6003, 0x4001, 31)

    @pytest.mark.parametrize("name", ["x.ctrl", "x.ns", "x.hmb"])
    def test_pages_of_any_length_are_masked(self, name: str) -> None:
        for length in (0, 1, 5, 23, 100, 5000):
            mask_file(Masks(), f"/aligntool/identify/{name}", b"\xff" * length)


class TestArchive:
    def test_an_existing_file_is_replaced_only_on_request(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tar.xz"
        write_snapshot(str(path), [])
        before = path.read_bytes()
        with pytest.raises(Refused, match="already exists"):
            write_snapshot(str(path), [])
        assert path.read_bytes() == before
        write_snapshot(str(path), [Entry("sys/block", "directory")], overwrite=True)
        with tarfile.open(path) as tar:
            assert tar.getnames() == ["sys/block"]

    def test_a_file_name_without_a_known_format_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused) as refusal:
            write_snapshot(str(tmp_path / "snapshot.zip"), [])
        assert refusal.value.hint.endswith("snapshot.zip.tar.xz")

    def test_a_path_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="cannot be written"):
            write_snapshot(str(tmp_path / "missing/a.tar"), [])

    def test_an_interrupted_collection_leaves_no_file(self, tmp_path: Path) -> None:
        def entries() -> Callable[[], None]:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_snapshot(str(tmp_path / "a.tar.xz"), (entries() for _ in range(1)))  # type: ignore[misc]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.needs_tools("tar")
    @pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz"])
    def test_tar_reads_a_written_snapshot(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"a.{suffix}"
        entries = [
            Entry("sys/devices/a", "directory"), Entry("sys/devices/a/size", "file", b"8\n"),
            Entry("sys/block/a", "symlink", b"../devices/a"),
        ]  # fmt: skip
        write_snapshot(str(path), entries)
        (tmp_path / "out").mkdir()
        run("tar", "-xf", path, "-C", tmp_path / "out")
        assert (tmp_path / "out/sys/block/a/size").read_text() == "8\n"


def archive_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:xz") as tar:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content))
    return path


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"x"
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, content if kind == tarfile.REGTYPE else b""


class TestHostileArchives:
    GOOD = member("sys/block/keep")

    @pytest.mark.parametrize("name", ["../out", "sys/../../out", "/etc/out", "sys/block/../../../out"])
    def test_an_archive_with_a_name_that_leads_outside_is_refused(self, tmp_path: Path, name: str) -> None:
        path = archive_of(tmp_path / "a.tar.xz", self.GOOD, member(name))
        with pytest.raises(Refused, match="leads out"):
            look([], sysroot=str(path))
        assert not (tmp_path / "out").exists() and not (tmp_path.parent / "out").exists()

    def test_a_file_behind_a_link_of_the_archive_is_not_written_through_it(self, tmp_path: Path) -> None:
        link = member("sys/block", tarfile.SYMTYPE, str(tmp_path))
        path = archive_of(tmp_path / "a.tar.xz", member("sys/devices/x"), link, member("sys/block/out"))
        with pytest.raises(Refused, match="behind a symbolic link"):
            look([], sysroot=str(path))
        assert not (tmp_path / "out").exists()

    def test_an_archive_that_overwrites_a_link_is_refused(self, tmp_path: Path) -> None:
        link = member("sys/x", tarfile.SYMTYPE, str(tmp_path / "out"))
        with pytest.raises(Refused):
            look([], sysroot=str(archive_of(tmp_path / "a.tar.xz", link, member("sys/x"))))
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE])
    def test_devices_pipes_and_hard_links_are_skipped(self, tmp_path: Path, kind: bytes) -> None:
        odd = member("sys/devices/odd", kind, "/etc/passwd")
        path = archive_of(tmp_path / "a.tar.xz", self.GOOD, odd)
        assert isinstance(look([], sysroot=str(path)), Inventory)

    def test_a_decompression_bomb_is_refused_before_it_is_unpacked(self, tmp_path: Path) -> None:
        path = tmp_path / "bomb.tar.xz"
        info = tarfile.TarInfo("sys/block/huge")
        info.size = 1 << 40
        with lzma.open(path, "wb", preset=0) as file:
            file.write(info.tobuf())
            for _ in range(20):
                file.write(bytes(MIB))
        with pytest.raises(Refused, match="than any captured machine"):
            look([], sysroot=str(path))

    def test_too_many_small_files_are_refused_as_well(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "MOST_BYTES", 100_000)
        members = [member(f"sys/block/{number}", content=bytes(1000)) for number in range(100)]
        with pytest.raises(Refused, match="than any captured machine"):
            look([], sysroot=str(archive_of(tmp_path / "a.tar.xz", *members)))

    def test_files_are_counted_for_the_size_of_the_archive(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(targets, "MEMBERS_PER_MIB", 100)
        members = [member(f"sys/block/{number}") for number in range(100)]
        assert isinstance(look([], sysroot=str(archive_of(tmp_path / "a.tar.xz", *members))), Inventory)
        with pytest.raises(Refused, match="more than 100 files") as refused:
            look([], sysroot=str(archive_of(tmp_path / "b.tar.xz", *members, member("sys/x"))))
        assert "with tar" in refused.value.hint

    @pytest.mark.parametrize("content", [b"", b"no archive", b"\xfd7zXZ\0broken", b"\x1f\x8bbroken", bytes(10240)])
    def test_a_file_that_is_not_an_archive_is_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "a.tar.xz"
        path.write_bytes(content)
        with pytest.raises(Refused):
            look([], sysroot=str(path))

    def test_a_truncated_archive_is_refused(self, tmp_path: Path) -> None:
        path = archive_of(
            tmp_path / "a.tar.xz", *(member(f"sys/block/{n}", content=os.urandom(500)) for n in range(50))
        )
        path.write_bytes(path.read_bytes()[:-5000])
        with pytest.raises(Refused, match="cannot be unpacked"):
            look([], sysroot=str(path))

    @pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
    def test_a_damaged_file_in_a_compressed_archive_is_refused(self, tmp_path: Path, mode: Literal["w:gz"]) -> None:
        """A tar archive has no checksum of the content of files: the one of gzip and xz is at their end."""
        path, content = tmp_path / "a.tar", os.urandom(20_000)
        with tarfile.open(path, mode) as tar:
            for info, data in (self.GOOD, member("sys/block/much", content=content)):
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        assert isinstance(look([], sysroot=str(path)), Inventory)
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(Refused, match="cannot be unpacked"):
            look([], sysroot=str(path))

    @pytest.mark.parametrize("damage", ["checksum of a header", "cut before a header"])
    def test_an_archive_whose_members_cannot_be_found_is_refused(self, tmp_path: Path, damage: str) -> None:
        path = tmp_path / "a.tar"
        blocks = lzma.decompress(archive_of(tmp_path / "a.tar.xz", self.GOOD, member("sys/block/last")).read_bytes())
        header = blocks.index(b"sys/block/last")
        path.write_bytes(blocks[:header] if damage.startswith("cut") else blocks.replace(b"last", b"lost"))
        with pytest.raises(Refused, match="not a complete tar archive"):
            look([], sysroot=str(path))

    @pytest.mark.parametrize(
        ("names", "why"), [(["a", "b"], "holds several captured machines: a, b"), ([], "is not a snapshot")]
    )
    def test_a_refusal_names_the_archive_and_not_the_folder_where_it_was_unpacked(
        self, tmp_path: Path, names: list[str], why: str
    ) -> None:
        path = archive_of(tmp_path / "a.tar.xz", member("readme"), *(member(f"{name}/sys/block/x") for name in names))
        with pytest.raises(Refused, match=f"^{path} {why}") as refusal:
            look([], sysroot=str(path))
        assert "--sysroot" not in refusal.value.hint
