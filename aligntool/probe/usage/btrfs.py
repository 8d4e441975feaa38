"""What must be known of a btrfs before a map of its used blocks is believed.

In: a reader of the disk, and the file system as a device. Out: where its trees may lie, or the reason against it; the
places of its superblocks; how much it says is used. Alone because partclone.btrfs 0.3.23 was seen to lose the second
copy of data with the DUP profile (a copy of the mapped runs alone was not whole): only data that is there once is
believed.
"""

import re

from aligntool.probe.layers.area import le64
from aligntool.probe.programs import ask
from aligntool.probe.reader import Reader
from aligntool.probe.usage.used_map import NoMap
from aligntool.units import GIB, KIB, MIB, Extent

SUPERBLOCKS = (64 * KIB, 64 * MIB, 256 * GIB)  # btrfs_sb_offset(), linux/fs/btrfs/disk-io.h
ROOM = 64 * KIB  # kept for each of them
BYTES_USED, NUM_DEVICES = 120, 136  # in struct btrfs_super_block
PATIENCE_S = 300.0

_CHUNK = re.compile(r"\blength (\d+) .* type (\S+)")
_STRIPE = re.compile(r"\bstripe \d+ devid \d+ offset (\d+)")
_PROFILES = {"DATA", "METADATA", "single"}


def mirrors(length: int) -> tuple[Extent, ...]:
    """The superblocks in a partition of `length` bytes, counted from its start."""
    return tuple(Extent(at, ROOM) for at in SUPERBLOCKS if at + ROOM <= length)


def bytes_used(reader: Reader, start: int) -> int:
    return le64(reader.read(start + SUPERBLOCKS[0] + BYTES_USED, 8), 0)


def check_devices(reader: Reader, start: int) -> None:
    """Raises NoMap: what lies on one device of several is known only to all of them."""
    devices = le64(reader.read(start + SUPERBLOCKS[0] + NUM_DEVICES, 8), 0)
    if devices != 1:
        raise NoMap(f"this btrfs has {devices} devices")


def tree_chunks(device: str) -> tuple[Extent, ...]:
    """Where trees lie, those of before as well.

    partclone maps the present ones alone; `mount -o usebackuproot` goes back to older ones, not yet overwritten.

    Raises NoMap when data lies here in any other way than once, or the answer is not understood.
    """
    answer = ask(
        "btrfs", "inspect-internal", "dump-tree", "-t", "chunk", device, limit_s=PATIENCE_S, leashed=True
    )
    if answer.code != 0:
        raise NoMap(f"btrfs inspect-internal failed: {answer.last_words}")
    found, length = [], 0
    for line in answer.output.splitlines():
        if chunk := _CHUNK.search(line):
            kinds = set(chunk[2].split("|"))
            if "DATA" in kinds and kinds - _PROFILES:
                raise NoMap(f"this btrfs has data as {chunk[2]}, of which partclone maps one copy alone")
            length = int(chunk[1]) if kinds & {"METADATA", "SYSTEM"} else 0
        elif (stripe := _STRIPE.search(line)) and length:
            found.append(Extent(int(stripe[1]), length))
    if not found:
        raise NoMap("btrfs inspect-internal names no chunk of metadata")
    return tuple(found)
