"""Free blocks are skipped only if the content of every partition is known, and nothing of it belongs to free blocks."""

from dataclasses import dataclass, replace

import pytest

from aligntool.formats import part_types
from aligntool.formats.reader import Reader
from aligntool.inventory import Disk, Layer, Partition, Role, TableLabel
from aligntool.realign.trusted_maps import why_free_blocks_may_be_needed
from aligntool.units import GIB, MIB, Extent
from tests.audit.builders import made_disk
from tests.in_memory import BytesReader

SIZE = 4 * MIB
NOTHING = BytesReader(bytes(SIZE))
RUBBISH = BytesReader(bytes(SIZE - 512) + b"x" * 512)  # in the last sector of the last partition
LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"


def why(disk: Disk, reader: Reader = NOTHING, *, length: int = 2048 * 512, free_behind: bool = False) -> str:
    """Return why the free blocks of the first partition, an ext4 of this length, may be needed."""
    part = disk.partitions[0]
    layer = replace(part.content[0], claims_size=length)
    return why_free_blocks_may_be_needed(disk, reader, part.extent, layer, free_behind=free_behind)


def second(kinds: str = "", type_code: str = LINUX, role: Role = Role.PRIMARY) -> Disk:
    """Return a disk with an ext4, and a second partition with these kinds of content."""
    disk = made_disk(f"63+2048 ext4; 4096+4096 {kinds}", size=SIZE)
    one, two = disk.partitions
    return replace(disk, partitions=(one, replace(two, type_code=type_code, role=role)))


@pytest.mark.parametrize("kinds", ["ext4", "ntfs", "crypto_LUKS", "LVM2_member", "swap", "iso9660 udf", "iso9660 hfs"])
def test_free_blocks_are_skipped_beside_recognised_content(kinds: str) -> None:
    assert why(second(kinds), RUBBISH) == ""


def test_free_blocks_are_copied_beside_unknown_content() -> None:
    assert why(second(), RUBBISH) == "the content of partition 2 is unknown, and may need free blocks, too"
    assert why(second(), NOTHING) == ""


def test_free_blocks_are_copied_beside_ambiguous_content() -> None:
    assert why(second("ext4 ntfs")) == "the content of partition 2 is ambiguous, and may need free blocks, too"


@pytest.mark.parametrize("kind", ["DM_verity_hash", "DM_integrity", "DM_snapshot_cow"])
def test_free_blocks_are_copied_beside_content_that_belongs_to_another_partition(kind: str) -> None:
    assert why(second(kind)) == f"{kind} on this disk may belong to free blocks, too"
    disk = second()
    inside = Layer("LVM2_member", Extent(0, MIB), inner=(Layer(kind, Extent(0, MIB)),))
    one, two = disk.partitions
    assert kind in why(replace(disk, partitions=(one, replace(two, content=(inside,)))))


@pytest.mark.parametrize("architecture", ["x86-64", "ARM-64"])
@pytest.mark.parametrize("kind", ["root verity", "/usr verity", "root verity signature", "/usr verity signature"])
def test_free_blocks_are_copied_beside_a_partition_with_a_type_of_verity(architecture: str, kind: str) -> None:
    """Whatever is recognised in it, or nothing at all."""
    name = f"Linux {kind} ({architecture})"
    (guid,) = (guid for guid in ALL_GUIDS if part_types.gpt_type_name(guid) == name)
    for content in ("", "ext4"):
        assert why(second(content, guid)) == (
            f"partition 2 has the type {name}, and its hashes may cover free blocks, too"
        )


ALL_GUIDS = [code for code in part_types._names() if len(code) == 36]


def test_every_type_of_verity_is_known() -> None:
    """The Discoverable Partitions Specification lists four for each of 19 architectures."""
    assert sum(" verity" in part_types.gpt_type_name(guid) for guid in ALL_GUIDS) == 4 * 19


@pytest.mark.parametrize(
    "guid",
    [
        "21686148-6449-6E6F-744E-656564454649",  # BIOS boot
        "9E1A2D38-C612-4316-AA26-8B49521E5A8B",  # PReP
        "E3C9E316-0B5C-4DB8-817D-F92DF00215AE",  # Microsoft reserved
        "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F",  # swap
        "0x41",
        "0x82",
    ],
)
def test_free_blocks_are_skipped_beside_a_partition_whose_use_is_known_by_its_type(guid: str) -> None:
    assert why(second("", guid), RUBBISH) == ""


@pytest.mark.parametrize("role", [Role.EXTENDED, Role.MAP])
def test_free_blocks_are_skipped_beside_a_container_and_the_own_entry_of_a_table(role: Role) -> None:
    assert why(second("", role=role), RUBBISH) == ""


@dataclass(frozen=True)
class Zeros:
    """A Reader of a disk without any data."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        return bytes(max(min(length, self.size - offset), 0))


def test_a_partition_that_is_not_read_as_a_whole_is_not_empty() -> None:
    """It is too long, or ends behind the end of the disk."""
    one, two = second().partitions
    for length, size, is_empty in ((MIB, 2 * GIB, True), (GIB + 512, 2 * GIB, False), (MIB, 2 * MIB + 512, False)):
        disk = replace(second(), partitions=(one, replace(two, extent=Extent(2 * MIB, length))))
        assert (why(disk, Zeros(size)) == "") is is_empty


def test_nothing_follows_a_file_system_that_fills_the_last_partition() -> None:
    """Neither its length nor that of the disk is a multiple of 4096 bytes."""
    disk = made_disk("63+2001 ext4", size=(63 + 2001) * 512)
    assert why(disk, Zeros((63 + 2001) * 512), length=2001 * 512) == ""


def test_free_blocks_are_copied_if_bytes_follow_the_file_system() -> None:
    """Anywhere in its partition, unless they are the rest of the file system before an interrupted shrink."""
    rest = BytesReader(bytes((63 + 2047) * 512) + b"x" + bytes(SIZE))
    assert why(second("ext4"), rest) == ""
    assert why(second("ext4"), rest, length=MIB // 2) == (
        "dm-verity hashes after the ext4 may cover its free blocks, too"
    )
    assert why(second("ext4"), rest, length=MIB // 2, free_behind=True) == ""
    assert why(second("ext4"), NOTHING, length=MIB // 2) == ""


def test_free_blocks_of_the_only_content_of_a_disk_are_skipped() -> None:
    ext4 = Layer("ext4", Extent(0, SIZE), claims_size=SIZE)
    disk = replace(made_disk("", size=SIZE), content=(ext4,), content_read=True)
    assert not why_free_blocks_may_be_needed(disk, RUBBISH, Extent(0, SIZE), ext4, free_behind=False)


def test_an_ordinary_disk_of_each_kind_keeps_its_maps() -> None:
    """Windows and Linux on a GPT; an old Windows with logical partitions; a cloud image."""
    esp, msr, data = part_types.EFI_SYSTEM[0], part_types.ROLES["msr"].gpt, part_types.BASIC_DATA
    recovery, swap = "DE94BBA4-06D1-4D40-A16A-BFD50179D6AC", part_types.ROLES["swap"].gpt
    windows = with_types("63+512 vfat; 600+64; 700+2000 ntfs; 3000+500 ntfs; 3500+2000 ext4; 5500+2000",
                         esp, msr, data, recovery, LINUX, swap)  # fmt: skip
    old = with_types("63+2000 ntfs; 2e 2100+6000; 5l 2163+1000 vfat; 6l 4200+1000", "0x07", "0x0f", "0x0b", "0x82")
    cloud = with_types("63+512; 600+1000 vfat; 2048+4000 ext4", part_types.ROLES["bios-boot"].gpt, esp, LINUX)
    for disk in (windows, replace(old, table=replace(old.table, label=TableLabel.DOS)), cloud):  # type: ignore[type-var]
        for part in (part for part in disk.partitions if part.content and part.content[0].kind != "ntfs"):
            layer = replace(part.content[0], claims_size=part.extent.length)
            assert why_free_blocks_may_be_needed(disk, RUBBISH, part.extent, layer, free_behind=False) == ""


def with_types(text: str, *types: str) -> Disk:
    disk = made_disk(text, size=SIZE)
    typed: tuple[Partition, ...] = tuple(
        replace(part, type_code=code) for part, code in zip(disk.partitions, types, strict=True)
    )
    return replace(disk, partitions=typed)
