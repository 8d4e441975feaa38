"""The LBA formats of NVMe drives: which one a drive gets, and why it gets none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aligntool.commands import is_node, typed
from aligntool.errors import Refusal
from aligntool.inventory import Disk, DiskKind, LbaFormat
from aligntool.units import align_down, is_sector_size

PERFORMANCE = ("best", "better", "good", "degraded")  # NVMe base specification, Relative Performance
# bytes of a block: md reads its superblocks by pages (Linux 6.19, "md: allow configuring ...")
LARGEST = 4096


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, and what a format of it erases. None: not readable."""

    scope: str | None = None  # `format_scope` of its drive; "namespace" if the drive has a single one
    number: int | None = None


def is_possible(size: int) -> bool:
    """Return whether the members of an array can have logical blocks of that size."""
    return is_sector_size(size) and size <= LARGEST


def format_of(disk: Disk, size: int) -> LbaFormat | None:
    """Return the format with that block size and without metadata that the drive rates best, or None."""
    formats = disk.nvme.formats if disk.nvme else ()
    found = [form for form in formats if form.data_size == size and not form.metadata_size]
    return min(found, key=lambda form: form.relative_performance, default=None)


def format_words(form: LbaFormat) -> str:
    metadata = f"+{form.metadata_size}" if form.metadata_size else ""
    return f"{form.data_size}{metadata} bytes ({PERFORMANCE[form.relative_performance]})"


def change_words(disk: Disk, size: int) -> str:
    """Return the format in use and the one that the drive would get."""
    formats = disk.nvme.formats if disk.nvme else ()
    in_use = disk.nvme.format_in_use if disk.nvme else None
    now = next((format_words(each) for each in formats if each.index == in_use), "unknown")
    form = format_of(disk, size)
    new = f"format {form.index}, {format_words(form)}" if form else "unknown"
    return f"format {in_use}, {now}, becomes {new}, as rated by the drive"


def as_formatted(disk: Disk, size: int) -> Disk:
    """Return an empty drive as it is expected to be with logical blocks of `size` bytes; unchanged if it has
    them.
    """
    if disk.limits.logical_block_size == size:
        return disk
    form = format_of(disk, size)
    limits = replace(
        disk.limits,
        logical_block_size=size,
        physical_block_size=max(size, disk.limits.physical_block_size or 0),
        minimum_io_size=max(size, disk.limits.minimum_io_size or 0),
    )
    nvme = replace(disk.nvme, format_in_use=form.index) if disk.nvme and form else disk.nvme
    whole = align_down(disk.size, size) if disk.size else disk.size
    return replace(disk, size=whole, limits=limits, nvme=nvme)


def format_refusals(
    disk: Disk, name: str, size: int, namespace: Namespace, others: Sequence[Disk]
) -> Iterator[Refusal]:
    """Yield why a drive cannot get logical blocks of `size` bytes, whatever its content. `name`: of the
    member on it; `others`: every disk of the machine.
    """
    if disk.kind is not DiskKind.NVME or disk.nvme is None:
        text = f"{name} is not on an NVMe drive, so its logical blocks cannot be changed"
        hint = f"replace it with a drive with blocks of {size} bytes"
        if not is_node(disk.path):
            text = f"{name} is a file, so its logical blocks cannot be changed"
            hint = f"for drives that already have such blocks: --sector-size {size} instead of --lba-size"
        yield Refusal("lba-format", name, text, hint)
        return
    yield from _refuse_unidentified(disk, others)
    look = typed("nvme id-ns -H", disk.path)
    nvme = disk.nvme
    if None in (nvme.format_in_use, namespace.scope, namespace.number):
        text = f"{disk.name} did not report its formats"
        yield Refusal("not-read", disk.name, text, f"run the same command with sudo; {look}")
        return
    if format_of(disk, size) is None:
        offered = ", ".join(sorted({format_words(form) for form in nvme.formats}))
        text = f"{disk.name} has no format with {size} bytes and no metadata; it has {offered}"
        yield Refusal("lba-format", disk.name, text, look)
    before = next((form for form in nvme.formats if form.index == nvme.format_in_use), None)
    if before is None or before.metadata_size:
        text = f"{disk.name} keeps metadata with its blocks, which the new format would not have"
        yield Refusal("lba-format", disk.name, text, look)
    if namespace.scope == "none":
        yield Refusal("lba-format", disk.name, f"{disk.name} does not support formatting a namespace", look)
    if len(nvme.controllers) != 1:
        text = (
            f"{disk.name} is reached through {len(nvme.controllers)} controllers: other machines may be using"
            " it"
        )
        yield Refusal("lba-format", disk.name, text, typed("nvme list-subsys", disk.path))
    if namespace.scope == "drive":
        beside = [
            other.name for other in others if other.name != disk.name and _share_controller(other, disk)
        ]
        also = ", ".join(beside) or "those that this machine does not see"
        text = f"formatting {disk.name} erases every namespace of its drive, including {also} (FNA)"
        yield Refusal("lba-format", disk.name, text, typed("nvme list-ns --all", disk.path))


def _refuse_unidentified(disk: Disk, others: Sequence[Disk]) -> Iterator[Refusal]:
    """Refuse a drive that could be mistaken for another one when the work is resumed."""
    name = disk.name
    alike = [other.name for other in others if other.name != name and _identity(other) == _identity(disk)]
    if alike or not (disk.wwn or disk.serial):
        text = (
            f"{name} has neither a serial number nor a WWN, so it could later be mistaken for another drive"
        )
        if alike:
            text = f"{name} cannot be distinguished from {', '.join(alike)} by model, serial number and WWN"
        yield Refusal("lba-format", name, text, "lsblk -o NAME,MODEL,SERIAL,WWN")


def _identity(disk: Disk) -> tuple[str | None, ...]:
    return disk.model, disk.serial, disk.wwn


def _share_controller(one: Disk, other: Disk) -> bool:
    controllers = (set(disk.nvme.controllers) if disk.nvme else set() for disk in (one, other))
    return not set.isdisjoint(*controllers)
