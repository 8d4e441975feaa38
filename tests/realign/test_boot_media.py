"""Images with the layout of boot media, boards and old systems: from the file through probe and audit to a plan.

The expected result depends on how the boot program finds its parts: docs/boot-layouts.md has the sources.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged
from aligntool.change import Plan, RealignGoal
from aligntool.claims import Claims
from aligntool.errors import Refused
from aligntool.linux.block import open_read_only
from aligntool.linux.look import look
from aligntool.linux.targets import UserLimits
from aligntool.realign.planning import find_repairs, plan_realign
from aligntool.steps import CopyContent, ReleaseContent, WriteJournal
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.formats.images import mbr
from tests.formats.mbr_images import bsd_label, solaris_vtoc
from tests.mover.superblocks import befs
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "mkfs.fat", "mke2fs", "sgdisk")

Sparse = Callable[..., Path]
TO_1MIB = RealignGoal(grain=MIB, grain_given=True)
ANY_JOURNAL = RealignGoal(journal_file="journal.bin")
VTOY_SECTORS = 65536  # VENTOY_SECTOR_NUM
VENTOY_CODE = b"VT\0Ge\0HD\0Rd\0 Er\r\n"  # the value of its boot.img at 0x190


def put(image: Path, at: int, content: bytes) -> None:
    with image.open("r+b") as file:
        file.seek(at)
        file.write(content)


def partitioned(image: Path, label: str, *entries: str) -> Path:
    lines = (f"label: {label}", *(("first-lba: 34",) if label == "gpt" else ()), *entries)
    run("sfdisk", "-q", image, stdin="\n".join(lines) + "\n")
    return image


def fat(image: Path, start: int, sectors: int, label: str = "BOOT") -> None:
    run("mkfs.fat", "-n", label, f"--offset={start}", image, str(sectors // 2))


def ext4(image: Path, start: int, sectors: int) -> None:
    run("mke2fs", "-q", "-F", "-t", "ext4", "-E", f"offset={start * 512}", image, f"{sectors // 2}k")


def judged(image: Path) -> Judged:
    return audit(look([str(image)], given=UserLimits(physical_sector_size=4 * KIB)), {}).judged[0]


def planned(image: Path, goal: RealignGoal | None = None) -> Plan:
    with open_read_only(str(image)) as device:
        return plan_realign(judged(image), goal or RealignGoal(), {}, Claims(device))


def refusal(image: Path, goal: RealignGoal | None = None) -> str:
    with pytest.raises(Refused) as refused:
        planned(image, goal)
    return str(refused.value)


def starts(plan: Plan) -> list[int]:
    return [place.after.start // 512 for place in plan.places]


# Ventoy: its loader compares the second entry's start with the first one's end.


def ventoy(image: Path, label: str, *, named: str = "VTOYEFI", code: bytes = VENTOY_CODE) -> Path:
    """Make a disk like VentoyWorker.sh, but with a second partition off every grid of 4 KiB."""
    data = 100001
    second = 2048 + data
    partitioned(image, label, f"start=2048, size={data}", f"start={second}, size={VTOY_SECTORS}")
    run("mkfs.fat", "-F16", "-s1", "-n", named, f"--offset={second}", image, str(VTOY_SECTORS // 2))
    put(image, 0x190, code)
    return image


@pytest.mark.parametrize("label", ["dos", "gpt"])
@pytest.mark.parametrize("marks", [{}, {"named": "OTHER"}, {"code": b""}])
def test_the_second_partition_of_a_ventoy_stick_stays_directly_behind_the_first(
    sparse: Sparse, label: str, marks: dict[str, object]
) -> None:
    image = ventoy(sparse(256 * MIB), label, **marks)  # type: ignore[arg-type]
    for goal in (None, TO_1MIB, ANY_JOURNAL):
        assert "Ventoy" in refusal(image, goal)
    (mend,) = find_repairs(judged(image))
    assert (mend.partition, mend.answer) == (2, "not") and "Ventoy" in mend.why


def test_ventoys_boot_code_with_another_table_is_not_a_ventoy_stick(sparse: Sparse) -> None:
    image = partitioned(sparse(256 * MIB), "dos", "start=63, size=100000", "start=204800, size=65536")
    put(image, 0x190, VENTOY_CODE)
    assert starts(planned(image)) == [2048, 204800]


def test_uefi_ntfs_of_rufus_is_found_by_its_partition_and_moved(sparse: Sparse) -> None:
    """UEFI:NTFS searches all partitions of its disk: it need not follow the first one."""
    image = partitioned(sparse(256 * MIB), "dos", "start=2048, size=100001, type=7", "start=102049, size=2048, type=ef")
    fat(image, 102049, 2048, "UEFI_NTFS")
    assert starts(planned(image)) == [2048, 102400]


# Isohybrid: entries are places in the image, whose first byte is that of the disk.


def iso(image: Path, size: int) -> int:
    """Write an image with genisoimage that begins at this byte; return its length in sectors."""
    source = image.parent / "tree"
    source.mkdir()
    (source / "data").write_bytes(bytes(range(256)) * 8192)
    run("genisoimage", "-quiet", "-R", "-V", "LIVE", "-o", image, source)
    sectors = image.stat().st_size // 512
    with image.open("r+b") as file:
        file.truncate(size)
    return sectors


@pytest.mark.needs_tools("genisoimage")
@pytest.mark.parametrize("covered_from", [0, 64, None])
def test_the_partitions_of_an_isohybrid_image_are_not_moved(tmp_path: Path, covered_from: int | None) -> None:
    """`isohybrid` covers the image from its first sector, xorriso from sector 64; grub-mkrescue lists pieces."""
    image = tmp_path / "live.img"
    sectors = iso(image, 64 * MIB)
    rest = (0x83, sectors + 65, 20000, 0)
    inside = (0xEF, 333, 777, 0)
    cover = [(0x17, covered_from, sectors - covered_from, 0x80)] if covered_from is not None else []
    put(image, 0, mbr(*cover, inside, rest, signature=7))
    assert "isohybrid" in refusal(image)
    assert {mend.answer for mend in find_repairs(judged(image))} == {"not"}


@pytest.mark.needs_tools("genisoimage")
def test_a_gpt_over_an_iso_image_is_refused_as_well(tmp_path: Path) -> None:
    image = tmp_path / "live.img"
    sectors = iso(image, 64 * MIB)
    run("sgdisk", "-a1", "-n", "1:333:1109", "-t", "1:EF00", "-n", f"2:{sectors + 65}:+20M", image)
    assert "isohybrid" in refusal(image)


# Boards: a boot ROM reads fixed sectors, and the program it starts reads others.

BOOT_ROMS = [
    (8 * KIB + 4, b"eGON.BT0"),
    (128 * KIB + 4, b"eGON.BT0"),
    (32 * KIB, bytes.fromhex("3b8cdcfcbe9f9d51")),
    (32 * KIB, b"RKNS"),
    (KIB, bytes.fromhex("d1002040")),
    (33 * KIB, bytes.fromhex("d1002041")),
    (512 + 16, b"@AML"),
    (128 * KIB + 20, b"CHSETTINGS"),
]


@sample(3)
@pytest.mark.parametrize(("at", "magic"), BOOT_ROMS)
def test_with_a_boards_boot_program_the_first_16_mib_before_a_partition_are_not_used(
    sparse: Sparse, at: int, magic: bytes
) -> None:
    """Its U-Boot stores the environment in sectors that are empty until it is saved for the first time."""
    image = partitioned(sparse((32763 + 40000) * 512), "dos", "start=32763, size=40000")
    ext4(image, 32763, 40000)
    assert starts(planned(image, ANY_JOURNAL))[0] < 32763, "without a board's mark there is room to the left"
    put(image, at, magic)
    assert "16MiB" in refusal(image, ANY_JOURNAL)


def test_a_move_up_does_not_overwrite_the_boot_program_of_a_board(sparse: Sparse) -> None:
    image = partitioned(sparse(256 * MIB), "dos", "start=8193, size=100000")
    fat(image, 8193, 100000)
    put(image, 8 * KIB + 4, b"eGON.BT0")
    plan = planned(image)
    assert starts(plan) == [10240]
    (journal,) = [step.journal for step in plan.steps if isinstance(step, WriteJournal)]
    assert journal.extent.start >= 16 * MIB


def test_unknown_data_before_the_first_partition_are_not_overwritten(sparse: Sparse) -> None:
    """No known signature of a board, but data: for example U-Boot of an unknown one."""
    image = partitioned(sparse(40 * MIB), "dos", f"start=16389, size={40 * 2048 - 16389}")
    ext4(image, 16389, 40 * 2048 - 16389)
    assert starts(planned(image, ANY_JOURNAL))[0] < 16389
    put(image, 16388 * 512 + 500, b"\xff")
    assert "a boot loader may be there" in refusal(image, ANY_JOURNAL)
    put(image, 16388 * 512 + 500, b"\0")
    put(image, 12288 * 512, b"U-Boot")
    assert starts(planned(image, ANY_JOURNAL)) == [16384], "as far as the bytes that are zero"


def test_the_gap_inside_an_extended_partition_is_checked_as_well(sparse: Sparse) -> None:
    """The logical partition may go left or right of 16 MiB; the other one leaves no room for a journal behind it."""
    end = 100 * 2048
    image = partitioned(sparse(100 * MIB), "dos", f"start=2048, size={end - 2048}, type=5",
                        f"start=32773, size={end - 32773}")  # fmt: skip
    ext4(image, 32773, end - 32773)
    (journal,) = [step.journal for step in planned(image).steps if isinstance(step, WriteJournal)]
    assert journal.extent.start < 8 * MIB
    put(image, 8 * MIB, b"U-Boot")
    plan = planned(image)
    (journal,) = [step.journal for step in plan.steps if isinstance(step, WriteJournal)]
    assert journal.extent.start > 8 * MIB and starts(plan)[1] == 32768


def test_the_journal_does_not_overwrite_data_before_the_first_partition(sparse: Sparse) -> None:
    first = 80 * 2048 + 1
    image = partitioned(sparse(101 * MIB), "gpt", f"start={first}, size={20 * 2048 + 1900}")
    ext4(image, first, 20 * 2048 + 1900)
    data = [Extent(50 * MIB, 512), Extent(first * 512 - 4 * KIB, 512)]
    for known in (data[:1], data):
        put(image, known[-1].start, b"something")
        (journal,) = [step.journal for step in planned(image).steps if isinstance(step, WriteJournal)]
        assert journal.extent.start >= 16 * MIB and journal.extent.end <= first * 512
        assert not any(journal.extent.overlaps(one) for one in known)


def test_a_partition_with_a_boards_loader_is_not_moved(sparse: Sparse) -> None:
    """Rockchip's layout as partitions: idbloader at sector 64, U-Boot at 16384, to which no table points."""
    image = partitioned(sparse(256 * MIB), "gpt", "start=64, size=8000", "start=16385, size=8192",
                        "start=32769, size=100000")  # fmt: skip
    put(image, 32 * KIB, b"RKNS")
    ext4(image, 32769, 100000)
    assert "partition 1 may hold a boot program" in refusal(image, TO_1MIB)
    assert "partition 2 may hold a boot program" in refusal(image)
    assert starts(planned(image, RealignGoal(partitions=(3,)))) == [64, 16385, 32768]


def test_the_boot_partitions_of_sifive_boards_stay(sparse: Sparse) -> None:
    """The layout of U-Boot's doc/board/sifive/unmatched.rst: the SPL reads u-boot.itb from sector 2082."""
    image = partitioned(
        sparse(256 * MIB), "gpt", "start=34, size=2048, type=5B193300-FC78-40CD-8002-E86C45580B47",
        "start=2082, size=8192, type=2E54B353-1271-4842-806F-E436D6AF6985", "start=10274, size=100000",
    )  # fmt: skip
    assert starts(planned(image)) == [34, 2082, 12288]
    assert "SiFive" in refusal(image, RealignGoal(partitions=(2,)))


def test_the_boot_partition_of_imx28_stays(sparse: Sparse) -> None:
    """U-Boot's tools/mxsboot.c writes the number of a sector of the disk into the first sector of the partition."""
    image = partitioned(sparse(256 * MIB), "dos", "start=4, size=2000, type=53", "start=2049, size=100000")
    put(image, 4 * 512, bytes.fromhex("33221100"))
    assert starts(planned(image)) == [4, 2048]


# Boot sectors that name absolute sectors.


@pytest.mark.parametrize(("names", "there"), [(1, False), (5000, True)])
def test_grub_that_reads_its_next_stage_inside_a_partition_is_reported(sparse: Sparse, names: int, there: bool) -> None:
    image = partitioned(sparse(256 * MIB), "dos", "start=63, size=100000, bootable")
    ext4(image, 63, 100000)
    put(image, 0x5C, struct.pack("<Q", names))
    put(image, 0x180, b"GRUB \0Geom\0Hard Disk\0Read\0 Error\r\n\0")
    plan = planned(image)
    assert starts(plan) == [2048]
    assert any("grub-install" in one for one in plan.attention) == there
    assert not any("extlinux" in one for one in plan.attention)


@pytest.mark.parametrize(
    ("at", "code", "word"),
    [
        (6, b"LILO", "LILO in sector 0"),
        (0, b"zIPL", "zipl in sector 0"),
        (300, b"Haiku Boot Manager\0", "Haiku Boot Manager in sector 0"),
        (0, b"\xfa\x33", "extlinux"),
    ],
)
def test_boot_programs_that_keep_lists_of_sectors_are_noted(sparse: Sparse, at: int, code: bytes, word: str) -> None:
    image = partitioned(sparse(256 * MIB), "dos", "start=63, size=100000, bootable")
    ext4(image, 63, 100000)
    put(image, at, code)
    assert any(word in one for one in planned(image).attention)


@pytest.mark.parametrize(("names", "there"), [(1, False), (5000, True)])
def test_grub_in_a_partition_that_reads_its_next_stage_inside_a_partition_is_noted(
    sparse: Sparse, names: int, there: bool
) -> None:
    """With `names` 1 the partition is the disk of a virtual machine, whose own gap GRUB reads."""
    image = partitioned(sparse(256 * MIB), "dos", "start=63, size=100000", "start=204801, size=100000, bootable")
    ext4(image, 204801, 100000)
    ext4(image, 63, 100000)
    put(image, 63 * 512 + 0x5C, struct.pack("<Q", names))
    put(image, 63 * 512 + 0x180, b"GRUB \0Geom\0Hard Disk\0Read\0 Error\r\n\0")
    attention = planned(image).attention
    assert any("boot sector of partition 1" in one and "grub-install" in one for one in attention) == there
    assert any("partition 2 is the active partition" in one for one in attention)  # that GRUB may not start it
    assert not any("grub-install" in one for one in planned(image, RealignGoal(partitions=(2,))).attention)


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("sector", [2048, 40000])
def test_lilo_in_the_boot_sector_of_a_partition_or_in_an_ebr_is_noted(sparse: Sparse, sector: int) -> None:
    image = partitioned(
        sparse(256 * MIB), "dos", "start=2048, size=30000", "start=40000, size=200000, type=5", "start=40063, size=9000"
    )
    put(image, sector * 512 + 6, b"LILO")
    number = 1 if sector == 2048 else 2
    assert any(f"LILO in the boot sector of partition {number}" in one for one in planned(image).attention)


@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_syslinux_in_a_partition_that_is_not_active_is_noted_if_it_moves(sparse: Sparse, label: str) -> None:
    """Its magic is the same on FAT, NTFS, ext and btrfs; altmbr.bin, gptmbr.bin or another boot program starts it."""
    image = partitioned(sparse(256 * MIB), label, "start=63, size=100000", "start=204801, size=100000")
    ext4(image, 63, 100000)
    ext4(image, 204801, 100000)
    put(image, 63 * 512 + 0x1F8, bytes.fromhex("fe02b23e183755aa"))
    (attention,) = planned(image).attention
    assert (
        "syslinux in the boot sector of partition 1" in attention
        and "with extlinux: docs/by-hand.md#a-boot-program" in attention
    )
    assert not planned(image, RealignGoal(partitions=(2,))).attention


@pytest.mark.parametrize("code", [b"\xfa\x33", b"\x00" * 6 + b"LILO"])
def test_a_shrink_of_a_partition_that_stays_changes_lists_of_sectors_too(sparse: Sparse, code: bytes) -> None:
    """resize2fs moves the blocks of files from the end."""
    image = partitioned(sparse(200 * MIB), "dos", "start=2048, size=204800, bootable", "start=206849, size=202750")
    ext4(image, 2048, 204800)
    put(image, 0, code)
    plan = planned(image, RealignGoal(shrink=True))
    assert starts(plan) == [2048, 206848]
    assert sum("lists of sectors" in one or "LILO in sector 0" in one for one in plan.attention) >= 1
    assert any("partition 1 is the active partition" in one for one in plan.attention)


@pytest.mark.parametrize(
    ("at", "mark"),
    [
        (6, b"TrueCrypt Boot Loader"),
        (6, b"VeraCrypt Boot Loader"),
        (0, b"\xeb\x48\x90PGPGUARD"),
        (3, b"SafeBoot"),
        (126, b"SGM400"),
    ],
)
def test_partitions_that_a_whole_disk_encryption_may_cover_are_refused(sparse: Sparse, at: int, mark: bytes) -> None:
    """It decrypts by the sector number on the disk: elsewhere the same bytes are noise."""
    image = partitioned(sparse(256 * MIB), "dos", "start=63, size=100000, type=7", "start=204801, size=100000")
    ext4(image, 204801, 100000)
    put(image, at, mark)
    assert "partition 1 may be encrypted" in refusal(image)
    assert starts(planned(image, RealignGoal(partitions=(2,)))) == [63, 204800]


@pytest.mark.needs_tools("sfdisk", "blkid")
@pytest.mark.parametrize(("recorded", "change"), [(63, [(506, 63, 2048)]), (0, []), (1000, [])])
def test_the_boot_block_of_haiku_names_the_new_start(sparse: Sparse, recorded: int, change: list[object]) -> None:
    """Haiku's makebootable writes the start of the partition to byte 506; without it stage 1 finds nothing."""
    image = partitioned(sparse(256 * MIB), "dos", "start=63, size=100000, type=eb, bootable")
    for at, piece in befs(512, 0):
        put(image, 63 * 512 + at, piece)
    put(image, 63 * 512, bytes(506) + struct.pack("<I", recorded) + b"\x55\xaa")
    assert 'TYPE="befs"' in run("blkid", "-p", "-O", str(63 * 512), "-S", str(100000 * 512), image)
    plan = planned(image)
    patches = [patch for step in plan.steps if isinstance(step, ReleaseContent) for patch in step.patches]
    assert [(patch.at, patch.before, patch.after) for patch in patches] == change
    assert any("Haiku may fail to boot" in one for one in plan.attention) == (recorded == 1000)


# Labels inside a partition that count from the start of the disk.


@pytest.mark.parametrize("kind", [0xA5, 0xA6, 0xA9])
def test_a_bsd_label_whose_only_slice_is_its_partition_is_refused(sparse: Sparse, kind: int) -> None:
    """The kernel shows no slice there: the slice is the parent itself, and contains its absolute sector."""
    image = sparse(256 * MIB)
    put(image, 0, mbr((kind, 63, 100000, 0x80), signature=7))
    put(image, 64 * 512, bsd_label((100000, 63, 7), (0, 0, 0), (100000, 63, 0)))
    assert "count from the start of the disk" in refusal(image)


@pytest.mark.parametrize("kind", ["824CC7A0-36A8-11E3-890A-952519AD3F61", "516E7CB4-6ECF-11D6-8FF8-00022D09712B"])
def test_a_bsd_label_inside_a_gpt_partition_is_refused(sparse: Sparse, kind: str) -> None:
    image = partitioned(sparse(256 * MIB), "gpt", f"start=63, size=100000, type={kind}")
    assert "disklabel" in refusal(image)


@pytest.mark.parametrize(
    ("kind", "at", "inside"),
    [
        (0x82, 512, solaris_vtoc((2, 10, 40), (3, 60, 9))),
        (0x81, 0, mbr((0x81, 110, 40, 0), (0x81, 160, 9, 0))),
        (0x63, 0, b"whatever"),
    ],
    ids=["Solaris", "Minix", "UnixWare"],
)
def test_a_partition_that_contains_slices_or_subpartitions_is_refused(
    sparse: Sparse, kind: int, at: int, inside: bytes
) -> None:
    image = sparse(256 * MIB)
    put(image, 0, mbr((kind, 63, 100000, 0), signature=7))
    put(image, 63 * 512 + at, inside)
    assert "from the start of the disk" in refusal(image)


@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_a_windows_dynamic_disk_is_refused(sparse: Sparse, label: str) -> None:
    """Its database contains absolute sectors."""
    kind = "42" if label == "dos" else "AF9B60A0-1431-4F62-BC68-3311714A69AD"
    image = partitioned(sparse(256 * MIB), label, f"start=63, size=100000, type={kind}")
    refusal(image)


# Partitions that are found through their entry are moved.


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("gpt", "FE3A2A5D-4F32-41A7-B725-ACCC3285A309"),  # ChromeOS kernel: by type and attributes
        ("gpt", "DEA0BA2C-CBDD-4805-B4F9-F428251C3E98"),  # Qualcomm SBL: by type
        ("gpt", "9D087404-1CA5-11DC-8817-01301BB8A9F5"),  # DragonFly disklabel32/64 container: relative
        ("dos", "12"),  # a vendor's diagnostics: firmware finds it by its type
        ("dos", "c"),  # Raspberry Pi: the first FAT partition
    ],
)
def test_partitions_found_by_their_entry_are_moved(sparse: Sparse, label: str, kind: str) -> None:
    image = partitioned(sparse(256 * MIB), label, f"start=63, size=100000, type={kind}")
    fat(image, 63, 100000)
    plan = planned(image)
    assert starts(plan) == [2048]
    assert [step.partition for step in plan.steps if isinstance(step, CopyContent)] == [1]
