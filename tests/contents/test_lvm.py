"""Physical volumes made by LVM's own tools on loop devices without device mapper; offsets as in `pvs --segments`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aligntool.contents import lvm as lvm_format
from aligntool.contents import lvm_text
from aligntool.contents.catalogue import smallest_unit
from aligntool.formats.reader import MAY_BE_SHARED, Area, Budget
from aligntool.inventory import Layer, Segment
from aligntool.units import KIB, MIB, Extent
from tests.conftest import find_tool, run
from tests.contents.placed_partitions import agree, blkid, bytes_of, layers_of
from tests.in_memory import BytesReader

Sparse = Callable[..., Path]
Loop = Callable[..., Path]

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("lvm", "blkid")]


class Lvm:
    """LVM that sees only the given devices, uses its own folder and no kernel driver."""

    def __init__(self, folder: Path, *devices: Path) -> None:
        self.folder, self.devices = folder, devices
        folder.mkdir()

    def __call__(self, command: str, *words: str | Path) -> str:
        accepted = ",".join(f'"a|^{device}$|"' for device in self.devices)
        config = f'devices {{ filter=[{accepted},"r|.*|"] }} global {{ use_lvmlockd=0 }}'
        lvm = find_tool("lvm") or "lvm"
        environment = (f"LVM_SYSTEM_DIR={self.folder}", "LVM_SUPPRESS_FD_WARNINGS=1")
        return run("env", *environment, lvm, command, "--config", config, "--driverloaded", "n", *words)

    def segments(self, device: Path) -> set[tuple[str, int, int]]:
        """Return (logical volume, first byte on the device, bytes), as pvs reports them."""
        report = json.loads(
            self("pvs", "--segments", "--reportformat", "json", "--units", "b", "--nosuffix", "-a", "-o",
                 "lv_full_name,lv_name,pvseg_start,pvseg_size,pe_start,vg_extent_size,vg_name", device)
        )  # fmt: skip
        rows = report["report"][0]["pvseg"]
        return {
            (
                f"{row['vg_name']}/{row['lv_name'].strip('[]')}",
                int(row["pe_start"]) + int(row["pvseg_start"]) * int(row["vg_extent_size"]),
                int(row["pvseg_size"]) * int(row["vg_extent_size"]),
            )
            for row in rows
            if row["lv_name"]
        }

    def create(self, *words: str) -> None:
        self("lvcreate", "-an", "-Zn", "-Wn", *words)


@pytest.fixture
def made(tmp_path: Path, sparse: Sparse, loop: Loop) -> Callable[..., tuple[Lvm, list[Path], list[Path]]]:
    """Make physical volumes; return LVM, the images and the devices."""

    def make(count: int, *options: str, size: int = 64 * MIB) -> tuple[Lvm, list[Path], list[Path]]:
        images = [sparse(size, f"pv{index}.img") for index in range(count)]
        devices = [loop(image) for image in images]
        lvm = Lvm(tmp_path / "lvm", *devices)
        lvm("pvcreate", "-q", *options, *devices)
        return lvm, images, devices

    return make


Made = Callable[..., tuple[Lvm, list[Path], list[Path]]]


def the_layer(image: Path) -> Layer:
    (layer,) = layers_of(image)
    assert layer.problems == ()
    agree(layer, blkid(image))
    return layer


@pytest.mark.parametrize(
    "options", [(), ("--dataalignment", "512k"), ("--dataalignmentoffset", "7s"), ("--metadatacopies", "2")]
)
def test_the_data_start_of_a_physical_volume_without_a_group_is_read(made: Made, options: tuple[str, ...]) -> None:
    lvm, (image,), (device,) = made(1, *options)
    layer = the_layer(image)
    facts = lvm("pvs", "--noheadings", "--units", "b", "--nosuffix", "-o", "pe_start,pv_uuid,dev_size", device).split()
    assert layer.data_start == int(facts[0])
    assert layer.uuid == facts[1]
    assert layer.claims_size == int(facts[2])
    assert (layer.data_unit, layer.segments, layer.inner) == (None, (), ())


def test_every_segment_of_linear_and_striped_volumes_is_listed(made: Made) -> None:
    lvm, images, devices = made(2)
    lvm("vgcreate", "-q", "-s", "1m", "vg", *devices)
    lvm.create("-L", "8m", "-n", "one", "vg", str(devices[0]))
    lvm.create("-L", "5m", "-n", "two", "vg", str(devices[0]))
    lvm("lvextend", "-q", "-L", "+3m", "vg/one", str(devices[0]))
    lvm.create("-i2", "-I", "64k", "-L", "12m", "-n", "wide", "vg")
    for image, device in zip(images, devices, strict=True):
        layer = the_layer(image)
        assert layer.data_unit == MIB
        seen = {(part.volume, part.extent.start, part.extent.length) for part in layer.segments}
        assert seen == lvm.segments(device)
        assert {part.stripe_size for part in layer.segments if part.volume == "vg/wide"} == {64 * KIB}
    one = [part for part in the_layer(images[0]).segments if part.volume == "vg/one"]
    assert [part.volume_offset for part in one] == [0, 8 * MIB]


def test_metadata_that_wrapped_around_its_ring_is_read(made: Made) -> None:
    lvm, (image,), (device,) = made(1, "--metadatasize", "32k", "--dataalignment", "4k")
    lvm("vgcreate", "-q", "-s", "1m", "vg", device)
    wrapped = 0
    for turn in range(12):
        lvm.create("-l", "1", "-n", f"{'volume' * 8}{turn}", "vg")
        content = bytes_of(image, 4096, 512)
        offset, length = (int.from_bytes(content[at : at + 8], "little") for at in (40, 48))
        wrapped += offset + length > int.from_bytes(content[32:40], "little")
        seen = {(part.volume, part.extent.start, part.extent.length) for part in the_layer(image).segments}
        assert seen == lvm.segments(device)
    assert wrapped, "the metadata never crossed the end of its area: the test shows nothing"


@pytest.mark.needs_tools("mkfs.ext4", "mkfs.xfs")
def test_file_systems_inside_volumes_are_found_at_their_places_on_the_disk(made: Made, sparse: Sparse) -> None:
    lvm, images, devices = made(2)
    lvm("vgcreate", "-q", "-s", "4m", "vg", *devices)
    lvm.create("-L", "8m", "-n", "gap", "vg", str(devices[0]))
    lvm.create("-L", "12m", "-n", "root", "vg", str(devices[0]))
    lvm.create("-L", "4m", "-n", "blocker", "vg", str(devices[0]))
    lvm("lvextend", "-q", "-L", "+8m", "vg/root", str(devices[0]))
    content = sparse(20 * MIB, "root.img")
    run("mkfs.ext4", "-q", "-F", "-L", "root", content)
    first, second = (part.extent for part in the_layer(images[0]).segments if part.volume == "vg/root")
    data = content.read_bytes()
    with images[0].open("r+b") as file:
        for extent, piece in ((first, data[: 12 * MIB]), (second, data[12 * MIB :])):
            file.seek(extent.start)
            file.write(piece)
    (inner,) = the_layer(images[0]).inner
    assert (inner.kind, inner.label) == ("ext4", "root")
    assert inner.extent == Extent(first.start, 20 * MIB)
    assert inner.data_start == first.start
    assert inner.problems == ()


def test_a_hibernation_image_is_found_in_the_last_of_many_volumes(made: Made, sparse: Sparse) -> None:
    lvm, (image,), (device,) = made(1, size=128 * MIB)
    lvm("vgcreate", "-q", "-s", "1m", "vg", device)
    for number in range(60):
        lvm.create("-q", "-l", "1", "-n", f"volume{number}", "vg")
    swap = sparse(MIB, "swap.img")
    run("mkswap", swap)
    (last,) = (part.extent for part in the_layer(image).segments if part.volume == "vg/volume59")
    for mark, kinds in ((b"SWAPSPACE2", ["swap"]), (b"S1SUSPEND\0", ["swsuspend"])):
        with image.open("r+b") as file:
            file.seek(last.start)
            file.write(swap.read_bytes()[: 4 * KIB - 10] + mark)
        assert [(inner.kind, inner.extent.start) for inner in the_layer(image).inner] == [
            (k, last.start) for k in kinds
        ]


def logical(number: int, name: str, extents: int, kind: str, *, visible: bool = False) -> str:
    uuid = f"AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAA{number:02}"
    status = '["READ", "WRITE", "VISIBLE"]' if visible else '["READ", "WRITE"]'
    segment = f"segment1 {{ start_extent = 0 extent_count = {extents} {kind} }}"
    return f'{name} {{ id = "{uuid}" status = {status} flags = [] segment_count = 1 {segment} }}'


def linear(number: int, name: str, extents: int, place: str, *, visible: bool = False) -> str:
    return logical(number, name, extents, f'type = "striped" stripe_count = 1 stripes = [{place}]', visible=visible)


def group_of(group: str, physical: Sequence[str], volumes: Sequence[str]) -> str:
    """Make the metadata of a group that a kernel without device mapper cannot make."""
    sizes = 'device = "x" status = ["ALLOCATABLE"] flags = [] dev_size = 131072 pe_start = 2048 pe_count = 63'
    return "\n".join((
        'contents = "Text Format Volume Group"', "version = 1",
        f'vg {{ id = "{group}" seqno = 9 format = "lvm2" status = ["RESIZEABLE", "READ", "WRITE"] flags = []',
        "extent_size = 2048 max_lv = 0 max_pv = 0 metadata_copies = 0",
        "physical_volumes {", *(f'pv{at} {{ id = "{uuid}" {sizes} }}' for at, uuid in enumerate(physical)), "}",
        "logical_volumes {", *volumes, "} }",
    ))  # fmt: skip


def restored(lvm: Lvm, devices: Sequence[Path], volumes: Sequence[str]) -> None:
    """Make a group with these volumes."""
    uuids = [lvm("pvs", "--noheadings", "-o", "pv_uuid", device).strip() for device in devices]
    lvm("vgcreate", "-q", "-s", "1m", "vg", *devices)
    saved = lvm.folder / "edited.vg"
    saved.write_text(group_of(lvm("vgs", "--noheadings", "-o", "vg_uuid", "vg").strip(), uuids, volumes))
    lvm("vgcfgrestore", "--force", "-f", saved, "vg")


def raid_and_thin(*, striped: bool = False) -> tuple[str, ...]:
    """Make a mirror or a raid0 over two physical volumes, and a thin pool on the first."""
    images = '"m_rmeta_0", "m_rimage_0", "m_rmeta_1", "m_rimage_1"'
    mirror = f'type = "raid1" device_count = 2 region_size = 4096 raids = [{images}]'
    stripes = 'type = "raid0" device_count = 2 stripe_size = 128 raid0_lvs = ["m_rimage_0", "m_rimage_1"]'
    pool = 'type = "thin-pool" metadata = "p_tmeta" pool = "p_tdata" transaction_id = 0 chunk_size = 128'
    return (
        logical(1, "m", 10, stripes, visible=True) if striped else logical(1, "m", 5, mirror, visible=True),
        linear(2, "m_rmeta_0", 1, '"pv0", 3'),
        linear(3, "m_rimage_0", 5, '"pv0", 4'),
        linear(4, "m_rmeta_1", 1, '"pv1", 0'),
        linear(5, "m_rimage_1", 5, '"pv1", 1'),
        logical(6, "p", 20, f'{pool} discards = "passdown" zero_new_blocks = 1', visible=True),
        linear(7, "p_tdata", 20, '"pv0", 20'),
        linear(8, "p_tmeta", 4, '"pv0", 50'),
    )


@pytest.mark.needs_tools("mkfs.ext4")
def test_parts_of_mirrors_and_thin_pools_are_listed_and_a_mirrors_content_is_read(made: Made, sparse: Sparse) -> None:
    lvm, (image, _), devices = made(2)
    restored(lvm, devices, raid_and_thin())
    content = sparse(5 * MIB, "fs.img")
    run("mkfs.ext4", "-q", "-F", "-L", "half", content)
    with image.open("r+b") as file:
        file.seek(MIB + 4 * MIB)
        file.write(content.read_bytes())
    layer = the_layer(image)
    seen = {(part.volume, part.extent.start, part.extent.length) for part in layer.segments}
    assert seen == lvm.segments(devices[0])
    assert len(seen) == 4
    assert [(inner.kind, inner.label, inner.extent) for inner in layer.inner] == [
        ("ext4", "half", Extent(5 * MIB, 5 * MIB))
    ]


@pytest.mark.needs_tools("mkfs.ext4", "tune2fs")
@pytest.mark.parametrize("kind", ["raid1", "striped"])
def test_a_chunk_at_the_start_of_a_thin_pool_is_not_a_file_system_of_that_length(
    made: Made, sparse: Sparse, kind: str
) -> None:
    """A pool gives its first chunk to the volume that is written first, which may be longer than the pool."""
    lvm, (image, _), devices = made(2)
    images = '"p_tdata_rmeta_0", "p_tdata_rimage_0", "p_tdata_rmeta_1", "p_tdata_rimage_1"'
    mirror = (
        logical(2, "p_tdata", 20, f'type = "raid1" device_count = 2 region_size = 4096 raids = [{images}]'),
        linear(3, "p_tdata_rmeta_0", 1, '"pv0", 0'),
        linear(4, "p_tdata_rimage_0", 20, '"pv0", 1'),
        linear(5, "p_tdata_rmeta_1", 1, '"pv1", 0'),
        linear(6, "p_tdata_rimage_1", 20, '"pv1", 1'),
    )
    stripes = (
        logical(2, "p_tdata", 20, 'type = "striped" stripe_count = 2 stripe_size = 128 stripes = ["pv0", 1, "pv1", 1]'),
    )
    pool = 'type = "thin-pool" metadata = "p_tmeta" pool = "p_tdata" transaction_id = 1 chunk_size = 128'
    restored(lvm, devices, (
        logical(1, "p", 20, f'{pool} discards = "passdown" zero_new_blocks = 1', visible=True),
        *(mirror if kind == "raid1" else stripes),
        linear(7, "p_tmeta", 4, '"pv0", 50'),
        logical(8, "v", 100, 'type = "thin" thin_pool = "p" transaction_id = 0 device_id = 1', visible=True),
    ))  # fmt: skip
    assert kind in lvm("lvs", "-a", "--noheadings", "-o", "segtype", "vg/p_tdata")
    content = sparse(100 * MIB, "fs.img")
    run("mkfs.ext4", "-q", "-F", "-O", "mmp", content)
    run("tune2fs", "-E", "force_fsck", content)  # what has to be repaired is searched at the start of striped volumes
    with image.open("r+b") as file:
        file.seek(2 * MIB)
        file.write(content.read_bytes()[: 64 * KIB])
    assert the_layer(image).inner == ()


@pytest.mark.needs_tools("mkfs.ext4", "mkswap")
def test_of_a_striped_raid_volume_only_a_hibernation_image_is_found(made: Made, sparse: Sparse) -> None:
    """Its first image has every other stripe: the file system is intact, although it is larger than the image."""
    lvm, (image, _), devices = made(2)
    restored(lvm, devices, raid_and_thin(striped=True))
    assert "raid0" in lvm("lvs", "--noheadings", "-o", "segtype", "vg/m")
    content = sparse(10 * MIB, "content.img")
    for make in (("mkfs.ext4", "-q", "-F"), ("mkswap",)):
        run(*make, content)
        data, stripe = content.read_bytes(), 64 * KIB
        data = b"".join(data[at : at + stripe] for at in range(0, len(data), 2 * stripe))
        with image.open("r+b") as file:
            file.seek(MIB + 4 * MIB)
            file.write(data)
        assert the_layer(image).inner == ()
    with image.open("r+b") as file:
        file.seek(MIB + 4 * MIB + 4 * KIB - 10)
        file.write(b"S1SUSPEND\0")
    assert [(inner.kind, inner.problems) for inner in the_layer(image).inner] == [("swsuspend", ())]


RAID6 = ", ".join(f'"s_rmeta_{number}", "s_rimage_{number}"' for number in range(5))


@pytest.mark.parametrize(
    ("volumes", "disk", "extent"),
    [
        ((logical(1, "s", 8, 'type = "striped" stripe_count = 2 stripe_size = 128 stripes = ["pv0", 2, "pv1", 0]',
                  visible=True),), 0, 2),
        ((logical(1, "s", 8, 'type = "writecache" origin = "s_wcorig" writecache = "f_cvol" '
                  'writecache_block_size = 4096',
                  visible=True), linear(2, "s_wcorig", 8, '"pv0", 5'), linear(3, "f_cvol", 8, '"pv1", 0')), 0, 5),
        ((linear(1, "s", 4, '"pvmove0", 4', visible=True), linear(2, "t", 4, '"pvmove0", 0', visible=True),
          'pvmove0 { id = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAA03" status = ["READ", "WRITE", "PVMOVE", "LOCKED"]'
          ' flags = [] allocation_policy = "contiguous" segment_count = 2'
          ' segment1 { start_extent = 0 extent_count = 4 type = "mirror" mirror_count = 2 extents_moved = 0'
          ' region_size = 1024 mirrors = ["pv0", 0, "pv1", 0] }'
          ' segment2 { start_extent = 4 extent_count = 4 type = "mirror" mirror_count = 2 extents_moved = 0'
          ' region_size = 1024 mirrors = ["pv0", 20, "pv1", 4] } }'), 0, 20),
        ((logical(1, "s", 6, f'type = "raid6" device_count = 5 stripe_size = 128 region_size = 4096 raids = [{RAID6}]',
                  visible=True),
          *(linear(2 + at, f"s_rmeta_{at}", 1, f'"pv{at % 2}", {at}') for at in range(5)),
          *(linear(7 + at, f"s_rimage_{at}", 2, f'"pv{at % 2}", {10 + 2 * at}')
            for at in range(5))), 0, 14),
    ],
    ids=["striped", "cached", "pvmove", "raid6_zr"],
)  # fmt: skip
def test_a_hibernation_image_is_found_at_the_start_of_a_volume_in_parts(
    made: Made, sparse: Sparse, volumes: Sequence[str], disk: int, extent: int
) -> None:
    lvm, images, devices = made(2)
    restored(lvm, devices, volumes)
    swap = sparse(8 * MIB, "swap.img")
    run("mkswap", swap)
    head = swap.read_bytes()[: 64 * KIB]
    for mark, kinds in ((b"SWAPSPACE2", []), (b"S1SUSPEND\0", ["swsuspend"])):
        with images[disk].open("r+b") as file:
            file.seek((1 + extent) * MIB)
            file.write(head[: 4 * KIB - 10] + mark + head[4 * KIB :])
        found = the_layer(images[disk]).inner
        assert [(inner.kind, inner.extent.start, inner.problems) for inner in found] == [
            (kind, (1 + extent) * MIB, ()) for kind in kinds
        ]


def test_remnants_in_a_later_segment_are_ignored(made: Made, sparse: Sparse) -> None:
    """As after `lvextend`: nothing has been written to the new extents."""
    lvm, (image, _), devices = made(2)
    stripes = 'type = "striped" stripe_count = 2 stripe_size = 128 stripes = ["pv0", 2, "pv1", 0]'
    volume = logical(1, "s", 8, stripes, visible=True)
    later = (
        'segment2 { start_extent = 8 extent_count = 8 type = "striped" stripe_count = 2 stripe_size = 128'
        ' stripes = ["pv0", 12, "pv1", 8] } }'
    )
    restored(lvm, devices, (f"{volume.replace('count = 1 ', 'count = 2 ', 1).removesuffix(' }')} {later}",))
    assert "16.00" in lvm("lvs", "--noheadings", "-o", "lv_size", "vg/s")
    swap = sparse(8 * MIB, "swap.img")
    run("mkswap", swap)
    head = swap.read_bytes()[: 4 * KIB - 10]
    for extent, kinds in ((12, []), (2, ["swsuspend"])):
        with image.open("r+b") as file:
            file.seek((1 + extent) * MIB)
            file.write(head + b"S1SUSPEND\0")
        assert [inner.kind for inner in the_layer(image).inner] == kinds


class LongStatus(list[lvm_text.Value]):
    """The status of a volume, which has a megabyte in hostile metadata."""

    times_read = 0

    def __str__(self) -> str:
        self.times_read += 1
        return "[]"


def test_the_status_of_a_volume_is_not_read_again_for_each_segment() -> None:
    status = LongStatus()
    group = lvm_format._Group("vg", MIB, MIB, 9, "pv0", 10 * MIB, {"lv": {"status": status}}, True, "")
    parts = tuple(Segment("vg/lv", at * MIB, Extent((at + 1) * MIB, MIB)) for at in range(9))
    area = Area(BytesReader(bytes(4096)), Extent(0, 4096), 512, bytes(4096), bytes(512), lambda *_: ())
    assert [*lvm_format._inner(area, group, parts)] == []
    assert status.times_read == 1


def test_a_wrong_metadata_checksum_is_reported(made: Made) -> None:
    lvm, (image,), (device,) = made(1)
    lvm("vgcreate", "-q", "vg", device)
    content = bytes_of(image, 0, MIB)
    at = content.rindex(b"extent_size")
    with image.open("r+b") as file:
        file.seek(at)
        file.write(b"EXTENT_SIZE")
    (layer,) = layers_of(image)
    assert any("checksum of the LVM metadata" in problem for problem in layer.problems)
    assert layer.data_start == MIB  # the label still has it


@pytest.mark.parametrize(
    ("said", "by"),
    [
        ('lock_type = "sanlock" lock_args = "1.0.0:lvmlock"', "lock type sanlock"),
        ('status = ["RESIZEABLE", "READ", "WRITE", "CLUSTERED"]', "lock type clvm"),
        ('system_id = "node7"', "system ID node7"),
        ('lock_type = "none"', None),
    ],
)
def test_a_group_that_is_shared_with_other_machines_is_reported(made: Made, said: str, by: str | None) -> None:
    lvm, (image,), (device,) = made(1)
    lvm("vgcreate", "-q", "vg", device)
    assert the_layer(image).unclean is None
    saved = lvm.folder / "edited.vg"
    lvm("vgcfgbackup", "-f", saved, "vg")
    status = 'status = ["RESIZEABLE", "READ", "WRITE"]'
    with_it = said if said.startswith("status") else f"{status}\n{said}"
    saved.write_text(saved.read_text().replace(status, with_it, 1))
    assert said in saved.read_text()
    lvm("vgcfgrestore", "--force", "-f", saved, "vg")
    assert the_layer(image).unclean == (by and f"{MAY_BE_SHARED} (vg: {by})")


def test_the_text_parser_stops_at_invalid_text_without_an_error() -> None:
    assert lvm_text.parse('a = 1 b = [1, "x\\"y", -2.5] c { d = 4 } e = @') == {
        "a": 1,
        "b": [1, 'x"y', -2.5],
        "c": {"d": 4},
    }
    depth, section = 0, lvm_text.parse("a {" * 100_000)
    while (inner := section.get("a")) is not None:
        assert isinstance(inner, dict)
        depth, section = depth + 1, inner
    assert depth == lvm_text.DEEPEST
    assert lvm_text.parse("}") == {}
    for text, whole in (("a = 1", True), ("a { b = 1 } c = 2", True), ("a = 1 } b = 2", False), ("a = 1 b = @", False)):
        assert lvm_text.parse_metadata(text, Budget())[1] == whole, text
    assert lvm_text.parse("a = " + "9" * 5000) == {}


def test_a_physical_volume_that_does_not_list_its_volumes_fits_no_sector_size(made: Made) -> None:
    """Without metadata of its own, and in no group."""
    lvm, images, devices = made(2, "--pvmetadatacopies", "0")
    lvm("pvcreate", "-q", "--yes", "--force", "--pvmetadatacopies", "1", devices[0])
    lvm("vgcreate", "-q", "group", *devices)
    lvm.create("-q", "-n", "root", "-L", "16M", "group", str(devices[1]))
    units = [smallest_unit(BytesReader(image.read_bytes()), the_layer(image)) for image in images]
    assert [unit.fits(4 * KIB) for unit in units] == [True, False]
    assert units[1].words == "does not list the volumes on it"


def test_volumes_with_blocks_of_1_kib_do_not_fit_sectors_of_4_kib(made: Made) -> None:
    lvm, (image,), (device,) = made(1, "--dataalignment", "1k")
    lvm("vgcreate", "-q", "-s", "1k", "group", device)
    lvm.create("-q", "-n", "root", "-l", "4001", "group")
    start = the_layer(image).segments[0].extent.start
    run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-E", f"offset={start}", image, "4000k")
    unit = smallest_unit(BytesReader(image.read_bytes()), the_layer(image))
    assert (unit.size, unit.words) == (KIB, "uses blocks of 1024 bytes")


def test_a_striped_volume_is_reported_as_one_with_unrecognised_content(made: Made) -> None:
    lvm, images, devices = made(2)
    lvm("vgcreate", "-q", "group", *devices)
    lvm.create("-q", "-i", "2", "-n", "root", "-L", "16M", "group")
    for image in images:
        unit = smallest_unit(BytesReader(image.read_bytes()), the_layer(image))
        assert (unit.size, unit.words) == (None, "has the volume group/root, whose content is not recognised")
