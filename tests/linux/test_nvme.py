"""Identify pages: the layout in libnvme's header, and the values that the kernel computes."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.formats.identify import decode_hmb, decode_nvme
from aligntool.inventory import NvmeFacts, Unseen
from aligntool.linux.look import look
from aligntool.units import GIB, KIB, MIB
from tests.conftest import run
from tests.linux.trees import MadeDisk, make_tree

HEADER = Path("/usr/include/nvme/types.h")

C = """
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <endian.h>
#include <libnvme.h>
static struct nvme_id_ctrl c; static struct nvme_id_ns n; static struct nvme_host_mem_buf_attrs h;
int main(void) {
    memcpy(c.sn, "S1234567            ", 20); memcpy(c.fr, "FW1.0   ", 8);
    memcpy(c.mn, "A model of forty characters             ", 40);
    c.mdts = 5; c.hmpre = htole32(16384); c.hmmin = htole32(2560); c.awun = htole16(7); c.awupf = htole16(3);
    n.nsze = htole64(1000000); n.nsfeat = 0x12; n.nlbaf = 2; n.flbas = 1;
    n.nawun = htole16(15); n.nawupf = htole16(1); n.noiob = htole16(32);
    n.npwg = htole16(3); n.npwa = htole16(1); n.npdg = htole16(255); n.npda = htole16(127); n.nows = htole16(31);
    n.lbaf[0].ds = 9; n.lbaf[0].rp = 2; n.lbaf[1].ds = 12; n.lbaf[1].rp = 0;
    n.lbaf[2].ds = 12; n.lbaf[2].ms = htole16(8); n.lbaf[2].rp = 3;
    h.hsize = htole32(8192);
    unsigned char page[4096] = {0};
    fwrite(&c, 4096, 1, stdout); fwrite(&n, 4096, 1, stdout);
    memcpy(page, &h, sizeof h); fwrite(page, 4096, 1, stdout);
    return 0;
}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, bytes]:
    """Fill pages through the structures of libnvme, by their field names."""
    if not HEADER.exists():
        pytest.skip("not installed: libnvme-dev; `make test` installs it")
    folder = tmp_path_factory.mktemp("pages")
    (folder / "pages.c").write_text(C)
    run("cc", "-o", folder / "pages", folder / "pages.c")
    run("sh", "-c", f"{folder}/pages > {folder}/pages.bin")
    raw = (folder / "pages.bin").read_bytes()
    return raw[:4096], raw[4096:8192], raw[8192:]


@pytest.mark.needs_tools("cc")
def test_every_field_is_read_where_libnvme_defines_it(pages: tuple[bytes, bytes, bytes]) -> None:
    facts = decode_nvme(pages[0], pages[1], hmb_granted=decode_hmb(1, pages[2]))
    formats = [(lba.data_size, lba.metadata_size, lba.relative_performance) for lba in facts.formats]
    assert formats == [(512, 0, 2), (4096, 0, 0), (4096, 8, 3)]
    assert facts.format_in_use == 1
    assert facts.max_transfer == 32 * 4096
    assert (facts.hmb_preferred, facts.hmb_minimum, facts.hmb_granted) == (64 * MIB, 10 * MIB, 32 * MIB)
    # Zero-based fields are one more; NOIOB is not zero-based. All in blocks of 4096.
    assert facts.preferred_write_granularity == 4 * 4096
    assert facts.preferred_write_alignment == 2 * 4096
    assert facts.preferred_deallocate_granularity == 256 * 4096
    assert facts.preferred_deallocate_alignment == 128 * 4096
    assert facts.optimal_write_size == 32 * 4096
    assert facts.optimal_io_boundary == 32 * 4096
    assert (facts.atomic_write_unit, facts.atomic_write_unit_power_fail) == (16 * 4096, 2 * 4096)


def namespace_page(**fields: int) -> bytes:
    page = bytearray(4096)
    offsets = {"nsfeat": (24, "B"), "nlbaf": (25, "B"), "flbas": (26, "B"), "nawun": (34, "<H"), "npwg": (64, "<H"),
               "npdg": (68, "<H"), "nows": (72, "<H"), "nulbaf": (82, "B"), "lbaf0": (128, "<I"), "lbaf1": (132, "<I"),
               "lbaf17": (128 + 4 * 17, "<I"), "lbaf63": (128 + 4 * 63, "<I")}  # fmt: skip
    for name, value in fields.items():
        struct.pack_into(offsets[name][1], page, offsets[name][0], value)
    return bytes(page)


def lbads(shift: int) -> int:
    return shift << 16


def test_preferred_sizes_are_ignored_without_the_bit_that_declares_them() -> None:
    facts = decode_nvme(b"", namespace_page(lbaf0=lbads(9), npwg=7, nows=7))
    assert facts.preferred_write_granularity is None
    assert facts.optimal_write_size is None
    assert facts.preferred_deallocate_granularity is None


def test_since_nvme_2_1_two_bits_declare_the_preferred_sizes() -> None:
    facts = decode_nvme(b"", namespace_page(lbaf0=lbads(12), nsfeat=0b10_0000, npwg=3, npdg=3))
    assert facts.preferred_write_granularity == 16 * KIB
    assert facts.preferred_deallocate_granularity is None  # it is in another page then


def test_the_atomic_size_of_the_namespace_is_used_only_if_valid_and_not_zero() -> None:
    controller = bytearray(4096)
    controller[24:30] = b"a disk"
    struct.pack_into("<HH", controller, 526, 7, 0)
    for page in (namespace_page(lbaf0=lbads(9), nawun=31), namespace_page(lbaf0=lbads(9), nsfeat=0b10)):
        facts = decode_nvme(bytes(controller), page)
        assert (facts.atomic_write_unit, facts.atomic_write_unit_power_fail) == (8 * 512, 512)
    facts = decode_nvme(b"", namespace_page(lbaf0=lbads(9), nsfeat=0b10, nawun=31))
    assert facts.atomic_write_unit == 32 * 512


def test_the_format_in_use_may_have_a_number_above_fifteen() -> None:
    page = namespace_page(nlbaf=17, flbas=0b0010_0001, lbaf0=lbads(9), lbaf17=lbads(12))
    facts = decode_nvme(b"", page)
    assert facts.format_in_use == 17
    assert [lba.data_size for lba in facts.formats if lba.index == 17] == [4096]


@pytest.mark.parametrize("shift", [0, 1, 8, 33, 64, 255])
def test_a_format_with_an_impossible_block_size_is_ignored(shift: int) -> None:
    facts = decode_nvme(b"", namespace_page(nsfeat=0x10, lbaf0=lbads(shift), npwg=7))
    assert (facts.formats, facts.format_in_use) == ((), 0)
    assert facts.preferred_write_granularity is None


def test_no_transfer_limit_and_an_implausible_one_are_distinguished() -> None:
    page = bytearray(4096)
    page[24] = ord("x")
    for mdts, expected in ((0, 0), (5, 128 * KIB), (255, None)):
        page[77] = mdts
        facts = decode_nvme(bytes(page), b"")
        assert (facts.max_transfer, facts.hmb_preferred) == (expected, 0)


def test_a_host_memory_buffer_that_is_off_counts_as_0_bytes() -> None:
    assert decode_hmb(0, struct.pack("<I", 8192)) == 0
    assert decode_hmb(1, struct.pack("<I", 8192)) == 32 * MIB
    assert decode_hmb(1, b"") == 0


@pytest.mark.parametrize("page", [b"", bytes(4095), bytes(4096)])
def test_an_empty_page_gives_no_facts(page: bytes) -> None:
    assert decode_nvme(page, page) == NvmeFacts()


@given(st.binary(min_size=384, max_size=384), st.binary(min_size=540, max_size=540))
def test_any_page_decodes_to_plausible_values(namespace_start: bytes, controller_start: bytes) -> None:
    facts = decode_nvme(controller_start.ljust(4096, b"\xff"), namespace_start.ljust(4096, b"\xff"))
    assert len(facts.formats) <= 64
    assert all(512 <= lba.data_size <= 2**32 for lba in facts.formats)
    assert all(value is None or value >= 0 for value in (facts.preferred_write_granularity, facts.max_transfer))


def test_the_pages_of_a_captured_tree_are_used(tmp_path: Path) -> None:
    root = make_tree(tmp_path, [MadeDisk("nvme0n1", GIB, model="Cut", device={"hmb": "1", "sqsize": "1023"})])
    place = root / "aligntool/identify"
    place.mkdir(parents=True)
    (place / "nvme0n1.ns").write_bytes(namespace_page(nsfeat=0x10, lbaf0=lbads(12), npwg=3))
    (place / "nvme0n1.hmb").write_bytes(struct.pack("<II", 1, 4096))
    (disk,) = look([], sysroot=str(root)).disks
    assert disk.nvme is not None
    assert disk.nvme.preferred_write_granularity == 16 * KIB
    assert (disk.nvme.hmb_granted, disk.nvme.hmb_enabled) == (16 * MIB, True)
    assert disk.queue_depth == 1024
    assert not any(unseen.what == "NVMe Identify" for unseen in disk.unseen)


def test_missing_pages_in_a_captured_tree_are_reported(tmp_path: Path) -> None:
    (disk,) = look([], sysroot=str(make_tree(tmp_path, [MadeDisk("nvme0n1", GIB)]))).disks
    assert Unseen("NVMe Identify", "the captured tree does not contain it") in disk.unseen
