"""LVM2 physical volumes with their metadata."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from aligntool.contents.kind import UNKNOWN_UNIT, Kind, Unit, UnitOf, unit_of
from aligntool.contents.luks import LONGEST_HEADER
from aligntool.contents.lvm_text import Section, parse_metadata, sections
from aligntool.contents.signatures import magic
from aligntool.formats.numbers import le32, le64
from aligntool.formats.reader import (
    MAY_BE_SHARED,
    Area,
    Budget,
    MappedReader,
    Reader,
    checksum_problem,
    crc32_seeded,
)
from aligntool.inventory import Layer, Segment
from aligntool.units import MIB, Extent

# Formats: lvm2 lib/format_text/layout.h (label, physical volume header, metadata area) and the text metadata
# itself.

SECTOR = 512  # the unit of LVM, whatever the disk's sector size
SEED = 0xF597A6CF  # INITIAL_CRC
LABEL = b"LABELONE"
LABEL_TYPE = b"LVM2 001"
AREA_MAGIC = b" LVM2 x[5A%r0N*>"
AREA_HEADER = 512
IGNORED = 1  # a raw location's flag: this metadata area is not in use
LONGEST_TEXT = MIB
MOST_AREAS = 8
LONGEST_NAME = 127  # NAME_LEN of lvm2; each segment repeats the names
GROUPS_OF_UUID = (6, 4, 4, 4, 4, 4, 6)


@dataclass(frozen=True, slots=True)
class _Group:
    """A volume group, from the metadata of one physical volume. Sizes in bytes, places relative to the
    area.
    """

    name: str
    extent_size: int
    pe_start: int
    pe_count: int
    own_name: str  # name of this physical volume in the metadata, "pv0"
    size: int  # of this physical volume: pvresize changes it here and not in the label; 0: not stated
    volumes: dict[str, Section]
    is_whole: bool  # the whole text was parsed
    shared_by: str  # how other machines that see its disks are kept from using it; "" if they are not

    @property
    def end(self) -> int:
        """Return the end of the last extent."""
        return self.pe_start + self.pe_count * self.extent_size


def read_lvm(area: Area) -> Layer | None:
    sectors = ((at, area.head[at : at + SECTOR]) for at in range(0, 4 * SECTOR, SECTOR))
    labels = (sector for at, sector in sectors if sector[:8] == LABEL and le64(sector, 8) * SECTOR == at)
    label = next((sector for sector in labels if sector[24:32] == LABEL_TYPE), None)
    if label is None:
        return None
    header = label[le32(label, 20) :]
    raw_uuid = header[:32].decode("ascii", "replace")
    data_areas, metadata_areas = _areas(header)
    problems = list(checksum_problem("the LVM label", le32(label, 16), crc32_seeded(label[20:], SEED)))
    text = _newest_text(area, metadata_areas, problems)
    group = _read_group(text, _dashed(raw_uuid), area.budget) if text else None
    # pvresize changes the length in the metadata and not in the label, and metadata may all be on other
    # disks.
    size = le64(header, 32)
    is_known = size > area.size or _is_in_no_group(area, metadata_areas)
    layer = replace(
        area.layer("LVM2_member", size if is_known and size else None),
        version=LABEL_TYPE.decode(),
        uuid=_dashed(raw_uuid),
        data_start=area.start + data_areas[0][0] if data_areas else None,
        problems=tuple(problems),
    )
    if group and group.size:
        claims = max(group.size, group.end, *(offset + size for offset, size in metadata_areas))
        layer = replace(layer, extent=Extent(area.start, claims), claims_size=claims)
    return _with_group(area, layer, group) if group else layer


def _dashed(raw: str) -> str:
    return "-".join(raw[first:last] for first, last in pairwise(accumulate(GROUPS_OF_UUID, initial=0)))


def _areas(header: bytes) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return (offset, size) of the data areas and of the metadata areas: two lists, each terminated by a zero
    entry.
    """
    lists: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    at = 40
    for areas in lists:
        for _ in range(MOST_AREAS):
            offset = le64(header, at)
            size = le64(header, at + 8)
            at += 16
            if not offset:
                break
            areas.append((offset, size))
    return lists


def _is_in_no_group(area: Area, places: list[tuple[int, int]]) -> bool:
    """Return whether there are metadata areas, each in use and without metadata."""
    headers = [area.read(offset, AREA_HEADER) for offset, _ in places]
    return bool(headers) and not any(le64(header, 40) or le32(header, 60) & IGNORED for header in headers)


def _newest_text(area: Area, places: list[tuple[int, int]], problems: list[str]) -> str | None:
    """Return the metadata text from the first area with a valid one: after a commit they are all the same.
    Add the faults of the areas to `problems`.
    """
    for offset, size in places:
        header = area.read(offset, AREA_HEADER)
        if header[4:20] != AREA_MAGIC or le64(header, 24) != offset or size <= AREA_HEADER:
            problems.append(f"the LVM metadata area at byte {offset} has no header")
            continue
        problems += checksum_problem("an LVM metadata area", le32(header, 0), crc32_seeded(header[4:], SEED))
        at = le64(header, 40)
        length = le64(header, 48)
        checksum = le32(header, 56)
        flags = le32(header, 60)
        if not at or flags & IGNORED:
            continue
        if length > LONGEST_TEXT or not AREA_HEADER <= at < size:
            problems.append(
                f"the LVM metadata at byte {at} of its area would be {length} bytes long: not read"
            )
            continue
        content = area.read(offset + at, min(length, size - at))
        # the area is a ring buffer after its header
        content += area.read(offset + AREA_HEADER, length - len(content))
        wrong = checksum_problem("the LVM metadata", checksum, crc32_seeded(content, SEED))
        problems += wrong
        if not wrong:
            return content.rstrip(b"\0").decode("utf-8", "replace")
    return None


def _read_group(text: str, uuid: str, budget: Budget) -> _Group | None:
    root, is_whole = parse_metadata(text, budget)
    for name, section in root.items():
        if not isinstance(section, dict) or len(name) > LONGEST_NAME:
            continue
        extent_size = _number(section, "extent_size") * SECTOR
        for own_name, volume in sections(section, "physical_volumes"):
            if volume.get("id") == uuid and extent_size:
                volumes = {
                    lv: item for lv, item in sections(section, "logical_volumes") if len(lv) <= LONGEST_NAME
                }
                start = _number(volume, "pe_start") * SECTOR
                count = _number(volume, "pe_count")
                size = _number(volume, "dev_size") * SECTOR
                shared_by = _shared_by(section)
                return _Group(name, extent_size, start, count, own_name, size, volumes, is_whole, shared_by)
    return None


def _shared_by(group: Section) -> str:
    """Return by what a volume group is shared with other machines: lvmlockd(8), lvmsystemid(7); clvmd until
    2.02.
    """
    lock, system, status = (group.get(name) for name in ("lock_type", "system_id", "status"))
    if isinstance(lock, str) and lock != "none":
        return f"lock type {lock[:LONGEST_NAME]}"
    if isinstance(status, list) and "CLUSTERED" in status:
        return "lock type clvm"
    return f"system ID {system[:LONGEST_NAME]}" if isinstance(system, str) and system else ""


def _with_group(area: Area, layer: Layer, group: _Group) -> Layer:
    segments = tuple(segment for name in group.volumes for segment in _segments(area, group, name))
    problems = layer.problems
    data_start = area.start + group.pe_start
    if layer.data_start is not None and layer.data_start > data_start:
        problems += (
            f"the label puts the first data at byte {layer.data_start}, the metadata of {group.name} at"
            f" {data_start}",
        )
    if not group.is_whole:
        problems += (f"the LVM metadata of {group.name} could not be read to the end",)
    if group.end > area.size:
        problems += (
            f"{group.name} has extents up to byte {group.end} of this volume, which has {area.size}",
        )
    return replace(
        layer,
        data_start=data_start,
        data_unit=group.extent_size,
        segments=segments,
        inner=tuple(_inner(area, group, segments)),
        problems=problems,
        unclean=f"{MAY_BE_SHARED} ({group.name}: {group.shared_by})" if group.shared_by else None,
    )


def _segments(area: Area, group: _Group, volume: str) -> Iterator[Segment]:
    """Yield the places of the volume's extents on this physical volume.

    RAID, mirror, thin and cache volumes consist of sub-volumes that are also listed, so only two kinds of
    segment name a physical volume: stripes, and the two halves of a running pvmove.
    """
    for segment in _numbered_segments(group.volumes[volume]):
        count = _number(segment, "extent_count")
        stripes = _places(segment.get("stripes"))
        width = len(stripes)
        for name, first in stripes or _places(segment.get("mirrors")):
            if name != group.own_name or not count:
                continue
            length = (count // width if width else count) * group.extent_size
            place = Extent(area.start + group.pe_start + first * group.extent_size, length)
            offset = _number(segment, "start_extent") * group.extent_size
            stripe_size = _number(segment, "stripe_size") * SECTOR if width > 1 else None
            yield Segment(f"{group.name}/{volume}", offset, place, stripe_size)


_PART_NAME = re.compile(r"(_([rm]image_\d+(_iorig)?|w?corig))+$", re.ASCII)
"""Ends of names of sub-volumes that may begin like the volume: images of a mirror or RAID, the origin of a
cache.
"""


def _inner(area: Area, group: _Group, segments: tuple[Segment, ...]) -> Iterator[Layer]:
    """Yield the layers in unstriped volumes that begin on this physical volume, and in first images of
    mirrors.

    Of stripes, of RAID, of a cache's origin and during a pvmove only the start of the content has a certain
    place: what must not be moved is still found there, and nothing can be said about its size. Which image of
    a RAID has the start depends on its layout: the third of a raid6_zr, the default.
    """
    runs: dict[str, list[tuple[int, int, int]]] = {}
    label = Extent(area.start, 4 * SECTOR)  # the label of this physical volume
    heads = []
    parts = _striped_images(group)
    visible = {name for name, volume in group.volumes.items() if "VISIBLE" in str(volume.get("status"))}
    for item in segments:
        whole = _PART_NAME.sub("", name := item.volume.removeprefix(f"{group.name}/"))
        is_content = whole in visible  # a pool may begin with anything
        is_first = name in (whole, f"{whole}_rimage_0", f"{whole}_mimage_0")
        if is_content and is_first and not item.stripe_size and name not in parts:
            runs.setdefault(name, []).append((item.volume_offset, item.extent.start, item.extent.length))
        elif name.startswith("pvmove") or (is_content and not item.volume_offset):
            heads.append(item.extent)  # a later segment may begin with anything, too
    for name, pieces in ((name, sorted(pieces)) for name, pieces in runs.items()):
        if pieces[0][0] != 0:
            continue
        if any(label.overlaps(Extent(start, length)) for _, start, length in pieces):
            continue
        extents = sum(_number(segment, "extent_count") for segment in _numbered_segments(group.volumes[name]))
        size = extents * group.extent_size
        for layer in area.inside(MappedReader(area.reader, tuple(pieces), size), Extent(0, size)):
            yield _on_disk(layer, pieces)
    for layer in (
        layer for head in heads if not label.overlaps(head) for layer in area.inside(area.reader, head)
    ):
        if layer.kind == "swsuspend" or layer.unclean:
            yield replace(layer, problems=())


def _striped_images(group: _Group) -> set[str]:
    """Return the sub-volumes of RAID volumes with stripes, each of which has every nth stripe of the
    content.
    """
    segments = (segment for volume in group.volumes.values() for segment in _numbered_segments(volume))
    striped = [segment for segment in segments if _number(segment, "stripe_size")]
    lists = (segment.get(name) for segment in striped for name in ("raids", "raid0_lvs"))
    return {name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)}


def _on_disk(layer: Layer, runs: list[tuple[int, int, int]]) -> Layer:
    """Return the layer with its places on the disk instead of in the volume. `runs` are in the order of the
    volume.
    """

    def place(offset: int) -> int | None:
        at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
        return runs[at][1] + offset - runs[at][0] if at >= 0 and offset < runs[at][0] + runs[at][2] else None

    start = place(layer.extent.start)
    return replace(
        layer,
        extent=layer.extent if start is None else layer.extent.moved_to(start),
        data_start=None if layer.data_start is None else place(layer.data_start),
        segments=tuple(
            replace(segment, extent=segment.extent.moved_to(moved))
            for segment in layer.segments
            if (moved := place(segment.extent.start)) is not None
        ),
        inner=tuple(_on_disk(inner, runs) for inner in layer.inner),
    )


def _numbered_segments(volume: Section) -> Iterator[Section]:
    return (value for key, value in volume.items() if key.startswith("segment") and isinstance(value, dict))


def _number(section: Section, name: str) -> int:
    """Return a number, or 0 if there is none: LVM has no numbers that are negative or beyond 64 bits."""
    value = section.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 64 else 0


def _places(value: object) -> list[tuple[str, int]]:
    """Return (name, first extent) of each pair in `stripes = ["pv0", 0, "pv1", 0]`."""
    pairs = zip(value[::2], value[1::2], strict=False) if isinstance(value, list) else ()
    return [
        (name, first)
        for name, first in pairs
        if isinstance(name, str) and isinstance(first, int) and first >= 0
    ]


def _smallest_unit(reader: Reader, layer: Layer, unit_of_inner: UnitOf) -> Unit:
    """Return the smallest unit of the volumes and their offsets. The unit of a volume is known only if its
    content is recognised and begins on this physical volume.
    """
    if layer.data_unit is None:  # the metadata of its group is on other physical volumes
        return Unit(None, "does not list the volumes on it")
    places = [layer.data_start or 1]
    places += [
        number for segment in layer.segments for number in (segment.extent.start, segment.extent.length)
    ]
    places += [segment.stripe_size for segment in layer.segments if segment.stripe_size]
    units = [unit_of(min(place & -place for place in places))]  # the largest power of two that divides it
    for volume in sorted({segment.volume for segment in layer.segments}):
        firsts = [part.extent for part in layer.segments if part.volume == volume and part.volume_offset == 0]
        found = [inner for inner in layer.inner if inner.extent.start in [first.start for first in firsts]]
        is_cut = found and found[0].kind == "crypto_LUKS" and firsts[0].length < LONGEST_HEADER
        if len(firsts) != 1 or len(found) != 1 or is_cut or found[0].kind == layer.kind:
            units.append(Unit(None, f"has the volume {volume}, whose content is not recognised"))
            continue
        unit = unit_of_inner(reader, found[0])
        if unit.exact:
            unit = UNKNOWN_UNIT
        units.append(replace(unit, words=f"has the volume {volume}, whose {found[0].kind} {unit.words}"))
    return min(units, key=lambda unit: unit.size or 0)


_UNSEEN_VOLUMES = re.compile(
    r"_([tv]data|cdata|cvol|w?corig|iorig|[rm]image_\d+)(?![a-z])|/pvmove\d+$", re.ASCII
)
"""Hidden volumes that show at most a part of a volume: of thin and VDO pools, caches, RAID, a running pvmove.

The endings are reserved (lvm(8), "Reserved names").
"""


def _has_whole_volumes(group: Layer) -> bool:
    """Return whether every volume of a physical volume is of a simple kind and begins on it."""
    if group.problems:
        return False
    # no metadata: the physical volume is in no group, or the metadata are on another disk
    if group.data_unit is None:
        return group.claims_size is not None
    volumes = {segment.volume for segment in group.segments}
    begun = {segment.volume for segment in group.segments if not segment.volume_offset}
    is_striped = any(segment.stripe_size for segment in group.segments)
    is_simple = volumes == begun and not is_striped
    return is_simple and not any(_UNSEEN_VOLUMES.search(volume) for volume in volumes)


LVM = Kind(
    "LVM2_member",
    readers=(read_lvm,),
    is_owner=True,
    signatures=(magic("LVM2_member", b"LVM2 001", heads=(536, 24, 1048, 1560)),),
    title=lambda layer: "LVM2 PV",
    short_title=lambda layer: "LVM",
    unsharer="vgchange",
    shortener="pvresize",
    works_anywhere=True,
    role="lvm",
    leaves_first_sector=True,
    smallest_unit=_smallest_unit,
    recreating="create a volume group on a disk with such sectors, and copy the files of each volume into it",
    is_container=True,
    counts_in_512=True,
    is_seen_through=_has_whole_volumes,
)
