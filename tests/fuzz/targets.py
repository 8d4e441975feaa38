"""The fuzz targets: a name, a way to try one input, a way to mutate one, and the seeds.

Trying an input returns the shape of the result, in a word or two, so that an engine without coverage can recognise new
ones. Any exception is a failure. Every target ends in an audit that is printed in every format, because hostile values
reach that far.
"""

import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from aligntool.contents import lvm_text
from aligntool.contents.layers import read_contents, read_layers
from aligntool.documents import load_object
from aligntool.errors import Refused
from aligntool.formats.gpt import MOST_ENTRY_BYTES
from aligntool.formats.identify import decode_hmb, decode_identify, decode_names, decode_nvme, identify_in_vpd
from aligntool.formats.reader import BYTES, LONGEST_READ, MOST, OverBudgetError
from aligntool.formats.tables import read_table
from aligntool.inventory import Disk, DiskKind, Inventory, IoLimits, Layer, Partition, Role, Table, TableLabel
from aligntool.linux.devices import vpd_serial
from aligntool.linux.look import look
from aligntool.linux.sysfs import Record, parse_dump, parse_record
from aligntool.mover.journal import unpack
from aligntool.recipes.drives import DriveDatabase, load_drives
from aligntool.recipes.schema import read_tables
from aligntool.units import MIB, Extent
from tests.fuzz import bombs, handmade_seeds, machine, tool_seeds
from tests.fuzz.mutation import Mutator
from tests.fuzz.properties import Broken, check, render_all
from tests.fuzz.sparse import HAS_BAD_SECTOR, IS_DRIVE, SparseDisk, decode

MOST_READ_BY_TABLES = 4 * MOST_ENTRY_BYTES + MIB  # a GPT, its backup at three places, and a chain of EBRs
MOST_READ_BY_LAYERS = 24 * MIB  # 32 areas one inside the other: both ends of each, and the labels of ZFS
MOST_READ_OF_LUKS = 9 * MIB  # two headers of at most 4 MiB
MOST_REQUESTS = 20_000
TOLD = 3  # one input in this many goes on through the audit, which takes longer than any parser
VALIDATED = 24  # one input in this many is checked against the JSON schema, which takes longer than everything else

Seeds = Callable[[Path], list[bytes]]


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    run: Callable[[bytes], str]
    mutate: Callable[[Mutator, bytes, int], bytes]
    seeds: Seeds
    longest: int = 24 * 1024  # bytes of one input


def run_table(data: bytes) -> str:
    disk = decode(data)
    reader = disk.reader()
    reader.most_bytes = MOST_READ_BY_TABLES
    reading = read_table(reader, sector_size=disk.sector_size)  # an OSError here is a failure: none may escape
    _few_requests(reader.requests)
    _render_disk(data, disk, table=reading.table, partitions=reading.partitions, table_read=True)
    if reading.table is None:
        return "none"
    faults = {fault.fault.value for fault in reading.table.faults}
    roles = {partition.role.value for partition in reading.partitions}
    states = [copy.state.value for copy in reading.table.copies]
    return " ".join((reading.table.label, str(reading.table.sector_size), *sorted(faults), *sorted(roles), *states))


def run_layers(data: bytes) -> str:
    disk = decode(data)
    reader = disk.reader()
    reader.most_bytes = 32 * MOST_READ_OF_LUKS + MOST_READ_BY_LAYERS
    container = disk.container
    try:
        layers = read_layers(reader, container, sector_size=disk.sector_size or 512)
    except OverBudgetError:
        return "over budget"
    except OSError:
        if not disk.choices & HAS_BAD_SECTOR:
            raise
        return "unreadable"
    _few_requests(reader.requests)
    encrypted = sum("crypto_LUKS" in shape for shape in _shapes(layers))
    if reader.bytes_read > MOST_READ_BY_LAYERS + encrypted * MOST_READ_OF_LUKS:
        raise Broken(f"{reader.bytes_read} bytes were read for {encrypted} encrypted volumes and what is around them")
    partition = Partition(1, container, content=layers, content_read=True)
    table = Table(TableLabel.GPT, disk.sector_size or 512)
    _render_disk(data, disk, table=table, partitions=(partition,), table_read=True)
    return " ".join(_shapes(layers)) or "none"


def run_contents(data: bytes) -> str:
    """Run the whole path of an image file, with its layers and the layers inside them."""
    disk = decode(data)
    reader = disk.reader()
    seen = read_contents(reader, sector_size=disk.sector_size)
    if reader.bytes_read > MOST_READ_BY_TABLES + MOST[BYTES] + LONGEST_READ:
        raise Broken(f"{reader.bytes_read} bytes were read of a disk with {len(seen.partitions)} partitions")
    _render_disk(
        data, disk, table=seen.table, partitions=seen.partitions, table_read=seen.table_read,
        content=seen.content, content_read=seen.content_read, unseen=seen.unseen,
    )  # fmt: skip
    label = seen.table.label if seen.table else "none"
    kinds = {shape for partition in seen.partitions for shape in _shapes(partition.content)}
    return " ".join((label, str(len(seen.partitions)), *sorted(kinds), *_shapes(seen.content)))


def _shapes(layers: Sequence[Layer]) -> Iterable[str]:
    for layer in layers:
        yield f"{layer.kind}:{layer.version}:{len(layer.problems)}:{min(len(layer.segments), 4)}"
        yield from (f">{inner}" for inner in _shapes(layer.inner))


def run_nvme(data: bytes) -> str:
    pages = decode(data)
    raw = pages.reader().read(0, 8192 + 8).ljust(8192 + 8, b"\0") if not pages.choices & HAS_BAD_SECTOR else b""
    granted = decode_hmb(raw[8192] if raw else 0, raw[8193:8197])
    facts = decode_nvme(raw[:4096], raw[4096:8192], hmb_granted=granted)
    disk = Disk(
        "nvme0n1", "/dev/nvme0n1", DiskKind.NVME, pages.size, IoLimits(512, 512, 512, 0, 0), nvme=facts,
        partitions=(Partition(1, Extent(pages.start, 4096)),), table=Table(TableLabel.GPT, 512), table_read=True,
    )  # fmt: skip
    return _render(data, disk, str((len(facts.formats), facts.format_in_use, facts.max_transfer, facts.hmb_granted)))


def run_ata(data: bytes) -> str:
    pages = decode(data)
    raw = pages.reader().read(0, 1024).ljust(1024, b"\0") if not pages.choices & HAS_BAD_SECTOR else b""
    identify = identify_in_vpd(raw[: 60 + 512]) or raw[:512]
    facts, (model, serial, firmware) = decode_identify(identify), decode_names(identify)
    logical = facts.logical_sector_size if facts else None
    limits = IoLimits(
        logical, facts.physical_sector_size if facts else None, None, 0, facts.alignment_offset if facts else None
    )
    disk = Disk(
        "sda", "/dev/sda", DiskKind.ATA, pages.size, limits, ata=facts, model=model, firmware=firmware,
        serial=serial or vpd_serial(raw[512:]), queue_depth=facts.queue_depth if facts else None,
        partitions=(Partition(1, Extent(pages.start, 4096)),), table=Table(TableLabel.DOS, 512), table_read=True,
    )  # fmt: skip
    return _render(data, disk, str(facts))


def run_udev(data: bytes) -> str:
    shapes = []
    for record in (parse_record(data), parse_dump(data)):
        for key in record.properties:
            value, number = record.decoded(key), record.number(key)
            if not isinstance(value, str | None) or not isinstance(number, int | None):
                raise Broken(f"{key} decodes to {value!r} and {number!r}")
        shapes.append(f"{min(len(record.properties), 9)}/{min(len(record.links), 9)}")
        _render_record(data, record)
    return " ".join(shapes)


def _render_record(data: bytes, record: Record) -> None:
    disk = Disk(
        "sda", "/dev/sda", DiskKind.USB, 1 << 30, IoLimits(512, 4096), model=record.decoded("ID_MODEL_ENC"),
        serial=record.get("ID_SERIAL"), content_hint=record.get("ID_FS_TYPE"), mounted_at=record.links,
    )  # fmt: skip
    _render(data, disk, "")


def run_lvm_text(data: bytes) -> str:
    section = lvm_text.parse(data.decode("utf-8", "replace"))
    return _outline(section, 0)


def _outline(section: object, depth: int) -> str:
    """Outline the text, and check that it ends: the parser promises a limit on nesting."""
    if depth > lvm_text.DEEPEST + 1:
        raise Broken(f"sections nested {depth} deep")
    if isinstance(section, dict):
        return "{" + "".join(_outline(value, depth + 1) for value in list(section.values())[:6]) + "}"
    return "[]" if isinstance(section, list) else type(section).__name__[0]


def run_machine(data: bytes) -> str:
    """Run the captured tree of a machine of five disks, with a few of its files changed."""
    folder = Path(_machine_folder().name)
    with machine.edited(folder, machine.decode_edits(data)):
        try:
            inventory = look((), sysroot=str(folder))
        except Refused:
            return "refused"
    for disk in inventory.disks:
        check(disk)
    rows = {disk.name: _drives().known(disk) for disk in inventory.disks}
    if _one_in(TOLD, data):
        render_all(inventory, rows=rows, validate=_one_in(VALIDATED, data))
    return " ".join(f"{disk.kind}{len(disk.partitions)}{len(disk.links)}" for disk in inventory.disks)


@cache
def _drives() -> DriveDatabase:
    return load_drives()


@cache
def _machine_folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder that is removed with the process, or with the folder that the process works in."""
    folder = tempfile.TemporaryDirectory(prefix="aligntool-fuzz-")
    machine.write_machine(Path(folder.name))
    return folder


def run_bomb(data: bytes) -> str:
    """As `run_contents`, and what was cut off must be reported, and never be called aligned."""
    disk = decode(data)
    seen = read_contents(disk.reader(), sector_size=disk.sector_size)
    _render_disk(
        data, disk, table=seen.table, partitions=seen.partitions, table_read=seen.table_read,
        content=seen.content, content_read=seen.content_read, unseen=seen.unseen,
    )  # fmt: skip
    cut = [part.number for part in seen.partitions if not part.content_read and part.role is Role.PRIMARY]
    parked = seen.table.in_flight.partitions if seen.table and seen.table.in_flight else ()
    if set(cut) - set(parked) and not seen.unseen:
        raise Broken(f"nothing says that partition {cut[0]} was not looked at")
    return f"{len(seen.partitions)} {len(cut)} {[unseen.why for unseen in seen.unseen][:1]}"


def run_journal(data: bytes) -> str:
    """The body of a journal of a disk of 1 MiB, with these bytes inside."""
    try:
        unpack(zlib.compress(len(data).to_bytes(8, "little") + data, 1), MIB)
    except Refused as refusal:
        return f"refused by {type(refusal.__cause__).__name__}"
    return "journal"


def run_toml(data: bytes) -> str:
    try:
        _, tables = read_tables("FILE", data.decode("utf-8", "replace"), kinds=("drive",), keys=None)
    except Refused:
        return "refused"
    return str(len(tables["drive"]))


def run_json(data: bytes) -> str:
    try:
        return str(min(len(load_object(data.decode("utf-8", "replace"))), 9))
    except ValueError:
        return "refused"


def _few_requests(count: int) -> None:
    if count > MOST_REQUESTS:
        raise Broken(f"{count} requests to the disk")


def _render_disk(data: bytes, disk: SparseDisk, **seen: object) -> None:
    is_drive = bool(disk.choices & IS_DRIVE)
    limits = IoLimits(disk.sector_size, 4096, 4096, 33553920, 3584) if is_drive else IoLimits()
    name = "sda" if is_drive else "disk.img"
    kind = DiskKind.ATA if is_drive else DiskKind.IMAGE
    told = replace(Disk(name, name, kind, disk.size, limits), **seen)  # type: ignore[arg-type]
    _render(data, told, "")


def _render(data: bytes, disk: Disk, shape: str) -> str:
    check(disk)
    if _one_in(TOLD, data):
        render_all(Inventory((disk,)), validate=_one_in(VALIDATED, data))
    return shape


def _one_in(count: int, data: bytes) -> bool:
    """Choose at random, but always the same for the same input, so that a failure can be repeated."""
    return zlib.crc32(data) % count == 0


def _some(*families: str) -> Seeds:
    def seeds(folder: Path) -> list[bytes]:
        made = [disk for family in families for disk in handmade_seeds.FAMILIES[family]()]
        made += [disk for family in families for disk in tool_seeds.disks(family, folder)]
        return [disk.encoded() for disk in made]

    return seeds


def _bombs(_: Path) -> list[bytes]:
    return [make().encoded() for make in bombs.DISKS.values()]


def _texts_of(suffix: str) -> Seeds:
    def seeds(folder: Path) -> list[bytes]:
        path, found = folder / "text", []
        for name, (make, _) in bombs.TEXTS.items():
            if name.endswith(suffix):
                make(path)
                found.append(path.read_bytes())
        return found

    return seeds


TARGETS = (
    Target("gpt", run_table, Mutator.disk, _some("gpt")),
    Target("mbr", run_table, Mutator.disk, _some("mbr")),
    Target("old-labels", run_table, Mutator.disk, _some("old-labels")),
    Target("md", run_layers, Mutator.disk, _some("md")),
    Target("lvm", run_layers, Mutator.disk, _some("lvm")),
    Target("luks", run_layers, Mutator.disk, _some("luks")),
    Target("linux-fs", run_layers, Mutator.disk, _some("linux-fs")),
    Target("windows-fs", run_layers, Mutator.disk, _some("windows-fs")),
    Target("other-layers", run_layers, Mutator.disk, _some("other-layers")),
    Target("contents", run_contents, Mutator.disk, _some("contents")),
    Target("nvme", run_nvme, Mutator.disk, _some("nvme")),
    Target("ata", run_ata, Mutator.disk, _some("ata")),
    Target("udev", run_udev, Mutator.text, handmade_seeds.udev_texts),
    Target("lvm-text", run_lvm_text, Mutator.text, handmade_seeds.lvm_texts),
    Target("bombs", run_bomb, Mutator.disk, _bombs, 2 * MIB),
    Target("journal", run_journal, Mutator.text, lambda _: list(bombs.INDEXES), 4 * MIB),
    Target("toml", run_toml, Mutator.text, _texts_of(".toml"), 2 * MIB),
    Target("json", run_json, Mutator.text, _texts_of(".json"), 2 * MIB),
    Target("machine", run_machine, Mutator.edits, handmade_seeds.machine_edits, 4096),
)


def target_named(name: str) -> Target:
    return next(target for target in TARGETS if target.name == name)
