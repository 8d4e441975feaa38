"""Partition tables of real machines, from public reports, against answers written down by hand.

The expected answer follows from the kernel's rule (block/blk-settings.c: a start is aligned if it is a multiple of the
granularity, here the 4096 bytes that are assumed for image files) or from the content: a partition that is never
written to does not matter wherever it starts. A disk that works as it should must not give exit code 1.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Code, Report, Severity, Verdict
from aligntool.contents.layers import read_contents
from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits
from aligntool.linux.file_reader import FileReader
from aligntool.linux.look import look
from aligntool.linux.partitions import KernelPartition, merge_with_kernel
from aligntool.linux.sysfs import NOTHING
from aligntool.units import Extent
from tests.conftest import run
from tests.formats.images import mbr, patch
from tests.linux.trees import MadeDisk, make_tree

Sparse = Callable[..., Path]
ESP = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
BASIC = "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"
LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
ON, OFF, UNKNOWN, MOOT = "on", "off", "unknown", "does not matter"
CURTIN = "https://github.com/canonical/curtin/blob/main/tests/data/"


@dataclass(frozen=True)
class Case:
    story: str
    source: str
    sectors: int
    table: tuple[tuple[str, int, int], ...]  # type, start and size in sectors of 512 bytes; numbered from 1
    answers: tuple[str, ...]
    iso_blocks: int = 0  # of 2048 bytes: an ISO 9660 image of this size was written over the medium
    gpt: bool = False


CASES = [
    Case("a stick with an Ubuntu 20.04 installer and its writable partition (isohybrid)",
         CURTIN + "probert_storage_bogus_wwn.json", 65273856,
         (("0x00", 0, 1859584), ("0xef", 21052, 7936), ("0x83", 1859584, 63394304)),
         (MOOT, MOOT, ON), iso_blocks=464896),
    Case("the same, where the image itself cannot be seen",
         CURTIN + "probert_storage_bogus_wwn.json", 65273856,
         (("0x00", 0, 1859584), ("0xef", 21052, 7936), ("0x83", 1859584, 63394304)), (MOOT, MOOT, ON)),
    Case("a stick with an Ubuntu 24.04 installer (xorriso, GPT, an appended EFI system partition)",
         CURTIN + "probert_storage_ldm.json", 31457280,
         ((BASIC, 64, 11931820), (ESP, 11931884, 10140), (BASIC, 11942024, 600), (LINUX, 11943936, 19460096)),
         (MOOT, MOOT, MOOT, ON), iso_blocks=2985672, gpt=True),
    Case("the same, where the image's own size leaves out what was appended to it",
         CURTIN + "probert_storage_ldm.json", 31457280,
         ((BASIC, 64, 11931820), (ESP, 11931884, 10140), (BASIC, 11942024, 600), (LINUX, 11943936, 19460096)),
         (MOOT, MOOT, MOOT, ON), iso_blocks=2982971, gpt=True),
    Case("the traces of such an image below a newer table excuse nothing",
         "https://github.com/calamares/calamares/issues/1008", 31457280,
         (("0x83", 2049, 20971520), ("0x82", 20973569, 2097152)), (OFF, OFF), iso_blocks=2985672),
    Case("a Windows dynamic disk: an entry that fills the gap, then the volumes",
         CURTIN + "probert_storage_ldm.json", 1953525168,
         (("0x42", 63, 1985), ("0x42", 2048, 1124352), ("0x42", 1126400, 273600512), ("0x42", 274726912, 1678796208)),
         (MOOT, ON, ON, ON)),
    Case("a Windows dynamic disk in one entry: its volumes begin at 2048, which the table does not tell",
         "https://github.com/canonical/subiquity/blob/main/examples/machines/ms-win-dyn-disk.json", 41943040,
         (("0x42", 63, 41940929),), (UNKNOWN,)),
    Case("a Chromebook: partitions of one sector keep numbers free",
         "https://github.com/SolidEva/PrawnOS/issues/68", 30785536,
         ((BASIC, 8671232, 22073344), ("FE3A2A5D-4F32-41A7-B725-ACCC3285A309", 20480, 32768),
          ("3CB8E202-3B7E-47DD-8A3C-7FF2A13CFCEC", 4476928, 4194304),
          ("FE3A2A5D-4F32-41A7-B725-ACCC3285A309", 53248, 32768),
          ("3CB8E202-3B7E-47DD-8A3C-7FF2A13CFCEC", 282624, 4194304),
          ("FE3A2A5D-4F32-41A7-B725-ACCC3285A309", 16448, 1), ("3CB8E202-3B7E-47DD-8A3C-7FF2A13CFCEC", 16449, 1),
          (BASIC, 86016, 32768), ("2E0A753D-9E48-43B0-8337-B15192CB1B5E", 16450, 1),
          ("2E0A753D-9E48-43B0-8337-B15192CB1B5E", 16451, 1)),
         (ON, ON, ON, ON, ON, MOOT, MOOT, ON, MOOT, MOOT), gpt=True),
    Case("a BIOS boot partition in the first sectors of a GPT, as OpenZFS's guide makes it",
         "https://github.com/openzfs/openzfs-docs/issues/564", 1953525168,
         (("21686148-6449-6E6F-744E-656564454649", 34, 2014), (LINUX, 2048, 1048576)), (MOOT, ON), gpt=True),
    Case("ZFS on a whole disk: parts 1 and 9 (here 2)", "https://github.com/openzfs/zfs/issues/3478", 976707632,
         (("6A898CC3-1DD2-11B2-99A6-080020736631", 2048, 976689152),
          ("6A945A3B-1DD2-11B2-99A6-080020736631", 976691200, 16384)), (ON, MOOT), gpt=True),
    Case("a Synology NAS (the third is numbered 5 there)",
         "https://tech.webit.nu/inner-secrets-of-synology-hybrid-raid-part-1", 7814037168,
         (("0x83", 2048, 4980480), ("0x82", 4982528, 4194304)), (ON, ON)),
    Case("an installer that was off by one", "https://github.com/calamares/calamares/issues/1110", 1953525168,
         (("0x83", 2048, 1917388049), ("0x82", 1917390097, 36129968)), (ON, OFF)),
    Case("one NTFS partition from sector 40", "https://github.com/util-linux/util-linux/issues/1035", 7814037168,
         ((BASIC, 40, 7814037088),), (ON,), gpt=True),
    Case("the bogus optimal I/O size of a USB bridge", "https://github.com/util-linux/util-linux/issues/1221",
         500118192, ((LINUX, 65535, 400000000),), (OFF,), gpt=True),
    Case("a vendor's EFI system partition in the first usable sector",
         "https://github.com/canonical/checkbox (udevadm_data/TOSHIBA_NVME.txt)", 500118192,
         ((ESP, 34, 488248), (BASIC, 488282, 10000000)), (OFF, OFF), gpt=True),
]  # fmt: skip


def write(case: Case, path: Path) -> None:
    if case.gpt:
        lines = "".join(f"start={start}, size={size}, type={kind}\n" for kind, start, size in case.table)
        run("sfdisk", "-q", path, stdin=f"label: gpt\nunit: sectors\nfirst-lba: 34\n{lines}")
    else:
        patch(path, 0, mbr(*((int(kind, 16), start, size, 0) for kind, start, size in case.table)))
    if case.iso_blocks:
        patch(path, 32768, volume_descriptors(case.iso_blocks))
        if case.gpt:  # a second set makes partition 1 mountable
            patch(path, 65536, volume_descriptors(case.table[0][2] // 4))


def volume_descriptors(blocks: int) -> bytes:
    """ECMA-119: a primary volume descriptor (8.4) and the terminator (8.3)."""
    primary = bytearray(b"\x01CD001\x01".ljust(2048, b"\0"))
    struct.pack_into("<I", primary, 80, blocks)
    struct.pack_into(">I", primary, 84, blocks)
    struct.pack_into("<H", primary, 128, 2048)
    struct.pack_into(">H", primary, 130, 2048)
    return bytes(primary) + b"\xffCD001\x01".ljust(2048, b"\0")


def judged(path: Path) -> Report:
    return audit(look((str(path),)), {})


def in_short(verdict: Verdict) -> str:
    if not verdict.matters:
        return MOOT
    return {Answer.ON: ON, Answer.OFF: OFF, Answer.UNKNOWN: UNKNOWN}[verdict.answer]


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_a_real_disk_gets_the_expected_answers(case: Case, sparse: Sparse) -> None:
    path = sparse(case.sectors * 512)
    write(case, path)
    report = judged(path)
    verdicts = report.judged[0].verdicts
    assert [verdict.start for verdict in verdicts] == [start * 512 for _, start, _ in case.table]
    assert [in_short(verdict) for verdict in verdicts] == list(case.answers)
    off = [number for number, answer in enumerate(case.answers, 1) if answer == OFF]
    assert [found.partition for found in report.findings if found.severity is Severity.ERROR] == off


@pytest.mark.needs_tools("sfdisk", "blkid")
def test_blkid_also_recognises_the_image_on_the_stick(sparse: Sparse) -> None:
    path = sparse(CASES[0].sectors * 512)
    write(CASES[0], path)
    assert "iso9660" in run("blkid", "-p", "-o", "value", "-s", "TYPE", path)


def test_the_size_or_the_start_of_a_neighbour_is_reported_as_the_cause(sparse: Sparse) -> None:
    """Synology: partition 1 starts on a MiB and is not a whole number of MiB long."""
    path = sparse(7814037168 * 512)
    patch(path, 0, mbr((0x83, 2048, 4980480, 0), (0x82, 4982528, 4194304, 0), (0x83, 9176832, 4194304, 0)))
    report = judged(path)
    causes = {found.partition: found.cause for found in report.findings if found.code is Code.OFF_GRAIN}
    assert causes == {
        2: "it begins where partition 1 ends; the size of that partition is not a multiple of 1MiB",
        3: "it begins where partition 2 ends, and is off by the same amount",
    }


def test_the_kernels_volumes_of_a_dynamic_disk_are_judged_instead_of_its_table(sparse: Sparse) -> None:
    """subiquity, examples/machines/ms-win-dyn-disk.json: the kernel's partitions for one entry of type 0x42."""
    path = sparse(41943040 * 512)
    patch(path, 0, mbr((0x42, 63, 41940929, 0)))
    with path.open("rb") as file:
        seen = read_contents(FileReader(file.fileno(), 41943040 * 512), sector_size=512)
    volumes = [Extent(2048 * 512, 20480000 * 512), Extent(20482048 * 512, 21458944 * 512)]
    kernel = [KernelPartition(number, extent, f"sda{number}", 0, 0, (), (), NOTHING)
              for number, extent in enumerate(volumes, 1)]  # fmt: skip
    table, partitions = merge_with_kernel(seen, kernel, NOTHING, 512)
    disk = Disk("sda", "/dev/sda", DiskKind.ATA, 41943040 * 512, IoLimits(512, 4096, 4096, 0, 0), table=table,
                table_read=True, partitions=partitions, kernel_partitions=tuple(enumerate(volumes, 1)))  # fmt: skip
    report = audit(Inventory((disk,)), {})
    assert [(verdict.start, in_short(verdict)) for verdict in report.judged[0].verdicts] == [
        (2048 * 512, ON),
        (20482048 * 512, ON),
    ]
    assert [found.code for found in report.findings] == [Code.DYNAMIC_DISK]


@pytest.mark.parametrize(("start", "answer"), [(2048, ON), (63, OFF)])
def test_partitions_of_a_multipath_map_are_judged_once_at_the_start_from_udev(
    tmp_path: Path, start: int, answer: str
) -> None:
    """subiquity, examples/machines/multipath.json: dm-1 is partition 1 of dm-0, and has no start in sysfs."""
    size, table = 20 << 30, {"ID_PART_TABLE_TYPE": "dos"}
    path = {"ID_FS_TYPE": "mpath_member", "DM_MULTIPATH_DEVICE_PATH": "1", **table}
    part = {"ID_PART_ENTRY_SCHEME": "dos", "ID_PART_ENTRY_NUMBER": "1", "ID_PART_ENTRY_OFFSET": str(start),
            "ID_PART_ENTRY_SIZE": "41940992", "ID_PART_ENTRY_TYPE": "0x83", "ID_FS_TYPE": "ext4"}  # fmt: skip
    disks = [
        MadeDisk("sda", size, physical=4096, udev=path, holders=("dm-0",)),
        MadeDisk("sdb", size, physical=4096, udev=path, holders=("dm-0",)),
        MadeDisk("dm-0", size, physical=4096, udev=table, slaves=("sda", "sdb"), holders=("dm-1",),
                 attributes={"dm/name": "mpatha", "dm/uuid": "mpath-35000c50015ea71aa"}),
        MadeDisk("dm-1", 41940992 * 512, physical=4096, udev=part, slaves=("dm-0",), mounted_at=("/",),
                 attributes={"dm/name": "mpatha-part1", "dm/uuid": "part1-mpath-35000c50015ea71aa"}),
    ]  # fmt: skip
    make_tree(tmp_path, disks)
    report = audit(look((), sysroot=str(tmp_path)), {})
    found = {judged.disk.name: judged for judged in report.judged}
    assert sorted(found) == ["dm-0", "sda", "sdb"]
    assert [(verdict.start, in_short(verdict)) for verdict in found["dm-0"].verdicts] == [(start * 512, answer)]
    (partition,) = found["dm-0"].disk.partitions
    assert (partition.node, partition.mounted_at, partition.content_hint) == ("dm-1", ("/",), "ext4")
