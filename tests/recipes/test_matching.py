"""A drive finds its rows in every spelling of its model, then the default of its class."""

import pytest

from aligntool.inventory import Disk, DiskKind, Source
from aligntool.recipes.drives import DriveDatabase
from aligntool.units import KIB, MIB, TIB
from tests.recipes.disks import disk, of_class, of_model


@pytest.mark.parametrize(
    "model",
    [
        "WDC WD20EARS-00MVWB0",
        "WDC_WD20EARS-00MVWB0",
        "WD20EARS",
        "WDC WD20EARS-00M",  # truncated as in INQUIRY data
        "ATA WDC WD20EARS-00MVWB0",
        "  WDC  WD20EARS-00MVWB0   ",
        "Western Digital WD20EARS",
        "wdc wd20ears-00mvwb0",
        "WDC WD10EARS-22Y5B1",
    ],
)
def test_a_wd20ears_is_recognised_in_every_spelling(database: DriveDatabase, model: str) -> None:
    found = database.known(disk(model))
    assert of_model(found) == ["WD Caviar Green EARS"]
    assert found[0].physical_block_size == 4096


@pytest.mark.parametrize("model", ["WDC WD20EARX-00PASB0", "WD20EARX", "WDC WD20EADS-00R6B0", "XWD20EARS", "20EARS"])
def test_other_drives_are_not_taken_for_a_wd20ears(database: DriveDatabase, model: str) -> None:
    assert "WD Caviar Green EARS" not in of_model(database.known(disk(model)))


def test_the_wd20earx_has_a_row_of_its_own(database: DriveDatabase) -> None:
    assert of_model(database.known(disk("WDC WD20EARX-00PASB0"))) == ["WD Green and Red: EARX, EZRX, EFRX"]


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("Samsung SSD 840", "Samsung SSD 840, 840 EVO, 840 PRO"),  # "Samsung SSD 840 EVO" without its 16th character
        ("INTEL SSDSA2M080", "Intel X25-M"),
        ("C300-CTFDDAC128M", "Crucial/Micron RealSSD C300"),
        ("WDC WD5000BPVT-2", "WD Scorpio Blue and Black: BPVT, LPVT, BPKT"),
        ("TOSHIBA MQ02ABD1", "Toshiba MQ02ABD100H, MQ02ABF050H"),
    ],
)
def test_a_model_cut_to_sixteen_characters_is_recognised(database: DriveDatabase, model: str, row: str) -> None:
    assert of_model(database.known(disk(model))) == [row]


@pytest.mark.parametrize("model", ["TOSHIBA MQ01ABD1", "HGST HUS724040AL", "Samsung SSD 85"])
def test_a_cut_model_that_could_be_several_drives_is_not_guessed(database: DriveDatabase, model: str) -> None:
    # MQ01ABD100 is a plain disk and MQ01ABD100H a hybrid; HUS724040ALA640 has sectors of 512 bytes, ALE640 of 4096.
    assert of_model(database.known(disk(model))) == []


def test_the_ocz_vertex_is_not_taken_for_the_vertex_2(database: DriveDatabase) -> None:
    assert of_model(database.known(disk("OCZ-VERTEX"))) == ["OCZ Vertex (Indilinx Barefoot)"]
    assert of_model(database.known(disk("OCZ-VERTEX2 3.5"))) == ["OCZ Vertex 2, Agility 2 (SandForce)"]


def test_a_row_for_one_bus_is_not_used_on_another(database: DriveDatabase) -> None:
    assert of_model(database.known(disk("INTEL SSDPFWNV153TZ", kind=DiskKind.NVME))) == ["Intel/Solidigm D5-P5316"]
    assert of_model(database.known(disk("INTEL SSDPFWNV153TZ", kind=DiskKind.SCSI))) == []


@pytest.mark.parametrize(
    ("model", "kind", "facts"),
    [
        ("SAMSUNG HD204UI", DiskKind.ATA, {"physical_block_size": 4096}),
        ("ST2000DL003-9VT166", DiskKind.ATA, {"physical_block_size": 4096}),
        ("ST4000NM000A-2HZ100", DiskKind.ATA, {"physical_block_size": 512}),
        ("INTEL SSDPFWNV153TZ", DiskKind.NVME, {"indirection_unit": 64 * KIB}),
        ("SOLIDIGM SBFPF2BV614T", DiskKind.NVME, {"indirection_unit": 16 * KIB}),
        ("Micron_7450_MTFDKCB1T9TFR", DiskKind.NVME, {"distrust": ("minimum_io_size",), "page_size": None}),
        ("MSFT NVMe Accelerator v1.0", DiskKind.NVME, {"distrust": ("optimal_io_size",)}),
        ("OCZ-VERTEX", DiskKind.ATA, {"page_size": 4096}),
        ("INTEL SSDSA2M160G2GC", DiskKind.ATA, {"page_size": 4096, "dram": True}),
        ("C300-CTFDDAC256MAG", DiskKind.ATA, {"indirection_unit": 4096, "dram": True}),
        ("OCZ CORE_SSD", DiskKind.ATA, {"dram": False}),
        ("INTEL SSDPEDMW400G4", DiskKind.NVME, {"dram": True}),
        ("PLEXTOR PX-256M3P", DiskKind.ATA, {"page_size": None}),
        ("TOSHIBA MQ02ABD100H", DiskKind.ATA, {"hybrid": True, "physical_block_size": None}),
        ("KBG30ZMV256G TOSHIBA", DiskKind.NVME, {"dram": False, "hmb": True}),
        ("KBG40ZNS1T02 TOSHIBA MEMORY", DiskKind.NVME, {"dram": False, "hmb": True}),
        ("Samsung SSD 950 PRO 512GB", DiskKind.NVME, {"dram": True, "hmb": None}),
        ("Samsung SSD 960 PRO 1TB", DiskKind.NVME, {"confidence": "high"}),
        ("Samsung SSD 970 EVO Plus 1TB", DiskKind.NVME, {"dram": True}),
        ("WDC WDS100T2B0C-00PXH0", DiskKind.NVME, {"dram": False, "hmb": None}),
    ],
)
def test_drives_have_the_facts_of_their_rows(
    database: DriveDatabase, model: str, kind: DiskKind, facts: dict[str, object]
) -> None:
    known = database.known(disk(model, kind=kind))[0]
    assert known.source is Source.KNOWN
    assert {name: getattr(known, name) for name in facts} == facts


def test_a_row_for_the_firmware_has_precedence_over_the_row_for_all(database: DriveDatabase) -> None:
    nv2 = disk("KINGSTON SNV2S1000G", kind=DiskKind.NVME, firmware="SBM02103")
    assert of_model(database.known(nv2)) == ["Kingston NV2 with Intel 144-layer QLC", "Kingston NV2"]


@pytest.mark.parametrize("firmware", [None, "", "ELFK0S.6"])
def test_a_row_for_one_firmware_is_not_used_for_another(database: DriveDatabase, firmware: str | None) -> None:
    nv2 = disk("KINGSTON SNV2S1000G", kind=DiskKind.NVME, firmware=firmware)
    assert of_model(database.known(nv2)) == ["Kingston NV2"]


@pytest.mark.parametrize(
    ("what", "name", "facts"),
    [
        (disk(kind=DiskKind.NVME), "NVMe SSD", {"page_size": 16 * KIB, "indirection_unit": 4 * KIB}),
        (disk("No Such SSD", rotational=False), "SATA or SAS SSD", {"page_size": 16 * KIB}),
        (disk("SD32G", kind=DiskKind.SD), "SD card or eMMC", {"erase_block": 4 * MIB}),
        (disk("MMC32G", kind=DiskKind.EMMC), "SD card or eMMC", {"erase_block": 4 * MIB}),
        (disk("Cruzer", kind=DiskKind.USB, rotational=False), "USB flash drive", {"erase_block": 4 * MIB}),
        (disk(kind=DiskKind.VIRTIO, rotational=True), "virtual disk", {"physical_block_size": 4 * KIB}),
        (disk("VBOX HARDDISK", rotational=True), "virtual disk, by its name", {"physical_block_size": 4 * KIB}),
        (disk("QEMU NVMe Ctrl", kind=DiskKind.NVME), "virtual disk, by its name", {"page_size": None}),
        (disk(kind=DiskKind.IMAGE), "image file", {"physical_block_size": 4 * KIB}),
        (disk("X", size=3 * TIB, rotational=True), "hard disk above 2 TiB", {"physical_block_size": 4 * KIB}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_drive_without_a_row_gets_the_default_of_its_class(
    database: DriveDatabase, what: Disk, name: str, facts: dict[str, object]
) -> None:
    found = database.known(what)
    assert [known.row for known in found] == [f"class: {name}"]
    assert found[0].source is Source.ASSUMED
    assert {name: getattr(found[0], name) for name in facts} == facts


@pytest.mark.parametrize(
    "what",
    [
        disk("ST31000528AS", size=10**12, rotational=True),  # reports 512, which is trusted
        disk("ST31000528AS", size=None, rotational=True),
        disk("LSI MR9260-8i", kind=DiskKind.SCSI, size=8 * TIB, rotational=True),
        disk(kind=DiskKind.MD),
        disk(kind=DiskKind.DM),
        disk(kind=DiskKind.LOOP),
    ],
)
def test_nothing_is_assumed_of_other_drives(database: DriveDatabase, what: Disk) -> None:
    assert database.known(what) == ()


def test_the_class_is_listed_after_the_rows_of_the_model(database: DriveDatabase) -> None:
    found = database.known(disk("INTEL SSDPFWNV153TZ", kind=DiskKind.NVME))
    assert [known.source for known in found] == [Source.KNOWN, Source.ASSUMED]
    assert of_class(found) == ["class: NVMe SSD"]


def test_a_search_accepts_a_model_a_part_of_one_or_a_name(database: DriveDatabase) -> None:
    assert of_model(database.search("WD20EARS")) == ["WD Caviar Green EARS"]
    assert of_model(database.search("x25-m")) == ["Intel X25-M"]
    assert "Samsung 950 PRO" in of_model(database.search("950 pro"))
    assert database.search("no such drive") == ()
    assert database.search("") == ()


def test_a_search_without_firmware_shows_the_rows_for_every_firmware(database: DriveDatabase) -> None:
    assert len(database.search("KINGSTON SNV2S1000G")) == 2
    assert of_model(database.search("KINGSTON SNV2S1000G", firmware="ELFK0S.6")) == ["Kingston NV2"]
