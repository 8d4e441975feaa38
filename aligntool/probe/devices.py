"""Which block devices there are.

In: a `Tree`. Out: `Block`s, whole devices only, those that hold or could hold partitions. Alone because every captured
tree keeps them in another place and because the kernel has many block devices that are no disks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.probe.tree import Tree

MOST_FOLDERS = 200_000  # when a captured tree has to be searched
DEEPEST = 16

# Optical drives, floppies, compressed memory, raw flash; the paths of an NVMe multipath device; eMMC's boot areas.
_NO_DISK = re.compile(
    r"(?:sr|scd|fd|zram|mtdblock|ubiblock)\d.*|nvme\d+c\d+n\d+|mmcblk\d+(?:boot\d|rpmb|gp\d).*"
)
_VIRTUAL = re.compile(
    r"(?:loop|md|dm-|nbd|rbd|ram|drbd|bcache|ublkb|zd|nullb)\d*.*"
)  # of size 0 while not in use
_NAMESPACE = re.compile(r"nvme\d+n\d+")
_NUMBERS = re.compile(r"\d+")
_STACKED = re.compile(r"(?:md|dm-|bcache)\d*.*")
_IN_MEMORY = re.compile(r"(?:loop|nbd|rbd|ram|zd|nullb|ublkb)\d*.*")


@dataclass(frozen=True, slots=True)
class Block:
    """A whole block device in sysfs."""

    sysname: str  # "sda", "cciss!c0d0"
    path: str  # with no symbolic link in it

    @property
    def name(self) -> str:
        """The kernel's name as /dev has it: sysfs cannot hold a slash and writes "!"."""
        return self.sysname.replace("!", "/")

    @property
    def device(self) -> str:
        """The device that this block device belongs to: a SCSI device, an NVMe controller or subsystem, a card."""
        above = self.path.removesuffix(f"/block/{self.sysname}")
        if not self.path.startswith("/sys/devices/"):
            return f"{self.path}/device"
        return above if above != self.path else self.path.rpartition("/")[0]


def list_blocks(tree: Tree) -> list[Block]:
    """Every disk worth a look, physical ones first, in the order a person counts them."""
    found = {block.path: block for block in _all_blocks(tree)}
    return sorted((block for block in found.values() if is_disk(tree, block)), key=_order)


def list_names(tree: Tree) -> list[Block]:
    """Every block device in that order, no attribute of any read: for when reading one did not return."""
    return sorted(_listed_in(tree, "/sys/block"), key=_order)


def find_block(tree: Tree, name: str) -> Block | None:
    """The disk of that kernel name, or the disk that the partition of that name is on."""
    sysname = name.replace("/", "!")
    if sysname in ("", ".", ".."):
        return None
    for place in (f"/sys/class/block/{sysname}", f"/sys/block/{sysname}"):
        real = tree.real(place)
        if real is not None:
            return _whole(tree, real)
    if tree.live:
        return None  # what /sys/class/block does not have, this kernel does not have
    for block in _all_blocks(tree):
        if block.sysname == sysname or tree.is_directory(f"{block.path}/{sysname}/holders"):
            return block
        if sysname.startswith(block.sysname) and tree.exists(f"{block.path}/{sysname}/start"):
            return block
    return None


def block_of_number(tree: Tree, number: str) -> Block | None:
    real = tree.real(f"/sys/dev/block/{number}")
    return None if real is None else _whole(tree, real)


def _whole(tree: Tree, path: str) -> Block:
    if tree.exists(f"{path}/partition"):
        path = path.rpartition("/")[0]
    return Block(path.rpartition("/")[2], path)


def _all_blocks(tree: Tree) -> list[Block]:
    if tree.live:
        found = [Block(path.rpartition("/")[2], path) for path in _ask_udev()]
        if found:
            return found
    for folder in ("/sys/block", "/sys/class/block", "/sys/dev/block"):
        found = list(_listed_in(tree, folder))
        if found:
            return found
    return list(_search(tree))


def _ask_udev() -> list[str]:
    """Nothing where libudev is missing; sysfs itself is then asked."""
    try:
        import pyudev

        devices = pyudev.Context().list_devices(subsystem="block", DEVTYPE="disk")
        return [str(device.sys_path) for device in devices]
    except (ImportError, OSError, ValueError):
        return []


def _listed_in(tree: Tree, folder: str) -> Iterator[Block]:
    for name in tree.names(folder):
        path = tree.real(f"{folder}/{name}")
        if path is None:
            continue
        if folder == "/sys/block" or not tree.exists(f"{path}/partition"):
            yield Block(path.rpartition("/")[2], path)


def _search(tree: Tree) -> Iterator[Block]:
    """A capture of the devices alone, as libnvme's: anything below a folder "block", and NVMe namespaces."""
    todo, seen = [("/sys/devices", 0)], 0
    while todo:
        folder, depth = todo.pop()
        seen += 1
        if seen > MOST_FOLDERS:
            return
        for name in tree.names(folder):
            path = f"{folder}/{name}"
            is_block = folder.endswith("/block") or _NAMESPACE.fullmatch(name) is not None
            if is_block and tree.exists(f"{path}/size") and tree.link(path) is None:
                yield Block(name, path)
            elif depth < DEEPEST and "." not in name[:1] and tree.link(path) is None:
                todo.append((path, depth + 1))


def is_disk(tree: Tree, block: Block) -> bool:
    """Return whether it is a disk in use; one whose size cannot be read is."""
    if _NO_DISK.fullmatch(block.sysname) or tree.text(f"{block.path}/hidden") == "1":
        return False
    if _VIRTUAL.fullmatch(block.sysname) and tree.number(f"{block.path}/size") == 0:
        return False
    return not block.sysname.startswith("ram") or _in_use(tree, block)


def _in_use(tree: Tree, block: Block) -> bool:
    """The kernel makes sixteen RAM disks at once and mostly nobody uses one."""
    if tree.names(f"{block.path}/holders"):
        return True
    return any(name.startswith(block.sysname) for name in tree.names(block.path))


def _order(block: Block) -> tuple[int, str, int, str]:
    name = block.sysname
    rank = 1 if _STACKED.fullmatch(name) else 2 if _IN_MEMORY.fullmatch(name) else 0
    padded = _NUMBERS.sub(lambda number: number.group().zfill(6), name)
    letters = _NUMBERS.split(name, maxsplit=1)[0]
    return rank, letters[:2], len(letters), padded  # sdz comes before sdaa
