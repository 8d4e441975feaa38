"""Arbitrary bytes, and real superblocks with bytes changed: the answer is layers or OSError, in bounded time."""

import zlib
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aligntool.contents import lvm_text
from aligntool.contents.layers import read_layers
from aligntool.formats.reader import LEVELS, WORDS, OverBudgetError
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB, Extent
from tests.conftest import find_tool, run
from tests.contents.test_md import superblock_0_90, superblock_1
from tests.contents.test_other_kinds import intel_block, zfs_label
from tests.contents.test_windows_file_systems import bitlocker
from tests.in_memory import BytesReader
from tests.thorough import examples

KEPT = 2 * MIB  # of an image: all the superblocks are in it
QUICK = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "-q", "--key-file", "-", "--disable-locks")

MADE = {
    "ext4": (24 * MIB, ("mkfs.ext4", "-q", "-F")),
    "xfs": (600 * MIB, ("mkfs.xfs", "-q", "-f")),
    "btrfs": (128 * MIB, ("mkfs.btrfs", "-q")),
    "f2fs": (64 * MIB, ("mkfs.f2fs", "-q", "-O", "extra_attr,sb_checksum")),
    "swap": (8 * MIB, ("mkswap",)),
    "vfat16": (64 * MIB, ("mkfs.fat", "-F16")),
    "vfat32": (64 * MIB, ("mkfs.fat", "-F32", "-n", "LABEL")),
    "exfat": (64 * MIB, ("mkfs.exfat", "-L", "label")),
    "ntfs": (16 * MIB, ("mkfs.ntfs", "-q", "-F", "-f", "-L", "label")),
    "luks1": (24 * MIB, ("cryptsetup", "luksFormat", "--type", "luks1", *QUICK)),
    "luks2": (24 * MIB, ("cryptsetup", "luksFormat", "--type", "luks2", *QUICK)),
    "bcache": (32 * MIB, ("make-bcache", "-B")),
}


@dataclass(frozen=True)
class Image:
    content: bytes  # the first bytes of a partition
    size: int  # of the whole partition
    written: tuple[int, ...]  # where it is not zero, in steps of 8, at most some thousands


def image(content: bytes, size: int) -> Image:
    written = [at for at in range(0, len(content), 8) if content[at : at + 8] != bytes(8)]
    return Image(content, size, tuple(written[:4000]))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    found = dict(_written_here())
    for name, (size, command) in MADE.items():
        if find_tool(command[0]):
            path = tmp_path_factory.mktemp(name) / "image"
            with path.open("wb") as file:
                file.truncate(size)
            run(*command, path, stdin="secret")
            with path.open("rb") as file:
                found[name] = image(file.read(KEPT), size)
    return found


def _written_here() -> list[tuple[str, Image]]:
    made = []
    for name, (at, block) in (
        ("md 1.2", superblock_1("1.2", "raid1")),
        ("md 1.1", superblock_1("1.1", "raid5", chunk=4096)),
        ("md 0.90", (2 * MIB - 64 * KIB, superblock_0_90("raid1", size=MIB)[1])),
        ("isw", (2 * MIB - 1024, intel_block(level=0, strip=65536, members=2, start=MIB)[:512])),
    ):
        content = bytearray(2 * MIB)
        content[at : at + len(block)] = block
        made.append((name, image(bytes(content), 2 * MIB)))
    made.append(("zfs", image(zfs_label(ashift=12, order="<"), 96 * MIB)))
    made.append(("BitLocker", image(bitlocker(start=b"\xeb\x58\x90-FVE-FS-", metadata_field=176), 4 * MIB)))
    made.append(("LVM", image(physical_volume(GROUP.encode()), 16 * MIB)))
    return made


GROUP = """vg { extent_size = 2048 physical_volumes { pv0 { id = "000000-0000-0000-0000-0000-0000-000000"
pe_start = 2048 pe_count = 15 } } logical_volumes { one { status = ["VISIBLE"] segment_count = 2
segment1 { start_extent = 0 extent_count = 3 type = "striped" stripe_count = 1 stripes = ["pv0", 1] }
segment2 { start_extent = 3 extent_count = 4 type = "striped" stripe_count = 2 stripe_size = 128
stripes = ["pv0", 5, "pv1", 0] }
} } }"""


def physical_volume(text: bytes) -> bytes:
    """Make a label, header and metadata area with right checksums, so that the text itself is parsed
    (lvm2's layout.h).
    """

    def summed(data: bytes) -> bytes:
        return (zlib.crc32(data, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF).to_bytes(4, "little")

    def numbers(*values: int) -> bytes:
        return b"".join(value.to_bytes(8, "little") for value in values)

    rest = (
        (32).to_bytes(4, "little") + b"LVM2 001" + b"0" * 32 + numbers(16 * MIB, MIB, 0, 0, 0, 4096, MIB - 4096, 0, 0)
    )
    rest = rest.ljust(512 - 20, b"\0")
    label = b"LABELONE" + numbers(1) + summed(rest) + rest
    area = b" LVM2 x[5A%r0N*>" + (1).to_bytes(4, "little") + numbers(4096, MIB - 4096, 512, len(text)) + summed(text)
    area = area.ljust(508, b"\0")
    content = bytearray(2 * MIB)
    content[512:1024] = label
    content[4096 : 4096 + 512 + len(text)] = summed(area) + area + text
    return bytes(content)


def look(content: bytes, extent: Extent) -> tuple[Layer, ...]:
    layers = read_layers(BytesReader(content), extent)
    for layer in layers:
        check(layer)
    return layers


def check(layer: Layer) -> None:
    """Check that the answer has sane types, whatever the bytes were."""
    assert layer.kind
    assert layer.extent.length >= 0
    for number in (layer.data_start, layer.claims_size, layer.stripe_unit, layer.stripe_width, layer.raid_chunk):
        assert number is None or (isinstance(number, int) and number >= 0)
    assert layer.data_unit is None or layer.data_unit > 0
    for text in (layer.version, layer.label, layer.uuid, *layer.problems):
        assert text is None or text.encode("utf-8", "surrogatepass")
    for inner in layer.inner:
        check(inner)


@settings(deadline=20_000, max_examples=examples(150))
@given(st.binary(max_size=8192), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_any_bytes_in_any_extent_give_a_valid_answer(content: bytes, start: int, length: int) -> None:
    look(content, Extent(start % (len(content) + 2), length))
    look(content * 300, Extent(0, length))


@settings(deadline=20_000, max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_real_superblocks_with_changed_bytes_give_a_valid_answer(images: dict[str, Image], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(images)))
    size, content = images[name].size, bytearray(images[name].content)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.sampled_from(images[name].written)) + data.draw(st.integers(0, 7))
        new = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=8), st.sampled_from([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 3])
            )
        )
        if at + len(new) <= len(content):
            content[at : at + len(new)] = new
    length = data.draw(st.sampled_from([size, size, 1025, 64 * KIB, 1 << 62, data.draw(st.integers(0, size))]))
    look(bytes(content), Extent(data.draw(st.sampled_from([0, 0, 0, 512])), length))


def test_every_image_is_recognised_before_it_is_damaged(images: dict[str, Image]) -> None:
    unseen = [name for name, made in images.items() if not look(made.content, Extent(0, made.size))]
    assert unseen == []


@settings(deadline=20_000, max_examples=examples(200))
@given(st.text(alphabet='ab1 ={}[],"\\#\n-.', max_size=300))
def test_the_lvm_text_parser_accepts_any_text(text: str) -> None:
    assert isinstance(lvm_text.parse(text), dict)


@settings(deadline=20_000, max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, len(GROUP)), st.text(alphabet='019{}[]",= pv-\x00é', max_size=4)), max_size=4))
def test_an_lvm_group_with_changed_words_and_a_corrected_checksum_is_read(changes: list[tuple[int, str]]) -> None:
    text = GROUP
    for at, new in changes:
        text = text[:at] + new + text[at + len(new) :]
    (layer, *_) = look(physical_volume(text.encode()), Extent(0, 16 * MIB))
    assert layer.problems == () or all("checksum" not in problem for problem in layer.problems)


def test_an_lvm_group_of_a_million_extents_and_nonsense_numbers_is_read() -> None:
    text = GROUP.replace("extent_count = 3", "extent_count = 999999999999999999").replace(
        "2048", "99999999999999999999"
    )
    (layer,) = look(physical_volume(text.encode()), Extent(0, 16 * MIB))
    assert layer.kind == "LVM2_member"


def test_a_json_area_full_of_brackets_is_handled(images: dict[str, Image]) -> None:
    if "luks2" not in images:
        pytest.skip("not installed: cryptsetup")
    content = bytearray(images["luks2"].content)
    content[8:16] = (2 * MIB).to_bytes(8, "big")
    content[4096 : 2 * MIB] = b"[" * (2 * MIB - 4096)
    with pytest.raises(OverBudgetError, match=WORDS):
        look(bytes(content), Extent(0, 24 * MIB))
    content[100_000 : 2 * MIB] = bytes(2 * MIB - 100_000)
    (layer,) = look(bytes(content), Extent(0, 24 * MIB))
    assert layer.data_start is None
    assert any("lists no encrypted segment" in problem for problem in layer.problems)


def test_the_search_in_mirrors_inside_mirrors_ends() -> None:
    """Version 1.1 with its data at sector 0 contains itself."""
    _, block = superblock_1("1.1", "raid1", data=0)
    content = bytearray(32 * MIB)
    content[: len(block)] = block
    with pytest.raises(OverBudgetError, match=LEVELS):
        read_layers(BytesReader(bytes(content)), Extent(0, 32 * MIB))
