"""Tables of real machines, and util-linux's own test images, compared with what other tools read from
the same bytes.
"""

import json
import lzma
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.inventory import Fault, Role, TableLabel
from tests.conftest import SHARED, run
from tests.formats.images import (
    ReportedPartition,
    faults_of,
    partx_partitions,
    places,
    read_image,
    sfdisk,
    sfdisk_partitions,
    table_of,
)
from tests.thorough import sample

LAYOUTS = sorted((SHARED / "layouts").glob("*.json"))
IMAGES = sorted((SHARED / "images").glob("*.img.xz"))
# sfdisk reads image files in 512-byte sectors only; the others have a test of their own.
IN_512 = [path for path in LAYOUTS if json.loads(path.read_text())["sector_size"] == 512]


def build(layout: Path, out: Path) -> Path:
    run("python3", layout.parent.parent / "build_layout.py", layout, out)
    return out


def unpack(image: Path, out: Path) -> Path:
    out.write_bytes(lzma.decompress(image.read_bytes()))
    return out


def mbr_type(code: str) -> str:
    return f"0x{int(code, 16):02x}"


@sample(8)
@pytest.mark.needs_tools("sfdisk", "python3")
@pytest.mark.parametrize("layout", IN_512, ids=lambda path: path.stem)
def test_the_table_of_a_real_machine_is_read_as_by_sfdisk(layout: Path, tmp_path: Path) -> None:
    image = build(layout, tmp_path / "disk.img")
    told, table_told = sfdisk_partitions(image), sfdisk(image)
    reading = read_image(image)
    table = table_of(reading)
    assert table.label == table_told["label"]
    assert table.disk_id == str(table_told["id"]).lower()
    assert places(reading) == {number: (part.start, part.size) for number, part in told.items()}
    for part in reading.partitions:
        truth = told[part.number]
        if table.label is TableLabel.GPT:
            assert (part.type_code, part.name) == (truth.type, truth.name)
            assert part.uuid == str(truth.uuid).lower()
        else:
            assert part.type_code == mbr_type(truth.type)


@sample(13)
@pytest.mark.needs_tools("python3")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("known", [True, False], ids=["sector size reported", "image file"])
def test_the_table_of_a_real_machine_has_the_numbers_of_its_layout(layout: Path, known: bool, tmp_path: Path) -> None:
    facts = json.loads(layout.read_text())
    image = build(layout, tmp_path / "disk.img")
    reading = read_image(image, facts["sector_size"] if known else None)
    table = table_of(reading)
    assert (table.label, table.sector_size) == (facts["label"], facts["sector_size"])
    made = {part["n"]: ReportedPartition(part["start"], part["size"], part["type"]) for part in facts["parts"]}
    assert places(reading) == {number: (part.start, part.size) for number, part in made.items()}
    for part in reading.partitions:
        code = made[part.number].type
        want = mbr_type(code) if facts["label"] == "dos" else str(uuid.UUID(code)).upper()
        assert part.type_code == want
        assert part.type_name, f"no name for type {part.type_code}"


@sample(7)
@pytest.mark.needs_tools("python3")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda path: path.stem)
def test_tables_of_real_machines_have_only_the_two_known_faults(layout: Path, tmp_path: Path) -> None:
    expected = {
        "mach-curtin-probert_storage_bogus_wwn-sdc": [Fault.OVERLAP],  # a hybrid ISO: one entry covers all
        "text-disko166-hybrid": [Fault.HYBRID_MBR],
    }
    reading = read_image(build(layout, tmp_path / "disk.img"))
    assert faults_of(reading) == expected.get(layout.stem, [])


@pytest.mark.needs_tools("python3")
def test_a_table_made_for_512_bytes_is_reported_on_a_disk_of_4096(shared_data: Path, tmp_path: Path) -> None:
    layout = shared_data / "layouts" / "text-understack2069-512-on-4kn.json"
    image = build(layout, tmp_path / "disk.img")
    reading = read_image(image, 4096)
    assert table_of(reading).sector_size == 512
    assert faults_of(reading) == [Fault.OTHER_SECTOR_SIZE]
    assert reading.partitions == read_image(image, 512).partitions


@pytest.mark.needs_tools("python3")
def test_a_table_made_for_4096_bytes_is_reported_on_a_disk_of_512(shared_data: Path, tmp_path: Path) -> None:
    image = build(shared_data / "layouts" / "text-imgbuilder2593-4k-as-512.json", tmp_path / "disk.img")
    reading = read_image(image, 512)
    assert table_of(reading).sector_size == 4096
    assert Fault.OTHER_SECTOR_SIZE in faults_of(reading)
    assert reading.partitions == read_image(image, 4096).partitions


@pytest.mark.needs_tools("partx")
@pytest.mark.parametrize("name", ["atari-primary", "atari-xgm", "dos+bsd", "gpt", "sgi"])
def test_partx_lists_the_same_partitions_in_an_image(name: str, shared_data: Path, tmp_path: Path) -> None:
    image = unpack(shared_data / "images" / f"{name}.img.xz", tmp_path / "disk.img")
    assert places(read_image(image)) == partx_partitions(image)


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("name", ["bsd", "gpt", "sgi", "sun"])
def test_sfdisk_lists_the_same_partitions_in_an_image(name: str, shared_data: Path, tmp_path: Path) -> None:
    image = unpack(shared_data / "images" / f"{name}.img.xz", tmp_path / "disk.img")
    told = sfdisk_partitions(image)
    reading = read_image(image)
    assert table_of(reading).label == sfdisk(image)["label"]
    assert places(reading) == {number: (part.start, part.size) for number, part in told.items()}
    for part in reading.partitions:
        if name in ("sgi", "sun"):
            assert part.type_code == mbr_type(told[part.number].type)
        else:
            assert part.type_code == told[part.number].type


@pytest.mark.needs_tools("partx")
def test_bsd_slices_in_a_dos_partition_are_nested_and_numbered_after_it(shared_data: Path, tmp_path: Path) -> None:
    image = unpack(shared_data / "images" / "dos+bsd.img.xz", tmp_path / "disk.img")
    roles = {part.number: part.role for part in read_image(image).partitions}
    assert roles == {1: Role.PRIMARY, 2: Role.PRIMARY, 5: Role.NESTED, 6: Role.NESTED}
    assert set(partx_partitions(image)) == set(roles)


# util-linux's own expectation for these two images (tests/expected/partx/partx-image-dasd-*, release 2.43):
# its Debian 12 release reads no DASD labels. In sectors of 512 bytes.
DASD = {"dasd-cdl": ("0X3726", {1: (192, 4032), 2: (4224, 4032)}), "dasd-ldl": ("0X3526", {1: (24, 14424456)})}


@pytest.mark.parametrize("name", sorted(DASD))
@pytest.mark.parametrize("sector_size", [None, 4096, 512])
def test_dasd_volumes_have_the_partitions_that_util_linux_expects(
    name: str, sector_size: int | None, shared_data: Path, tmp_path: Path
) -> None:
    image = unpack(shared_data / "images" / f"{name}.img.xz", tmp_path / "disk.img")
    serial, expected = DASD[name]
    reading = read_image(image, sector_size)
    table = table_of(reading)
    assert (table.label, table.sector_size, table.disk_id) == (TableLabel.DASD, 4096, serial)
    found = {part.number: (part.extent.start // 512, part.extent.length // 512) for part in reading.partitions}
    assert found == expected


def test_dasd_partitions_have_their_data_set_names(shared_data: Path, tmp_path: Path) -> None:
    image = unpack(shared_data / "images" / "dasd-cdl.img.xz", tmp_path / "disk.img")
    names = [(part.name, part.type_code) for part in read_image(image).partitions]
    assert names == [("LINUX.V0X3726.PART0001", "NATIVE"), ("LINUX.V0X3726.PART0002", "NATIVE")]


def test_the_layouts_and_images_are_present(shared_data: Path) -> None:
    assert len(LAYOUTS) >= 20 and len(IMAGES) >= 9


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "losetup")
def test_the_4096_byte_layout_is_read_as_by_sfdisk_on_a_loop_device(
    shared_data: Path, tmp_path: Path, loop: Callable[..., Path]
) -> None:
    image = build(shared_data / "layouts" / "text-imgbuilder2593-4k-as-512.json", tmp_path / "disk.img")
    told = sfdisk_partitions(loop(image, sector_size=4096))
    reading = read_image(image, 4096)
    assert places(reading) == {number: (part.start, part.size) for number, part in told.items()}
    assert table_of(reading).faults == ()
