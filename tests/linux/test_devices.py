"""Which devices are disks, their order, and their kinds."""

from pathlib import Path

import pytest

from aligntool.inventory import Disk, DiskKind
from aligntool.linux.devices import find_block, list_blocks
from aligntool.linux.look import look
from aligntool.linux.sysfs import Tree
from aligntool.units import GIB, MIB
from tests.linux.trees import MadeDisk, MadePartition, make_tree


def names(root: Path) -> list[str]:
    return [block.name for block in list_blocks(Tree(str(root)))]


def only(root: Path) -> Disk:
    (disk,) = look([], sysroot=str(root)).disks
    return disk


def test_disks_are_listed_and_other_block_devices_are_not(tmp_path: Path) -> None:
    disks = ["sda", "nvme0n1", "mmcblk0", "vda", "loop0", "md127", "dm-0", "bcache0", "dasda", "pmem0", "xvda"]
    others = ["sr0", "fd0", "zram0", "mmcblk0boot0", "mmcblk0boot1", "mmcblk0rpmb", "nvme0c0n1", "mtdblock0"]
    root = make_tree(tmp_path, [MadeDisk(name, GIB) for name in disks + others])
    assert sorted(names(root)) == sorted(disks)


def test_devices_that_are_not_in_use_are_not_listed(tmp_path: Path) -> None:
    root = make_tree(tmp_path, [MadeDisk(name, 0) for name in ("loop7", "nbd0", "ram0", "md0", "rbd0")])
    assert names(root) == []


def test_ram_disks_are_listed_only_if_they_have_content(tmp_path: Path) -> None:
    used = MadeDisk("ram1", 64 * MIB, [MadePartition(1, MIB, MIB)])
    assert names(make_tree(tmp_path, [MadeDisk("ram0", 64 * MIB), used])) == ["ram1"]


def test_a_card_reader_without_a_card_is_a_disk_of_zero_bytes(tmp_path: Path) -> None:
    disk = only(make_tree(tmp_path, [MadeDisk("sdb", 0, removable=True, usb=True)]))
    assert (disk.size, disk.removable, disk.kind) == (0, True, DiskKind.USB)


def test_hidden_devices_are_not_listed(tmp_path: Path) -> None:
    root = make_tree(tmp_path, [MadeDisk("sda", GIB, attributes={"hidden": "1"}), MadeDisk("sdb", GIB)])
    assert names(root) == ["sdb"]


def test_names_are_sorted_by_kind_and_number(tmp_path: Path) -> None:
    told = ["dm-10", "dm-2", "sdaa", "sdb", "nvme10n1", "nvme2n1", "loop0", "md0", "sdz", "nvme2n2"]
    root = make_tree(tmp_path, [MadeDisk(name, GIB) for name in told])
    expected = ["nvme2n1", "nvme2n2", "nvme10n1", "sdb", "sdz", "sdaa", "dm-2", "dm-10", "md0", "loop0"]
    assert names(root) == expected


def test_a_slash_in_a_name_is_an_exclamation_mark_in_sysfs(tmp_path: Path) -> None:
    root = make_tree(tmp_path, [MadeDisk("cciss!c0d0", GIB, [MadePartition(1, MIB, MIB)])])
    disk = only(root)
    assert (disk.name, disk.path, disk.partitions[0].node) == ("cciss/c0d0", "/dev/cciss/c0d0", "cciss/c0d0p1")
    assert look(["/dev/cciss/c0d0p1"], sysroot=str(root)).disks == (disk,)


@pytest.mark.parametrize("missing", [("sys/block",), ("sys/block", "sys/class/block")])
def test_a_tree_without_sys_block_is_searched_in_the_other_places(tmp_path: Path, missing: tuple[str, ...]) -> None:
    import shutil

    root = make_tree(tmp_path, [MadeDisk("sda", GIB, [MadePartition(1, MIB, MIB)]), MadeDisk("nvme0n1", GIB)])
    for folder in missing:
        shutil.rmtree(root / folder)
    assert names(root) == ["nvme0n1", "sda"]
    block = find_block(Tree(str(root)), "sda1")
    assert block is not None and block.name == "sda"


def test_a_tree_with_only_devices_is_searched(tmp_path: Path) -> None:
    import shutil

    root = make_tree(tmp_path, [MadeDisk("sda", GIB, [MadePartition(1, MIB, MIB)]), MadeDisk("nvme0n1", GIB)])
    for folder in ("sys/block", "sys/class", "sys/dev"):
        shutil.rmtree(root / folder)
    assert names(root) == ["nvme0n1", "sda"]


KINDS = [
    (MadeDisk("sda", GIB, vendor="ATA"), DiskKind.ATA),
    (MadeDisk("sda", GIB, vendor="ATA", usb=True), DiskKind.USB),
    (MadeDisk("sda", GIB, vendor="SEAGATE"), DiskKind.SCSI),
    (MadeDisk("sda", GIB, vendor="SEAGATE", udev={"ID_BUS": "ata"}), DiskKind.ATA),
    (MadeDisk("sda", GIB, vendor="Msft"), DiskKind.VIRTIO),
    (MadeDisk("sda", GIB, vendor="VMware,"), DiskKind.VIRTIO),
    (MadeDisk("sda", GIB, vendor="QEMU", pci=("0000:00:05.0", "virtio2")), DiskKind.VIRTIO),
    (MadeDisk("sda", GIB, vendor="SAMSUNG", pci=("0000:00:12.5", "1d84000.ufshc")), DiskKind.UFS),
    (MadeDisk("sata1", GIB, vendor="ATA"), DiskKind.ATA),  # a Synology NAS, MauriceNino/dashdot#658
    (MadeDisk("vda", GIB), DiskKind.VIRTIO),
    (MadeDisk("xvdb", GIB), DiskKind.VIRTIO),
    (MadeDisk("mmcblk0", GIB, device={"type": "SD"}), DiskKind.SD),
    (MadeDisk("mmcblk0", GIB, device={"type": "MMC"}), DiskKind.EMMC),
    (MadeDisk("nvme0n1", GIB), DiskKind.NVME),
    (MadeDisk("loop0", GIB), DiskKind.LOOP),
    (MadeDisk("md0", GIB), DiskKind.MD),
    (MadeDisk("md_d0", GIB), DiskKind.MD),
    (MadeDisk("md_data", GIB), DiskKind.MD),
    (MadeDisk("md_raid1.old", GIB), DiskKind.MD),
    (MadeDisk("dm-3", GIB), DiskKind.DM),
    (MadeDisk("bcache0", GIB), DiskKind.BCACHE),
    (MadeDisk("dasdb", GIB), DiskKind.DASD),
    (MadeDisk("nbd0", GIB), DiskKind.NETWORK),
    (MadeDisk("drbd1", GIB), DiskKind.NETWORK),
    (MadeDisk("pmem0", GIB), DiskKind.MEMORY),
    (MadeDisk("hda", GIB), DiskKind.ATA),
    (MadeDisk("strange7", GIB), DiskKind.OTHER),
]


@pytest.mark.parametrize(("disk", "kind"), KINDS)
def test_the_kind_of_a_disk_is_recognised(tmp_path: Path, disk: MadeDisk, kind: DiskKind) -> None:
    assert only(make_tree(tmp_path, [disk])).kind is kind


def test_a_ufs_disk_is_recognised_by_the_driver_of_its_host(tmp_path: Path) -> None:
    root = make_tree(tmp_path, [MadeDisk("sda", GIB, vendor="KIOXIA")])
    (host,) = root.glob("sys/devices/**/host0")
    (host / "scsi_host/host0").mkdir(parents=True)
    (host / "scsi_host/host0/proc_name").write_text("ufshcd\n")
    assert only(root).kind is DiskKind.UFS


class TestWhatADiskIsCalled:
    def test_the_complete_model_comes_from_udev_where_scsi_shows_16_characters(self, tmp_path: Path) -> None:
        udev = {"ID_BUS": "ata", "ID_MODEL_ENC": "WDC\\x20WD20EARS-00MVWB0\\x20\\x20", "ID_SERIAL_SHORT": "WD-1"}
        disk = only(make_tree(tmp_path, [MadeDisk("sda", GIB, vendor="ATA", model="WDC WD20EARS-00M", udev=udev)]))
        assert (disk.model, disk.serial) == ("WDC WD20EARS-00MVWB0", "WD-1")

    def test_the_model_of_another_device_does_not_replace_the_kernel_s(self, tmp_path: Path) -> None:
        udev = {"ID_BUS": "usb", "ID_MODEL_ENC": "Bridge"}
        disk = only(make_tree(tmp_path, [MadeDisk("sda", GIB, usb=True, model="Elements 25A2", udev=udev)]))
        assert disk.model == "Elements 25A2"

    def test_a_serial_number_in_the_vpd_page_is_found(self, tmp_path: Path) -> None:
        page = b"\0\x80\0\x08  ABC123"
        disk = only(make_tree(tmp_path, [MadeDisk("sda", GIB, vendor="SEAGATE", device={"vpd_pg80": page})]))
        assert disk.serial == "ABC123"

    @pytest.mark.parametrize("page", [b"", b"\0\x80", b"\0\x80\xff\xff", b"\0\x83\0\x04abcd", bytes(40)])
    def test_an_invalid_vpd_page_gives_no_serial_number(self, tmp_path: Path, page: bytes) -> None:
        disk = only(make_tree(tmp_path, [MadeDisk("sda", GIB, vendor="SEAGATE", device={"vpd_pg80": page})]))
        assert disk.serial is None

    def test_a_world_wide_name_has_the_same_notation_from_sysfs_and_from_udev(self, tmp_path: Path) -> None:
        told = MadeDisk("sda", GIB, udev={"ID_WWN": "0x50014ee2b0a1b2c3"})
        read = MadeDisk("sdb", GIB, device={"wwid": "naa.50014ee2b0a1b2c3"})
        disks = look([], sysroot=str(make_tree(tmp_path, [told, read]))).disks
        assert [disk.wwn for disk in disks] == ["0x50014ee2b0a1b2c3"] * 2

    def test_the_name_and_the_erase_sizes_of_a_card_are_read(self, tmp_path: Path) -> None:
        device = {"type": "SD", "erase_size": "512", "preferred_erase_size": "4194304"}
        disk = only(make_tree(tmp_path, [MadeDisk("mmcblk0", GIB, model="SD16G", serial="0x1", device=device)]))
        assert (disk.model, disk.serial) == ("SD16G", "0x1")
        assert (disk.erase_size, disk.preferred_erase_size) == (512, 4194304)


class TestStacks:
    def test_level_chunk_members_and_data_starts_of_an_array_are_read(self, tmp_path: Path) -> None:
        md = MadeDisk("md127", GIB, slaves=["sda1", "sdb1"], attributes={
            "md/level": "raid5", "md/chunk_size": "524288", "md/metadata_version": "1.2", "md/degraded": "1",
            "md/dev-sda1/offset": "264192", "md/dev-sdb1/offset": "2048",
        })  # fmt: skip
        members = [MadeDisk(name, GIB, [MadePartition(1, MIB, MIB, holders=["md127"])]) for name in ("sda", "sdb")]
        inventory = look([], sysroot=str(make_tree(tmp_path, [*members, md])))
        disk = inventory.disk("md127")
        assert disk is not None and disk.array is not None
        assert (disk.array.level, disk.array.chunk, disk.array.degraded) == ("raid5", 524288, 1)
        assert disk.array.members == disk.slaves == ("sda1", "sdb1")
        assert disk.array.member_data_offsets == (("sda1", 264192 * 512), ("sdb1", MIB))
        below = inventory.disk("sda")
        assert below is not None and below.partitions[0].holders == ("md127",)

    @pytest.mark.parametrize(
        ("name", "uuid", "mapping"),
        [
            ("vg--one-lv--2", "LVM-abc", "lvm vg-one/lv-2"),
            ("vg-lv-real", "LVM-abc-real", "lvm vg/lv (real)"),
            ("secret", "CRYPT-LUKS2-0123-secret", "crypt LUKS2 secret"),
            ("mpatha", "mpath-3600", "multipath mpatha"),
            ("mpatha-part1", "part1-mpath-3600", "partition 1 mpatha-part1"),
            ("isw_x", "DMRAID-isw_x", "raid isw_x"),
            ("anything", "", "dm anything"),
        ],
    )
    def test_the_program_that_made_a_mapping_is_recognised(
        self, tmp_path: Path, name: str, uuid: str, mapping: str
    ) -> None:
        disk = MadeDisk("dm-0", GIB, attributes={"dm/name": name, "dm/uuid": uuid})
        assert only(make_tree(tmp_path, [disk])).mapping == mapping

    def test_a_mapping_mounted_under_its_mapper_name_is_recognised(self, tmp_path: Path) -> None:
        disk = MadeDisk("dm-0", GIB, attributes={"dm/name": "vg-root"}, udev={"DM_NAME": "vg-root"})
        root = make_tree(tmp_path, [disk])
        (root / "proc/self/mountinfo").write_text("1 1 0:50 / / rw - btrfs /dev/mapper/vg-root rw\n")
        assert only(root).mounted_at == ("/",)


def test_the_numa_node_is_that_of_the_nearest_device_above(tmp_path: Path) -> None:
    pci = {"0000:00:01.0": {"numa_node": "1"}, "0000:01:00.0": {"numa_node": "0"}}
    disks = [
        MadeDisk("sda", GIB, pci=("0000:00:01.0", "0000:01:00.0")),
        MadeDisk("sdb", GIB, pci=("0000:00:01.0", "0000:02:00.0")),
        MadeDisk("sdc", GIB, pci=("0000:00:03.0",)),
        MadeDisk("loop0", GIB),
    ]
    found = look([], sysroot=str(make_tree(tmp_path, disks, pci=pci))).disks
    assert [disk.numa_node for disk in found] == [0, 1, None, None]
