"""The drive database and the table of chipsets: that every row is sound, and that a model finds its row."""

import time
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, IoLimits, KnownGeometry, Source
from aligntool.recipe import DriveDatabase, DriveRow, load_chipsets, load_drives, menu, parse_drives
from aligntool.recipe.models import normal, parse_pattern
from aligntool.units import KIB, MIB, TIB

RECIPES = Path(__file__).parent.parent / "recipes"
FILES = sorted((RECIPES / "drives").glob("*.toml"))

ROW = """
makers = ["ACME"]

[[drive]]
name = "Roadrunner"
match = ["RR-*"]
examples = ["ACME RR-1"]
page = "16KiB"
source = "https://example.org/rr"
confidence = "high"
"""


@pytest.fixture(scope="module")
def database() -> DriveDatabase:
    return load_drives()


def disk(
    model: str | None = None,
    *,
    kind: DiskKind = DiskKind.ATA,
    firmware: str | None = None,
    size: int | None = None,
    rotational: bool | None = None,
) -> Disk:
    return Disk(
        "sda", "/dev/sda", kind, size, IoLimits(), model=model, firmware=firmware, rotational=rotational
    )


def of_model(found: tuple[KnownGeometry, ...]) -> list[str]:
    return [known.row for known in found if known.source is Source.KNOWN]


def of_class(found: tuple[KnownGeometry, ...]) -> list[str]:
    return [known.row for known in found if known.source is Source.ASSUMED]


# --- The files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_row_has_a_source_and_a_confidence(file: Path) -> None:
    parsed = tomllib.loads(file.read_text())
    rows = [*parsed.get("drive", []), *parsed.get("class", [])]
    assert rows
    for row in rows:
        assert len(row["source"]) > 10, row["name"]
        assert row["confidence"] in ("high", "medium", "low"), row["name"]


def test_every_row_of_every_file_is_loaded(database: DriveDatabase) -> None:
    written = [tomllib.loads(file.read_text()) for file in FILES]
    assert len(database.rows) == sum(len(each.get("drive", [])) for each in written)
    assert len(database.classes) == sum(len(each.get("class", [])) for each in written)
    assert len({row.name for row in database.rows}) == len(database.rows)


def test_every_row_is_found_by_its_examples_and_by_its_name(database: DriveDatabase) -> None:
    for row in database.rows:
        for example in row.examples:
            kind = row.buses[0] if row.buses else DiskKind.ATA
            firmware = row.firmware[0].replace("*", "1") if row.firmware else None
            assert of_model(database.known(disk(example, kind=kind, firmware=firmware)))[0] == row.name, (
                example
            )
        assert row.name in of_model(database.search(row.name)), row.name


def test_no_model_fits_two_rows_of_the_same_rank(database: DriveDatabase) -> None:
    for place, row in enumerate(database.rows):
        for other in database.rows[place + 1 :]:
            if bool(row.firmware) != bool(other.firmware) or not _overlap(row.buses, other.buses):
                continue
            if row.firmware and not _some_text_fits_both(row.firmware, other.firmware):
                continue
            assert not _some_text_fits_both(_spelled(row), _spelled(other)), f"{row.name} / {other.name}"


def _overlap(buses: tuple[DiskKind, ...], others: tuple[DiskKind, ...]) -> bool:
    return not buses or not others or bool(set(buses) & set(others))


def _spelled(row: DriveRow) -> tuple[str, ...]:
    return (*row.match, *(f"{maker} {pattern}" for maker in row.makers for pattern in row.match))


def _some_text_fits_both(patterns: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(_meet(_words(one), _words(other)) for one in patterns for other in others)


def _words(pattern: str) -> tuple[str, ...]:
    return parse_pattern(pattern).tokens


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Is there a text that both globs describe? By the tails that still have to meet."""
    seen, todo = set(), [(0, 0)]
    while todo:
        i, j = todo.pop()
        if (i, j) in seen:
            continue
        seen.add((i, j))
        if i == len(one) and j == len(other):
            return True
        if i < len(one) and one[i] == "*":
            todo += [(i + 1, j), *([(i, j + 1)] if j < len(other) else [])]
        if j < len(other) and other[j] == "*":
            todo += [(i, j + 1), *([(i + 1, j)] if i < len(one) else [])]
        if i < len(one) and j < len(other) and "*" not in (one[i], other[j]) and _share(one[i], other[j]):
            todo.append((i + 1, j + 1))
    return False


def _share(token: str, other: str) -> bool:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789 -./"
    return any(fnmatchcase(letter, token) and fnmatchcase(letter, other) for letter in letters)


def test_the_check_for_rows_that_overlap_finds_an_overlap() -> None:
    assert _some_text_fits_both(("WD??EARS*",), ("WD20*",))
    assert not _some_text_fits_both(("WD??EARS*",), ("WD??EARX*",))


def test_the_menu_in_the_repository_is_current() -> None:
    written = (RECIPES / "README.md").read_text()
    assert written == menu(load_drives(), load_chipsets()), "python -m aligntool.recipe > recipes/README.md"


def test_a_thousand_disks_of_a_thousand_models_are_looked_up_fast(database: DriveDatabase) -> None:
    disks = [disk(f"WDC WD{number:04}EARS", size=number * TIB, rotational=True) for number in range(1000)]
    before = time.process_time()
    for each in disks:
        database.known(each)
    assert time.process_time() - before < 0.2


# --- Spellings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        "WDC WD20EARS-00MVWB0",
        "WDC_WD20EARS-00MVWB0",
        "WD20EARS",
        "WDC WD20EARS-00M",  # as an INQUIRY cuts it
        "ATA WDC WD20EARS-00MVWB0",
        "  WDC  WD20EARS-00MVWB0   ",
        "Western Digital WD20EARS",
        "wdc wd20ears-00mvwb0",
        "WDC WD10EARS-22Y5B1",
    ],
)
def test_a_wd20ears_is_known_in_every_spelling(database: DriveDatabase, model: str) -> None:
    found = database.known(disk(model))
    assert of_model(found) == ["WD Caviar Green EARS"]
    assert found[0].physical_block_size == 4096


@pytest.mark.parametrize(
    "model", ["WDC WD20EARX-00PASB0", "WD20EARX", "WDC WD20EADS-00R6B0", "XWD20EARS", "20EARS"]
)
def test_other_drives_are_not_taken_for_a_wd20ears(database: DriveDatabase, model: str) -> None:
    assert "WD Caviar Green EARS" not in of_model(database.known(disk(model)))


def test_the_wd20earx_has_a_row_of_its_own(database: DriveDatabase) -> None:
    assert of_model(database.known(disk("WDC WD20EARX-00PASB0"))) == ["WD Green and Red: EARX, EZRX, EFRX"]


@pytest.mark.parametrize(
    ("model", "row"),
    [
        (
            "Samsung SSD 840",
            "Samsung SSD 840, 840 EVO, 840 PRO",
        ),  # "Samsung SSD 840 EVO" without its 16th character
        ("INTEL SSDSA2M080", "Intel X25-M"),
        ("C300-CTFDDAC128M", "Crucial/Micron RealSSD C300"),
        ("WDC WD5000BEVT-0", "WD Scorpio Blue BEVT, Advanced Format"),
        ("TOSHIBA MQ02ABD1", "Toshiba MQ02ABD100H, MQ02ABF050H"),
    ],
)
def test_a_model_cut_to_sixteen_characters_is_known(database: DriveDatabase, model: str, row: str) -> None:
    assert of_model(database.known(disk(model))) == [row]


@pytest.mark.parametrize("model", ["TOSHIBA MQ01ABD1", "HGST HUS724040AL", "Samsung SSD 85"])
def test_a_cut_model_that_could_be_several_drives_is_not_guessed(database: DriveDatabase, model: str) -> None:
    # MQ01ABD100 is a plain disk and MQ01ABD100H a hybrid; HUS724040ALA640 has sectors of 512 bytes, ALE640 of 4096.
    assert of_model(database.known(disk(model))) == []


def test_the_ocz_vertex_is_not_the_vertex_2(database: DriveDatabase) -> None:
    assert of_model(database.known(disk("OCZ-VERTEX"))) == ["OCZ Vertex (Indilinx Barefoot)"]
    assert of_model(database.known(disk("OCZ-VERTEX2 3.5"))) == ["OCZ Vertex 2, Agility 2 (SandForce)"]


def test_a_row_for_one_bus_is_not_used_on_another(database: DriveDatabase) -> None:
    assert of_model(database.known(disk("INTEL SSDPFWNV153TZ", kind=DiskKind.NVME))) == [
        "Intel/Solidigm D5-P5316"
    ]
    assert of_model(database.known(disk("INTEL SSDPFWNV153TZ", kind=DiskKind.SCSI))) == []


# --- Facts of the articles' drives and of those that lie --------------------------------------------------------------


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
def test_what_is_known_of_a_drive(
    database: DriveDatabase, model: str, kind: DiskKind, facts: dict[str, object]
) -> None:
    known = database.known(disk(model, kind=kind))[0]
    assert known.source is Source.KNOWN
    assert {name: getattr(known, name) for name in facts} == facts


def test_a_row_for_the_firmware_comes_before_the_row_for_all(database: DriveDatabase) -> None:
    nv2 = disk("KINGSTON SNV2S1000G", kind=DiskKind.NVME, firmware="SBM02103")
    assert of_model(database.known(nv2)) == ["Kingston NV2 with Intel 144-layer QLC", "Kingston NV2"]


@pytest.mark.parametrize("firmware", [None, "", "ELFK0S.6"])
def test_a_row_for_one_firmware_is_not_used_for_another(
    database: DriveDatabase, firmware: str | None
) -> None:
    nv2 = disk("KINGSTON SNV2S1000G", kind=DiskKind.NVME, firmware=firmware)
    assert of_model(database.known(nv2)) == ["Kingston NV2"]


# --- Classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "name", "facts"),
    [
        (disk(kind=DiskKind.NVME), "NVMe SSD", {"page_size": 16 * KIB, "indirection_unit": 4 * KIB}),
        (disk("No Such SSD", rotational=False), "SATA or SAS SSD", {"page_size": 16 * KIB}),
        (disk("SD32G", kind=DiskKind.SD), "SD card or eMMC", {"erase_block": 4 * MIB}),
        (disk("MMC32G", kind=DiskKind.EMMC), "SD card or eMMC", {"erase_block": 4 * MIB}),
        (disk("Cruzer", kind=DiskKind.USB, rotational=False), "USB flash drive", {"erase_block": 4 * MIB}),
        (disk(kind=DiskKind.VIRTIO, rotational=True), "virtual disk", {"physical_block_size": 4 * KIB}),
        (
            disk("VBOX HARDDISK", rotational=True),
            "virtual disk, by its name",
            {"physical_block_size": 4 * KIB},
        ),
        (disk("QEMU NVMe Ctrl", kind=DiskKind.NVME), "virtual disk, by its name", {"page_size": None}),
        (disk(kind=DiskKind.IMAGE), "image file", {"physical_block_size": 4 * KIB}),
        (disk("X", size=3 * TIB, rotational=True), "hard disk above 2 TiB", {"physical_block_size": 4 * KIB}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_drive_that_no_row_knows_gets_the_default_of_its_class(
    database: DriveDatabase, what: Disk, name: str, facts: dict[str, object]
) -> None:
    found = database.known(what)
    assert [known.row for known in found] == [f"class: {name}"]
    assert found[0].source is Source.ASSUMED
    assert {name: getattr(found[0], name) for name in facts} == facts


@pytest.mark.parametrize(
    "what",
    [
        disk("ST31000528AS", size=10**12, rotational=True),  # says 512, and is believed
        disk("ST31000528AS", size=None, rotational=True),
        disk("LSI MR9260-8i", kind=DiskKind.SCSI, size=8 * TIB, rotational=True),
        disk(kind=DiskKind.MD),
        disk(kind=DiskKind.DM),
        disk(kind=DiskKind.LOOP),
    ],
)
def test_nothing_is_assumed_of_other_drives(database: DriveDatabase, what: Disk) -> None:
    assert database.known(what) == ()


def test_the_class_comes_after_the_rows_of_the_model(database: DriveDatabase) -> None:
    found = database.known(disk("INTEL SSDPFWNV153TZ", kind=DiskKind.NVME))
    assert [known.source for known in found] == [Source.KNOWN, Source.ASSUMED]
    assert of_class(found) == ["class: NVMe SSD"]


# --- Search -----------------------------------------------------------------------------------------------------------


def test_a_search_takes_a_model_a_part_of_one_or_a_name(database: DriveDatabase) -> None:
    assert of_model(database.search("WD20EARS")) == ["WD Caviar Green EARS"]
    assert of_model(database.search("x25-m")) == ["Intel X25-M"]
    assert "Samsung 950 PRO" in of_model(database.search("950 pro"))
    assert database.search("no such drive") == ()
    assert database.search("") == ()


def test_a_search_without_firmware_shows_the_rows_for_every_firmware(database: DriveDatabase) -> None:
    assert len(database.search("KINGSTON SNV2S1000G")) == 2
    assert of_model(database.search("KINGSTON SNV2S1000G", firmware="ELFK0S.6")) == ["Kingston NV2"]


# --- Strictness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "complaint", "hint"),
    [
        ('page = "16KiB"', 'pgae = "16KiB"', "unknown key 'pgae'", "did you mean 'page'?"),
        ('page = "16KiB"', 'physical_sectors = "4KiB"', "unknown key", "'physical_sector'"),
        ('page = "16KiB"', 'page = "16KB"', "page: '16KB' is not a size", ""),
        ('page = "16KiB"', "page = 16384", "page must be a text", ""),
        ('page = "16KiB"', 'page = "12KiB"', "power of two", ""),
        ('page = "16KiB"', 'page = "1B"', "at least 512B", ""),
        ('page = "16KiB"', 'dram = "maybe"', "dram must be true, false", ""),
        ('page = "16KiB"', 'hybrid = "yes"', "hybrid must be true or false", ""),
        ('page = "16KiB"', 'distrust = "minimum_io"', "no queue limit", "minimum_io_size"),
        ('page = "16KiB"', 'bus = "nmve"', "no kind of disk", "nvme"),
        ('page = "16KiB"', 'capacity_min = "2TB"', "'2TB' is not a size", ""),
        ('confidence = "high"', 'confidence = "hihg"', "confidence cannot be 'hihg'", "did you mean 'high'?"),
        ('confidence = "high"', "", "confidence is missing", ""),
        ('source = "https://example.org/rr"', "", "source is missing", ""),
        ('source = "https://example.org/rr"', 'source = "  "', "source must be a text", ""),
        ('name = "Roadrunner"', "", "name is missing", ""),
        ('match = ["RR-*"]', "", "match is missing", ""),
        ('match = ["RR-*"]', 'match = ["RR-[12"]', "no pattern", ""),
        ('match = ["RR-*"]', "match = [1]", "match must be a text or a list of texts", ""),
        ('examples = ["ACME RR-1"]', "", "examples is missing", ""),
        ('makers = ["ACME"]', 'maker = ["ACME"]', "unknown key 'maker'", "did you mean 'makers'?"),
        ("[[drive]]", "[[drives]]", "unknown key 'drives'", "did you mean 'drive'?"),
        ("[[drive]]", "[drive]", "drive must be a list of tables", "[[drive]]"),
        ("[[drive]]", "[[drive]", "no valid TOML", ""),
    ],
)
def test_a_mistake_in_a_row_is_refused_by_name(before: str, after: str, complaint: str, hint: str) -> None:
    assert before in ROW
    with pytest.raises(Refused) as refused:
        parse_drives([("recipes/drives/acme.toml", ROW.replace(before, after))])
    assert str(refused.value).startswith("recipes/drives/acme.toml")
    assert complaint in str(refused.value)
    assert hint in refused.value.hint


def test_the_row_that_the_mistakes_are_made_in_is_good_itself() -> None:
    acme = parse_drives([("acme.toml", ROW)])
    assert of_model(acme.known(disk("ACME RR-9"))) == ["Roadrunner"]
    assert of_model(acme.known(disk("RR-9"))) == ["Roadrunner"]
    assert of_model(acme.known(disk("XRR-9"))) == []


def test_a_complaint_names_the_row() -> None:
    with pytest.raises(Refused, match=r'acme\.toml, drive "Roadrunner": unknown key'):
        parse_drives([("acme.toml", ROW.replace("page", "pages"))])


# --- Patterns ---------------------------------------------------------------------------------------------------------

TEXTS = st.text("ab-1", max_size=12)
PIECES = st.sampled_from(["a", "b", "-", "1", "*", "?", "[ab]", "[!a]", "[a-b]", "[0-9]", "[!0-9b]"])


@given(pattern=st.lists(PIECES, max_size=9).map("".join), text=TEXTS)
def test_a_pattern_fits_what_fnmatch_says_it_fits(pattern: str, text: str) -> None:
    assert parse_pattern(pattern).fits(text) == fnmatchcase(text, pattern)


@given(model=st.text(max_size=64), firmware=st.text(max_size=16), kind=st.sampled_from(DiskKind))
def test_no_model_name_is_too_strange(model: str, firmware: str, kind: DiskKind) -> None:
    for known in load_once().known(disk(model, kind=kind, firmware=firmware)):
        assert known.citation


@cache
def load_once() -> DriveDatabase:
    return load_drives()


def test_a_long_hostile_model_name_takes_no_time() -> None:
    before = time.process_time()
    assert not parse_pattern("*a*a*a*a*a*a*a*b").fits("a" * 4000)
    assert time.process_time() - before < 1


@given(st.text(max_size=40))
def test_spelling_a_name_normally_twice_changes_nothing(model: str) -> None:
    once = normal(model).removeprefix("ata ")
    assert " ".join(once.split()) == once
