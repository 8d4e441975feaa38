"""Record everything that an audit reads from a machine, with or without identities such as serial numbers."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from aligntool import __version__
from aligntool.contents.layers import read_contents
from aligntool.formats.reader import HeartbeatReader
from aligntool.formats.table_sectors import table_extents, without_identities
from aligntool.formats.tables import read_table
from aligntool.inventory import Disk, DiskKind
from aligntool.linux import sysfs
from aligntool.linux.commands import (
    get_host_memory_buffer,
    health_log,
    identify_controller,
    identify_namespace,
)
from aligntool.linux.deadline import Pulse, results_in_children
from aligntool.linux.devices import Block, list_blocks, spun_down, suspended, why_read_blocks
from aligntool.linux.file_reader import FileReader
from aligntool.linux.look import CAPTURED_CONTENTS, CAPTURED_IDENTIFY, CAPTURED_SECTORS, MANIFEST, Looker, now
from aligntool.linux.pcie import find_adapters
from aligntool.linux.system import CAPTURED as IMAGES
from aligntool.linux.system import (
    DRACUT,
    FILES,
    MDADM_CONFS,
    find_distribution,
    image_text,
    read_images,
    read_system,
)
from aligntool.linux.targets import UserLimits
from aligntool.system import LATE_START_ENABLED, MdadmConf, concerns_arrays, parse_fstab, parse_mdadm_conf

# A tree that records everything that is read from it. So a snapshot is always complete: a file that the audit
# did not read is not required to repeat it.

FILE = "file"
LINK = "symlink"
FOLDER = "directory"
_RECORDED = ("/sys/", "/proc/", "/run/udev/", *FILES, "/etc/fstab", *MDADM_CONFS, LATE_START_ENABLED)
# /proc/self leads to a number that is meaningless later, /etc/os-release to a path that is not read
_NOT_RESOLVED = ("/proc/", "/etc/", "/usr/lib/")


class Entry(NamedTuple):
    """An entry of a snapshot."""

    path: str  # "sys/block/sda", without the leading slash
    kind: str
    content: bytes = b""  # of a file; the target of a symbolic link


@dataclass(frozen=True, slots=True)
class Recorder(sysfs.Tree):
    """A tree that records what is read from this machine, and poses as a captured one, so that no disk is
    opened.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    source: sysfs.Tree = sysfs.LIVE

    @property
    def live(self) -> bool:
        return False

    def text(self, path: str) -> str | None:
        content = self.content(path, 4096)
        return None if content is None else sysfs.stripped(content)

    def content(self, path: str, limit: int = sysfs.LONGEST_CONTENT) -> bytes | None:
        if not path.startswith(_RECORDED):
            return None
        content = self.source.content(path, limit)
        if content is not None:
            self.files[self._resolved_place(path)] = content
        return content

    def names(self, path: str) -> list[str]:
        if not f"{path}/".startswith(_RECORDED) or not self.is_directory(path):
            return []
        names = self.source.names(path)
        for name in names:
            self._record_path(f"{path}/{name}")
        return names

    def exists(self, path: str) -> bool:
        return self.real(path) is not None

    def is_directory(self, path: str) -> bool:
        if not f"{path}/".startswith(_RECORDED) or not self.source.is_directory(path):
            return False
        self._record_path(path)
        return True

    def link(self, path: str) -> str | None:
        self._record_path(path)
        return self.source.link(path)

    def real(self, path: str) -> str | None:
        real = self.source.real(path)
        if real is not None:
            self._record_path(path)
            self._record_path(real)
            if not self.source.is_directory(real):
                self.content(real)
        return real

    def _record_path(self, path: str) -> None:
        place = self._resolved_place(path)
        if place not in self.links and self.source.is_directory(place):
            self.folders.add(place)

    def _resolved_place(self, path: str) -> str:
        """Return the path with all symbolic links but the last component resolved; record these links."""
        if path.startswith(_NOT_RESOLVED):
            return path
        resolved = ""
        words = [word for word in path.split("/") if word]
        for index, word in enumerate(words):
            place = f"{resolved}/{word}"
            if place not in self.links:
                target = self.source.link(place)
                if target is None:
                    resolved = place
                    continue
                self.links[place] = target
            if index == len(words) - 1:
                return place
            resolved = self.source.real(place) or place
        return resolved

    def entries(self) -> list[Entry]:
        found = [Entry(path[1:], FOLDER) for path in self.folders]
        found += [Entry(path[1:], LINK, os.fsencode(target)) for path, target in self.links.items()]
        found += [Entry(path[1:], FILE, content) for path, content in self.files.items()]
        return sorted(found, key=lambda entry: entry.path)


# This machine as entries of an archive: everything that an audit reads, and some more for later versions.

# Folders of a block device of which all attributes are recorded, except those that change constantly.
_FOLDERS = ("", "/queue", "/md", "/md/bitmap", "/dm", "/loop", "/bcache", "/integrity")
_VOLATILE = frozenset(("stat", "inflight", "trace", "events", "io_poll_delay"))
_ALSO_RECORDED = ("/proc/sys/kernel/osrelease", "/proc/mdstat", sysfs.DISKSTATS, sysfs.UPTIME)
_DEVICE_ATTRIBUTES = (
    "type", "state", "transport", "cntlid", "subsystype", "queue_type", "timeout", "vpd_pg89", "vpd_pgb0",
    "vpd_pgb1", "vpd_pgb2", "cmdq_en",
)  # fmt: skip
_MOST_ATTRIBUTES = 400  # in one folder


def collect(tree: sysfs.Tree, *, serials: bool, host: bool = False) -> Iterator[Entry]:
    """Yield the entries. Without `serials`, placeholders replace all identities; only with `host` the
    manifest has the name of the machine. As root it opens NVMe namespaces for Identify and their health, and
    every disk that is awake for its partition table, or the kind of its content; nothing for writing.
    """
    sysfs.refuse_unmounted(tree)
    recorder = Recorder("", source=tree)
    recorded = _record_disks(recorder)
    for block, disk in recorded:
        _record_attributes(recorder, block)
        if disk.kind is DiskKind.NVME:
            recorder.files.update(_identify_pages(tree, block))
    for path in _ALSO_RECORDED:
        recorder.content(path)
    has_array = any(disk.array for _, disk in recorded)
    read_system(recorder, images=has_array)
    if find_distribution(tree) == "debian-dracut":
        recorder.files[DRACUT] = b""  # it is known by the existence of the file
    if has_array:
        for number, image in enumerate(read_images(tree), 1):
            recorder.files[f"{IMAGES}/{number}"] = image_text(image).encode()
    masks = None if serials else Masks()
    if masks:
        for block, _ in recorded:
            parts = (
                name for name in recorder.names(block.path) if recorder.exists(f"{block.path}/{name}/start")
            )
            masks.note_disk(block.sysname, [name for name in parts if name.startswith(block.sysname)])
    yield from _masked(recorder.entries(), masks) if masks else recorder.entries()
    yield from _contents(tree, recorded, masks)
    name = tree.text(HOSTNAME) if host else None
    manifest = {"date": now(), "aligntool": __version__, "host": name, "serials": serials}
    yield Entry(MANIFEST[1:], FILE, json.dumps(manifest).encode() + b"\n")


def _record_disks(recorder: Recorder) -> list[tuple[Block, Disk]]:
    looker = Looker(recorder, UserLimits(), wake=False)
    find_adapters(recorder)
    return [(block, looker.look_at(block)) for block in list_blocks(recorder)]


def _record_attributes(recorder: Recorder, block: Block) -> None:
    names = recorder.names(block.path)
    folders = [f"{block.path}{folder}" for folder in _FOLDERS]
    folders += [f"{block.path}/{name}" for name in names if name.startswith(block.sysname)]
    for folder in folders:
        if recorder.is_directory(folder):
            for name in recorder.source.names(folder)[:_MOST_ATTRIBUTES]:
                path = f"{folder}/{name}"
                if name not in _VOLATILE and recorder.source.link(path) is None:
                    recorder.text(path)
    for name in _DEVICE_ATTRIBUTES:
        recorder.content(f"{block.device}/{name}", 4096)


def _identify_pages(tree: sysfs.Tree, block: Block) -> Iterator[tuple[str, bytes]]:
    if not tree.live or suspended(tree, block):
        return
    place = f"{CAPTURED_IDENTIFY}/{block.sysname}"
    try:
        with sysfs.opened(f"/dev/{block.name}") as descriptor:
            controller = identify_controller(descriptor)
            namespace = identify_namespace(descriptor, tree.number(f"{block.path}/nsid"))
            buffer = get_host_memory_buffer(descriptor)
            health = health_log(descriptor)
    except OSError:
        return
    memory = None if buffer is None else buffer[0].to_bytes(4, "little") + buffer[1]
    pages = {"ctrl": controller, "ns": namespace, "hmb": memory, "health": health}
    yield from ((f"{place}.{name}", page) for name, page in pages.items() if page is not None)


def _contents(tree: sysfs.Tree, recorded: list[tuple[Block, Disk]], masks: "Masks | None") -> Iterator[Entry]:
    """Yield the sectors that hold the partition tables, or what is on a disk without one, of disks that can
    be opened and respond.
    """
    recorded = recorded if tree.live else []
    jobs = [partial(_read_disk, tree, block, disk) for block, disk in recorded]
    found = dict(results_in_children(jobs))
    for number, (block, _) in enumerate(recorded):
        sectors, kind = found[number] or ({}, "")
        if masks:
            sectors = without_identities(sectors, masks.guid)
        name = masks.device(block.sysname) if masks else block.sysname
        for at, content in sectors.items():
            yield Entry(f"{CAPTURED_SECTORS[1:]}/{name}/{at}", FILE, content)
        if kind:
            yield Entry(f"{CAPTURED_CONTENTS[1:]}/{name}", FILE, f"{kind}\n".encode())


def _read_disk(tree: sysfs.Tree, block: Block, disk: Disk, pulse: Pulse) -> tuple[dict[int, bytes], str]:
    """Return the sectors that hold the table of a disk by their offset, or if it has none, the kind of the
    only content on it, in a child; nothing if it cannot be read.
    """
    if not disk.size or why_read_blocks(tree, block) or suspended(tree, block):
        return {}, ""
    with suppress(OSError), sysfs.opened(f"/dev/{block.name}") as descriptor:
        if spun_down(descriptor, disk.kind, disk.rotational):
            return {}, ""
        reader = HeartbeatReader(FileReader(descriptor, os.lseek(descriptor, 0, os.SEEK_END)), pulse.beat)
        sector_size = disk.limits.logical_block_size
        table = read_table(reader, sector_size=sector_size)
        if table.table:
            extents = table_extents(reader, table)
            return {extent.start: reader.read(extent.start, extent.length) for extent in extents}, ""
        found = read_contents(reader, sector_size=sector_size)
        is_certain = len(found.content) == 1 and not found.unseen
        return {}, found.content[0].kind if is_certain else ""
    return {}, ""


def _masked(entries: list[Entry], masks: "Masks") -> Iterator[Entry]:
    """Yield the entries, files masked by their kind, and all paths and links masked, because some buses put
    identities into paths, and names of devices may be chosen.
    """
    for path, kind, content in entries:
        masked: bytes | None = content
        if kind == LINK:
            masked = os.fsencode(masks.path(os.fsdecode(content)))
        elif kind == FILE:
            masked = mask_file(masks, f"/{path}", content)
        if masked is not None:
            yield Entry(masks.path(path), kind, masked)


# Replace serial numbers, UUIDs, labels and names in a snapshot by placeholders, and omit everything else that
# is not known to identify nothing: attributes, properties, options and words are kept only if a list has
# them, and only in the form that the kernel gives them. What a later kernel adds is omitted.
#
# The same value gets the same placeholder everywhere, so that references stay valid and the audit of a masked
# snapshot has the findings of the machine.

HOSTNAME = "/proc/sys/kernel/hostname"
OSRELEASE = "/proc/sys/kernel/osrelease"
SYSTEM_FILES = ("/etc/", DRACUT, "/usr/lib/os-release", "/aligntool/initramfs/", "/proc/cmdline", HOSTNAME)

_UUID_OR_MAC = re.compile(
    r"(?<![0-9A-Fa-f-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f-])"
    r"|(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])"
)
_ARRAY_UUID = re.compile(r"[0-9a-f]{32}")
_DM_OWNER = re.compile(r"((?:part\d+-)?(?:LVM|mpath|DMRAID|CRYPT-[A-Z0-9]+|[A-Za-z]+)-)(.+)", re.DOTALL)
# The prefix is kept, and the partition number at the end of an MBR partition's PARTUUID.
_IDENTITY = re.compile(r"(naa\.|eui\.|uuid\.|t10\.|nvme\.|nqn\.|0x|)(.{8}(?=-\d\d$)|.+)(-\d\d|)", re.DOTALL)
_MIN_HEX_DIGITS = 8  # of a hexadecimal identity, whose placeholder has the same length

_COMMON_PLACES = frozenset((
    "/", "/boot", "/boot/efi", "/efi", "/home", "/var", "/var/log", "/var/lib", "/usr", "/opt", "/srv",
    "/tmp", "/root", "/mnt", "/media", "[SWAP]", "none", "swap",
))  # fmt: skip
_SYSTEM_FOLDERS = ("/home", "/var", "/usr", "/boot", "/opt", "/root", "/etc")
_KEPT_OPTIONS = frozenset((
    "defaults", "nofail", "noauto", "auto", "ro", "rw", "noatime", "relatime", "nodiratime", "discard",
    "nodiscard", "sw", "nouuid", "_netdev",
))  # fmt: skip
_KEPT_NUMBERS = re.compile(
    r"(?:x-systemd\.device-timeout|pri|logbufs|logbsize|sunit|swidth|stripe)=-?\d{1,9}[a-z]{0,3}"
)
_SPEC_KEYS = ("UUID", "LABEL", "PARTUUID", "PARTLABEL", "ID")

_MASKED_ATTRIBUTES = frozenset((
    "serial", "wwid", "wwn", "nguid", "eui", "uuid", "subsysnqn", "hostnqn", "hostid", "cid",
))  # fmt: skip
# Numbers, and words of which the kernel has a few: Documentation/ABI/stable/sysfs-block, admin-guide/md.rst.
_NUMBERS = (
    "add_random", "alignment_offset", "atomic_write_boundary_bytes", "atomic_write_max_bytes",
    "atomic_write_unit_max_bytes", "atomic_write_unit_min_bytes", "autoclear", "chunk_sectors", "chunk_size",
    "chunksize", "cmdq_en", "cntlid", "component_size", "current_link_width", "dax", "degraded", "dio",
    "discard_alignment", "discard_granularity", "discard_max_bytes", "discard_max_hw_bytes",
    "discard_zeroes_data", "diskseq", "dma_alignment", "erase_size", "ext_range", "fua", "group_thread_cnt",
    "hidden", "hmb", "hw_sector_size", "io_poll", "io_timeout", "iostats", "layout", "logical_block_size",
    "max_active_zones", "max_discard_segments", "max_hw_sectors_kb", "max_integrity_segments",
    "max_link_width", "max_open_zones", "max_sectors_kb", "max_segment_size", "max_segments",
    "minimum_io_size", "mismatch_cnt", "nomerges", "nr_requests", "nr_zones", "nsid", "numa_node",
    "optimal_io_size", "partial_stripes_expensive", "partition", "partscan", "physical_block_size",
    "preferred_erase_size", "protection_interval_bytes", "queue_depth", "raid_disks", "range",
    "read_ahead_kb", "remapped_nvme", "removable", "ro", "rotational", "rq_affinity", "sizelimit", "sqsize",
    "stable_writes", "start", "stripe_cache_size", "suspended", "tag_size", "timeout", "virt_boundary_mask",
    "wbt_lat_usec", "write_same_max_bytes", "write_zeroes_max_bytes", "zone_append_max_bytes",
    "zone_write_granularity",
)  # fmt: skip
_NUMBER = r"-?\d{1,20}"
_PRINTED = r"[ -~]{0,64}"  # of the maker: the same for all drives of a model
_KEPT_ATTRIBUTES: dict[str, str] = dict.fromkeys(_NUMBERS, _NUMBER) | {
    "dev": r"\d{1,7}:\d{1,7}",
    **dict.fromkeys(("model", "vendor", "rev", "firmware_rev"), _PRINTED),
    **dict.fromkeys(("class", "device", "manfid", "fwrev"), r"0x[0-9a-f]{1,8}"),
    "ssr": r"[0-9a-f]{128}",  # SD Status: speeds and sizes
    **dict.fromkeys(("current_link_speed", "max_link_speed"), r"[0-9.]{1,5} GT/s( PCIe)?|Unknown"),
    "type": r"\d{1,3}|MMC|SD|SDIO|SDcombo",
    "size": r"\d{1,20}",
    "offset": _NUMBER,
    "slot": r"\d{1,5}|none|journal",
    "state": r"(live|running|offline|blocked|transport-offline|quiesce|in_sync|faulty|spare|journal|"
    r"write_mostly|writemostly|write_error|want_replacement|replacement|external_bbl|failfast|,){1,16}",
    "runtime_status": r"active|suspended|suspending|resuming|error|unsupported",
    "transport": r"pcie|rdma|fc|tcp|loop|apple-nvme",
    "subsystype": r"nvm|discovery",
    "queue_type": r"none|simple|ordered",
    "proc_name": r"[A-Za-z0-9_ -]{1,32}",  # the name of a driver
    "scheduler": r"(\[?(none|mq-deadline|kyber|bfq|adios)\]? ?){1,8}",
    "zoned": r"none|host-managed|host-aware",
    "write_cache": r"write (back|through)",
    "cache_type": r"write (back|through)|none",
    "level": r"linear|raid\d{1,2}|faulty|container|multipath",
    "metadata_version": r"\d\.\d{1,2}|none|external:(imsm|ddf|[-/]md_?\d{1,4}/\d{1,4})",
    "array_state": r"clear|inactive|suspended|readonly|read-auto|clean|active|write-pending|active-idle|"
    r"broken",
    "sync_action": r"idle|resync|recover|check|repair|reshape|frozen",
    "sync_completed": r"none|delayed|\d{1,20} / \d{1,20}",
    "sync_speed": r"none|\d{1,12}",
    "reshape_position": r"none|\d{1,20}",
    "consistency_policy": r"none|unknown|resync|bitmap|journal|ppl",
    "location": r"none|[+-]?\d{1,20}",
    "bitmap_type": r"[]\[ ]*((none|bitmap|llbitmap)[]\[ ]*){1,3}",
}
# Pages of vital product data by the number in their second byte (SPC-5, 7.7.2). Besides the ATA page, which
# is masked as below, they have limits and provisioning and no identities (SBC-4, 6.6).
_PAGES = {"vpd_pg89": 0x89, "vpd_pgb0": 0xB0, "vpd_pgb1": 0xB1, "vpd_pgb2": 0xB2}
_PAGE = 64
_CARD = re.compile(r".*/mmc\d+:[0-9a-f]{4}/name")  # the model of a memory card
# Other names of devices are chosen: md_home, of mdadm's `CREATE names=yes`, and those of configfs.
_KERNEL_NAME = re.compile(
    r"(?:(?:[shv]d|xvd|ubd|dasd|fio|rssd|scm)[a-z]{1,4}\d{0,4}"
    r"|(?:nvme\d+(?:c\d+)?n|mmcblk|md|md_d|dm-|loop|nbd|zram|ram|bcache|drbd|rbd|zd|sr|fd"
    r"|nullb|pmem|mtdblock|ublkb|skd)"
    r"\d{1,7}(?:boot\d|rpmb|gp\d|s|\.\d+s?)?(?:p\d{1,4})?"
    r"|(?:cciss|ida|rd)!c\d{1,4}d\d{1,4}(?:p\d{1,4})?|etherd!e\d{1,5}\.\d{1,5}(?:p\d{1,4})?)"
)
# world-wide names: /sys/devices/css0/...
_LONG_NUMBER = re.compile(r"(?<![0-9A-Za-z])0x[0-9a-f]{8,}(?![0-9A-Za-z])")
_RELEASE = r"\d+(?:\.\d+){1,3}(?:-(?:rc)?\d+)?"
_IMAGE_NAME = re.compile(rf"(?:initrd(?:\.img)?|initramfs)(?:-{_RELEASE})?")
_KEPT_PROPERTIES = re.compile(
    r"ID_(?:BUS|TYPE|MODEL|MODEL_ENC|REVISION|ATA(?:_\w+)?|DRIVE_\w+|PART_TABLE_TYPE|"
    r"FS_TYPE|FS_VERSION|FS_USAGE|"
    r"PART_ENTRY_(?:SCHEME|TYPE|FLAGS|NUMBER|OFFSET|SIZE|DISK))|MAJOR|MINOR|DEVTYPE|PARTN|DISKSEQ|SUBSYSTEM"
)
_MASKED_PROPERTIES = re.compile(
    r"(?:ID_|SCSI_IDENT_|ID_SCSI_)SERIAL(?:_SHORT)?|ID_WWN\w*|"
    r"ID_PART_(?:ENTRY|TABLE)_UUID|ID_PART_ENTRY_NAME|"
    r"ID_FS_(?:UUID|LABEL)(?:_ENC)?|MD_UUID"
)
_KEPT_UEVENT = re.compile(
    r"(?:MAJOR|MINOR|DISKSEQ|PARTN|PCI_CLASS)=[0-9A-F]{1,20}|DEVTYPE=(?:disk|partition)|DRIVER=[\w-]{1,32}"
    r"|PCI_(?:ID|SUBSYS_ID)=[0-9A-F:]{1,20}"
)

_BLANKED: dict[str, tuple[tuple[int, int], ...]] = {
    # NVMe: serial number; FRU identifier; subsystem name, which holds the serial number; vendor's own bytes.
    "ctrl": ((4, 24), (112, 128), (768, 1024), (3072, 4096)),
    "ns": ((104, 128), (384, 4096)),  # NGUID, EUI-64; vendor's own bytes
    "hmb": ((8, 4100),),  # the address of the buffer in memory
    "health": ((6, 160), (176, 512)),  # data read and written, hours, power cycles
    # ATA words 10-19 (serial), 108-111 (world-wide name), 129-159 (vendor's), 176-205 (medium's serial), 255.
    "vpd_pg89": ((80, 100), (276, 284), (318, 380), (412, 472), (570, 572)),
}


@dataclass(slots=True)
class Masks:
    """The placeholders assigned so far."""

    _given: dict[str, int] = field(default_factory=dict)
    _devices: dict[str, str] = field(default_factory=dict)

    def note_disk(self, name: str, parts: Iterable[str]) -> None:
        """Note the names of a disk and its partitions, which are masked alike."""
        masked = self.device(name)
        if masked != name:
            self._devices[name] = masked
            self._devices |= {part: f"{masked}p{part.removeprefix(name).removeprefix('p')}" for part in parts}

    def device(self, name: str) -> str:
        """Mask the name of a device, unless the kernel has given it."""
        if name in self._devices or _KERNEL_NAME.fullmatch(name):
            return self._devices.get(name, name)
        return f"md_{self.name(name[3:])}" if name.startswith("md_") else self._placeholder(name)

    def path(self, path: str) -> str:
        """Mask the names of devices and the identities in a path of the kernel."""
        words = path.split("/")
        for index, word in enumerate(words):
            member = word.removeprefix("dev-")  # of an array, in its folder "md"
            head = word[: len(word) - len(member)]
            words[index] = head + self._devices.get(member, member)
            if index and words[index - 1].endswith(".conf.d"):
                words[index] = f"{self._placeholder(word)}.conf"
        masked = self.anywhere("/".join(words))
        return _LONG_NUMBER.sub(lambda found: self.value(found.group()), masked)

    def value(self, secret: str) -> str:
        """Mask an identity; its prefix and the number at its end are kept."""
        plain = secret.strip()
        if not plain.strip("0-:.x"):
            return secret  # zeros identify nothing
        masked = _IDENTITY.sub(
            lambda found: found[1] + self._placeholder(found[2]) + found[3], plain, count=1
        )
        return secret.replace(plain, masked, 1)

    def guid(self, guid: bytes) -> bytes:
        """Mask a GUID of a GPT; udev has the same as text."""
        return UUID(self.value(str(UUID(bytes_le=guid)))).bytes_le

    def name(self, name: str) -> str:
        """Mask a device-mapper name part by part: LVM reads its hyphens."""
        parts = name.replace("--", "\0").split("-")
        return "-".join(self._placeholder(part.replace("\0", "--")) for part in parts)

    def array_name(self, name: str) -> str:
        """Mask "host:name" of md; "any" and numbers are kept."""
        return ":".join(
            word if word == "any" or word.isdecimal() else self.name(word) for word in name.split(":")
        )

    def mapping_uuid(self, uuid: str) -> str:
        """Mask the UUID of a mapping; a prefix such as "LVM-" or "CRYPT-LUKS2-" is kept."""
        owner = _DM_OWNER.fullmatch(uuid)
        return owner.group(1) + self._placeholder(owner.group(2)) if owner else self.value(uuid)

    def place(self, path: str) -> str:
        """Mask a mount point; it remains visible whether the system requires it."""
        if path in _COMMON_PLACES:
            return path
        above = f"/{path.split('/')[1]}" if path.startswith("/") else ""
        return f"{above if above in _SYSTEM_FOLDERS else ''}/masked/{self._number(path)}"

    def node(self, node: str) -> str:
        """Mask the name of a device: "/dev/md/NAME", "/dev/mapper/NAME", a path; "/dev/sda1" is kept."""
        for folder, mask in (("/dev/md/", self.array_name), ("/dev/mapper/", self.name)):
            if node.startswith(folder):
                return folder + mask(node.removeprefix(folder))
        if node.startswith("<"):
            return node
        if node.startswith("/dev/") and node.count("/") == 2:
            return f"/dev/{self.device(node.removeprefix('/dev/'))}"
        return self.place(node) if node.startswith("/") else self.array_name(node)

    def anywhere(self, text: str) -> str:
        """Mask all UUIDs and MAC addresses in the text."""
        return _UUID_OR_MAC.sub(lambda found: self.value(found.group()), text)

    def _number(self, secret: str) -> int:
        return self._given.setdefault(secret, len(self._given) + 1)

    def _placeholder(self, secret: str) -> str:
        """Return "masked7"; for a hexadecimal number, one with the same length and separators."""
        if not secret:
            return secret
        key = secret.lower()
        digits = re.sub("[-:.]", "", key)
        if _ARRAY_UUID.fullmatch(digits):  # mdadm, blkid and the kernel each format it differently
            key = digits
        number = self._number(key)
        if len(digits) < _MIN_HEX_DIGITS or digits.strip("0123456789abcdef"):
            return f"masked{number}"
        left = iter(f"{number:x}".rjust(len(digits), "0"))
        return "".join(letter if letter in "-:." else next(left) for letter in secret)


def mask_file(masks: Masks, path: str, content: bytes) -> bytes | None:
    """Return the masked content, or None to omit the file."""
    name = path.rpartition("/")[2]
    if name in _PAGES and content[1:2] != bytes((_PAGES[name],)):
        return None
    runs = _BLANKED.get(name) or _BLANKED.get(name.rpartition(".")[2] if "/identify/" in path else "")
    if runs is not None:
        raw = bytearray(content)
        for start, end in runs:
            raw[start:end] = bytes(len(raw[start:end]))
        return bytes(raw)
    if name in _PAGES:
        return content[:_PAGE]
    text = content.decode("utf-8", "replace")
    if path.startswith(SYSTEM_FILES):
        return mask_system_file(masks, path, text).encode()
    masked = _mask_attribute(masks, path, text) if path.startswith("/sys/") else _mask_text(masks, path, text)
    return None if masked is None else masked.encode()


def _mask_attribute(masks: Masks, path: str, text: str) -> str | None:
    """Return an attribute of sysfs, masked, or None if it may identify something."""
    name = path.rpartition("/")[2]
    value = sysfs.stripped(text.encode())
    if name == "uevent":
        return "".join(f"{kept}\n" for line in text.splitlines() if (kept := _mask_uevent_line(masks, line)))
    for ending, mask in (
        ("/dm/name", masks.name),
        ("/dm/uuid", masks.mapping_uuid),
        ("/backing_file", masks.place),
    ):
        if path.endswith(ending):
            return mask(value) + "\n"
    if name in _MASKED_ATTRIBUTES:
        return masks.value(text)
    if name == "metadata_version" and value.startswith("external:"):
        text = masks.path(text)
    form = _PRINTED if _CARD.fullmatch(path) else _KEPT_ATTRIBUTES.get(name)
    return text if form and re.fullmatch(form, value) else None


def _mask_text(masks: Masks, path: str, text: str) -> str | None:
    """Return another file of the kernel or udev, masked, or None if nothing is known about it."""
    if path.startswith("/run/udev/data/"):
        return "".join(f"{kept}\n" for line in text.splitlines() if (kept := _mask_udev_line(masks, line)))
    if path == sysfs.MOUNTS:
        mounts = [mount for mount in sysfs.parse_mounts(text.encode()) if mount.source.startswith("/dev/")]
        rows = [
            (mount.number, masks.place(mount.place), mount.kind, masks.node(mount.source)) for mount in mounts
        ]
        return "".join(
            f"1 1 {number} / {place} rw - {kind.partition('.')[0]} {node} rw\n"
            for number, place, kind, node in rows
        )
    if path == sysfs.SWAPS:
        return "".join(_mask_swap_line(masks, line) for line in text.splitlines())
    if path == sysfs.DISKSTATS:
        return "".join(_mask_counters(masks, line) for line in text.splitlines())
    form = {sysfs.UPTIME: r"[0-9. ]+", OSRELEASE: _RELEASE}.get(path)
    found = re.match(form, text) if form else None
    return f"{found[0]}\n" if found else None


def _mask_uevent_line(masks: Masks, line: str) -> str:
    if line.startswith("DEVNAME="):
        return f"DEVNAME={masks.device(line.removeprefix('DEVNAME=').replace('/', '!')).replace('!', '/')}"
    return line if _KEPT_UEVENT.fullmatch(line) else ""


def _mask_counters(masks: Masks, line: str) -> str:
    major, minor, name, *counts = line.split() or ["", "", ""]
    return (
        f"{major} {minor} {masks.device(name)} {' '.join(filter(str.isdecimal, counts))}\n" if counts else ""
    )


def _mask_udev_line(masks: Masks, line: str) -> str:
    if line.startswith("S:md/"):
        return f"S:md/{masks.array_name(line.removeprefix('S:md/'))}"
    if not line.startswith("E:"):
        return ""
    key, _, value = line[2:].partition("=")
    special = {"DM_NAME": masks.name, "MD_NAME": masks.array_name, "DM_UUID": masks.mapping_uuid}
    mask = special.get(key) or (masks.value if _MASKED_PROPERTIES.fullmatch(key) else None)
    if mask:
        return f"E:{key}={mask(value)}"
    return line if _KEPT_PROPERTIES.fullmatch(key) else ""


def _mask_swap_line(masks: Masks, line: str) -> str:
    node, *rest = line.split() or [""]
    if not node.startswith(("/dev/", "Filename")):
        return ""  # a swap file
    return "\t".join((masks.node(node) if node.startswith("/") else node, *rest)) + "\n"


# System files are written by hand: their comments, addresses and commands are omitted.


def mask_system_file(masks: Masks, path: str, text: str) -> str:
    if path == HOSTNAME:
        return masks.name(text.strip()) + "\n"
    if path == "/proc/cmdline":
        words = (_mask_word(masks, word) for word in text.split() if concerns_arrays(word))
        return " ".join(filter(None, words)) + "\n"
    if path.endswith("os-release"):
        return "".join(f"{line}\n" for line in text.splitlines() if line.startswith(("ID=", "ID_LIKE=")))
    if path in (LATE_START_ENABLED, DRACUT):
        return ""  # only its existence counts
    if path == "/etc/fstab":
        return "".join(_mask_fstab(masks, text))
    if path.startswith("/aligntool/"):
        head, inside, conf = text.partition("conf:\n")
        head = "".join(f"{_mask_fact(masks, line)}\n" for line in head.splitlines())
        return head + inside + "".join(_mask_conf(masks, parse_mdadm_conf(conf, path)))
    return "".join(_mask_conf(masks, parse_mdadm_conf(text, path)))


def _mask_conf(masks: Masks, conf: MdadmConf) -> Iterator[str]:
    if conf.homehost:
        special = conf.homehost.startswith("<") or conf.homehost == "any"
        yield f"HOMEHOST {conf.homehost if special else masks.name(conf.homehost)}\n"
    for line in conf.arrays:
        words = [masks.node(line.device)] if line.device else []
        words += [f"UUID={masks.value(line.uuid)}"] if line.uuid else []
        words += [f"name={masks.array_name(line.name)}"] if line.name else []
        yield " ".join(("ARRAY", *words, *(f"{word}=masked" for word in line.pinned))) + "\n"


def _mask_fstab(masks: Masks, text: str) -> Iterator[str]:
    for line in parse_fstab(text):
        spec = _mask_spec(masks, line.spec)
        if spec:
            kept = [word for word in line.options if word in _KEPT_OPTIONS or _KEPT_NUMBERS.fullmatch(word)]
            yield (
                f"{spec} {masks.place(line.place)} {line.kind.partition('.')[0]}"
                f" {','.join(kept) or 'defaults'} 0 0\n"
            )


def _mask_word(masks: Masks, word: str) -> str:
    """Mask a word of the kernel command line; return "" if nothing is known about it."""
    key, _, value = word.partition("=")
    if key == "rd.md.uuid":
        return f"{key}={masks.value(value)}"
    if key in ("root", "resume"):
        return f"{key}={_mask_spec(masks, value) or 'masked'}"
    if key in ("md", "raid"):
        return f"{key}=masked"
    return word if re.fullmatch(r"rd\.(?:auto|md(?:\.(?:conf|imsm|ddf))?)(?:=[01])?", word) else ""


def _mask_fact(masks: Masks, line: str) -> str:
    """Mask a line about an initramfs; return "" if nothing is known about it."""
    key, _, value = line.partition("=")
    if key == "asked":
        return f"{key}={masks.value(value)}"
    if key == "path":
        return f"{key}={_mask_image_path(masks, value)}"
    return line if re.fullmatch(r"(?:maker|mdadm|unseen)=[A-Za-z' -]{0,80}", line) else ""


def _mask_image_path(masks: Masks, path: str) -> str:
    """Mask the folders of an initramfs, which may be the id of the machine, and what is added to a kernel's
    release.
    """
    folder, _, name = path.rpartition("/")
    kept = _IMAGE_NAME.match(name)
    plain = f"{kept[0] if kept else masks.name(name)}{'.img' if name.endswith('.img') else ''}"
    return f"{folder if folder in _COMMON_PLACES else masks.place(folder)}/{plain}"


def _mask_spec(masks: Masks, spec: str) -> str:
    """Mask the device of a line; return "" for a network share, a pseudo file system or a file."""
    key, found, value = spec.partition("=")
    if found and key in _SPEC_KEYS:
        return f"{key}={masks.value(value)}"
    return masks.node(spec) if spec.startswith("/dev/") else ""
