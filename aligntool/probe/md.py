"""A running md array: what the kernel says of it in sysfs, and udev of its name.

In: a `Tree`, the array's folder in sysfs, its udev record. Out: ArrayFacts in bytes. Alone because md counts in KiB, in
512-byte sectors and in bytes, one attribute so and the next otherwise (Documentation/admin-guide/md.rst), and packs the
layout of a RAID10 into one number.
"""

from aligntool.inventory import ArrayFacts
from aligntool.probe.config_files import array_uuid
from aligntool.probe.limits import SYSFS_SECTOR
from aligntool.probe.stack import names_below
from aligntool.probe.tree import Tree
from aligntool.probe.udev import NOTHING, Record

KIB = 1024
OFFSET = 1 << 16  # in the layout of a RAID10: the far copies lie one chunk further (raid10.c, setup_geo)
PARITY_LAYOUTS = ("left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric")  # raid5.h


def read_array(tree: Tree, path: str, record: Record = NOTHING) -> ArrayFacts | None:
    """An inactive array has no level, and is None."""
    md = f"{path}/md"
    level = tree.text(f"{md}/level")
    if not level:
        return None
    chunk = tree.number(f"{md}/chunk_size")
    members = names_below(tree, path)
    done, total = _progress(tree.text(f"{md}/sync_completed"))
    return ArrayFacts(
        level=level,
        chunk=chunk or None,  # 0: this level has no chunks
        members=members,
        member_data_offsets=tuple(_data_offsets(tree, md, members)),
        metadata=tree.text(f"{md}/metadata_version") or None,
        degraded=tree.number(f"{md}/degraded"),
        layout=layout_word(level, tree.number(f"{md}/layout")),
        devices=tree.number(f"{md}/raid_disks"),
        each=_times(tree.number(f"{md}/component_size"), KIB),
        uuid=array_uuid(record.get("MD_UUID") or tree.text(f"{md}/uuid")),
        name=record.get("MD_NAME"),
        links=tuple(link for link in record.links if link.startswith("md/")),
        state=tree.text(f"{md}/array_state") or None,
        sync_action=tree.text(f"{md}/sync_action") or None,
        sync_done=done,
        sync_total=total,
        sync_rate=_times(tree.number(f"{md}/sync_speed"), KIB),
        policy=tree.text(f"{md}/consistency_policy") or None,
        bitmap=_bitmap(tree, md),
        bitmap_chunk=tree.number(f"{md}/bitmap/chunksize"),
        stripe_cache=tree.number(f"{md}/stripe_cache_size"),
        worker_threads=tree.number(f"{md}/group_thread_cnt"),
    )


def layout_word(level: str, number: int | None) -> str | None:
    """As mdadm(8) writes it: "n2", "f2", "o2", "left-symmetric". None: this level has none, or none that is known."""
    if number is None or number < 0:
        return None
    if level == "raid10":
        near, far = number & 0xFF, number >> 8 & 0xFF
        if far <= 1:
            return f"n{near}"
        return f"o{far}" if number & OFFSET else f"f{far}"
    if level in ("raid4", "raid5", "raid6") and number < len(PARITY_LAYOUTS):
        return PARITY_LAYOUTS[number]
    return None


def _bitmap(tree: Tree, md: str) -> str | None:
    """The attribute says "none", "file", or where it lies from the superblock: "+8"."""
    place = tree.text(f"{md}/bitmap/location")
    if not place:
        return None
    return place if place == "none" else "external" if place == "file" else "internal"


def _progress(text: str | None) -> tuple[int | None, int | None]:
    """ "1234 / 5678" in sectors of each member; "none" and "delayed" where nothing runs."""
    words = (text or "").split()
    if len(words) != 3 or not (words[0].isdecimal() and words[2].isdecimal()):
        return None, None
    return int(words[0][:20]) * SYSFS_SECTOR, int(words[2][:20]) * SYSFS_SECTOR


def _data_offsets(tree: Tree, md: str, members: tuple[str, ...]) -> list[tuple[str, int]]:
    found = []
    for member in members:
        offset = tree.number(f"{md}/dev-{member.replace('/', '!')}/offset")
        if offset is not None and offset >= 0:
            found.append((member, offset * SYSFS_SECTOR))
    return found


def _times(number: int | None, factor: int) -> int | None:
    return None if number is None or number < 0 else number * factor
