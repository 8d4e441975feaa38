"""IDENTIFY DEVICE, compared with the output of hdparm for the same words."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.formats.identify import decode_identify, decode_names, identify_in_vpd
from aligntool.inventory import DiskKind
from aligntool.linux.commands import standby_in_sense
from aligntool.linux.look import look
from aligntool.units import GIB
from tests.conftest import run
from tests.linux.trees import MadeDisk, make_tree


def identify(**words: int) -> bytes:
    """Return a plain SATA disk of ACS-3 with the given words ("w106") in it."""
    data = [0] * 256
    data[0], data[1], data[3], data[6] = 0x0040, 0x3FFF, 16, 63
    data[49], data[53], data[80], data[83], data[86] = 0x2F00, 7, 0x03F0, 0x4400, 0x0400
    data[60], data[61], data[100], data[101] = 0xFFFF, 0x0FFF, 0x8870, 0xE8E0
    data[75], data[76], data[78] = 31, 0x0106, 0x0040
    for first, text in ((10, "WD-WMAZA1234567     "), (23, "51.0AB51"), (27, "WDC WD20EARS-00MVWB0".ljust(40))):
        for index in range(0, len(text), 2):
            data[first + index // 2] = ord(text[index]) << 8 | ord(text[index + 1])
    for name, value in words.items():
        data[int(name[1:])] = value
    raw = struct.pack("<255H", *data[:255]) + b"\xa5"
    return raw + bytes([-sum(raw) & 0xFF])


DRIVES = {
    "says nothing": {},
    "512 native": {"w106": 0x4000, "w217": 7200},
    "512e": {"w106": 0x6003, "w217": 5400},
    "512e with LBA 0 off the boundary": {"w106": 0x6003, "w209": 0x4001, "w217": 5400},
    "4K native": {"w106": 0x5000, "w117": 2048, "w118": 0, "w217": 7200},
    "4K native of 16 KiB sectors": {"w106": 0x7002, "w117": 2048, "w118": 0},
    "SSD": {"w106": 0x6003, "w217": 1},
    "invalid word 106": {"w106": 0x2003},
    "without NCQ": {"w76": 0x0006, "w75": 31},
    "short queue": {"w75": 7},
}


def hdparm(data: bytes) -> str:
    words = struct.unpack("<256H", data)
    return run("hdparm", "--Istdin", stdin=" ".join(f"{word:04x}" for word in words) + "\n")


def first(pattern: str, text: str, default: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else default


@pytest.mark.needs_tools("hdparm")
@pytest.mark.parametrize("words", DRIVES.values(), ids=DRIVES.keys())
def test_sectors_rotation_and_queue_are_read_as_by_hdparm(words: dict[str, int]) -> None:
    data = identify(**words)
    told, facts = hdparm(data), decode_identify(data)
    assert facts is not None
    either = first(r"Logical/Physical Sector size:\s+(\d+)", told, "512")
    assert facts.logical_sector_size == int(first(r"Logical\s+Sector size:\s+(\d+)", told, either))
    assert facts.physical_sector_size == int(first(r"Physical Sector size:\s+(\d+)", told, either))
    rotation = first(r"Rotation Rate: (.*)", told, "")
    assert facts.rotation_rpm == (1 if rotation == "Solid State Device" else int(rotation) if rotation else None)
    if "w76" not in words:
        assert facts.queue_depth == int(first(r"Queue depth: (\d+)", told, "0"))


@pytest.mark.needs_tools("hdparm")
def test_the_names_are_read_as_by_hdparm() -> None:
    told = hdparm(identify())
    assert decode_names(identify()) == tuple(
        first(rf"{title}:\s+(.*\S)", told, "") for title in ("Model Number", "Serial Number", "Firmware Revision")
    )


@pytest.mark.parametrize(("offset", "bytes_"), [(0, 0), (1, 3584), (7, 512), (4, 2048)])
def test_the_alignment_offset_is_computed_as_by_the_kernel(offset: int, bytes_: int) -> None:
    """include/linux/ata.h, ata_id_logical_sector_offset: (1 << 3) - first, and sd.c multiplies by the sector size."""
    facts = decode_identify(identify(w106=0x6003, w209=0x4000 | offset))
    assert facts is not None and facts.alignment_offset == bytes_


def test_without_ncq_the_queue_depth_is_1() -> None:
    for serial_ata in (0x0006, 0x0000, 0xFFFF):
        facts = decode_identify(identify(w76=serial_ata))
        assert facts is not None and facts.queue_depth == 1


@pytest.mark.parametrize(("word", "hybrid"), [(0x0240, True), (0x0040, False), (0, None), (0xFFFF, None)])
def test_a_hybrid_drive_is_recognised_by_word_78(word: int, hybrid: bool | None) -> None:
    facts = decode_identify(identify(w78=word))
    assert facts is not None and facts.hybrid is hybrid


def test_a_packet_device_and_an_empty_answer_are_not_a_disk() -> None:
    assert decode_identify(identify(w0=0x8580)) is None
    assert decode_identify(bytes(512)) is None
    assert decode_identify(identify()[:500]) is None


@given(st.binary(max_size=600))
def test_any_bytes_decode_to_plausible_values(data: bytes) -> None:
    facts = decode_identify(data)
    if facts is not None:
        assert 512 <= (facts.logical_sector_size or 0) <= 2 << 20
        assert 0 <= (facts.alignment_offset or 0) < (facts.physical_sector_size or 0)
        assert 1 <= (facts.queue_depth or 0) <= 32
    identify_in_vpd(data)
    standby_in_sense(data)


def vpd_page(data: bytes, command: int = 0xEC) -> bytes:
    """Return the page as libata makes it: drivers/ata/libata-scsi.c, ata_scsiop_inq_89."""
    head = bytearray(60)
    head[1], head[2:4], head[8:16], head[56] = 0x89, (0x238).to_bytes(2, "big"), b"linux   ", command
    return bytes(head) + data


def test_the_vpd_page_in_sysfs_gives_the_facts_and_the_whole_model_without_root(tmp_path: Path) -> None:
    page = vpd_page(identify(w106=0x6003, w217=5400))
    made = MadeDisk("sda", GIB, vendor="ATA", model="WDC WD20EARS-00M", firmware="51.0", device={"vpd_pg89": page})
    (disk,) = look([], sysroot=str(make_tree(tmp_path, [made]))).disks
    assert disk.kind is DiskKind.ATA and disk.ata is not None
    assert (disk.ata.logical_sector_size, disk.ata.physical_sector_size, disk.ata.rotation_rpm) == (512, 4096, 5400)
    assert (disk.model, disk.serial, disk.firmware) == ("WDC WD20EARS-00MVWB0", "WD-WMAZA1234567", "51.0AB51")


def test_the_page_of_an_optical_drive_or_another_page_gives_no_facts() -> None:
    assert identify_in_vpd(vpd_page(identify(), command=0xA1)) is None
    assert identify_in_vpd(b"\0\x88" + vpd_page(identify())[2:]) is None
    assert identify_in_vpd(vpd_page(identify())[:500]) is None
    assert identify_in_vpd(None) is None


@pytest.mark.parametrize(("count", "standby"), [(0x00, True), (0x80, False), (0xFF, False)])
def test_the_power_mode_is_read_from_the_returned_registers(count: int, standby: bool) -> None:
    """SAT-3, 12.2.7: descriptor 09h, its count at byte 5 of the descriptor."""
    sense = bytes([0x72, 1, 0, 0x1D, 0, 0, 0, 14, 0x09, 0x0C, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0x40, 0x50])
    assert standby_in_sense(sense) is standby
    fixed = bytes([0x70, 0, 1, 0, 0x50, 0x40, count, 10, 0, 0, 0, 0, 0x00, 0x1D, 0, 0, 0, 0])
    assert standby_in_sense(fixed) is standby


def test_a_drive_without_a_reported_power_mode_does_not_count_as_asleep() -> None:
    assert standby_in_sense(bytes(32)) is None
    older_linux = bytes([0x70, 0, 1, 0, 0, 0, 0, 10, 0, 0x50, 0x40, 0xFF, 0x00, 0x1D, 0, 0, 0, 0])
    assert standby_in_sense(older_linux) is None
    assert standby_in_sense(b"") is None
