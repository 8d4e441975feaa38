"""Conditions of a measurement: load, temperature, cache, fill, power."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aligntool.inventory import DiskKind
from aligntool.units import GIB, format_about

HOT_C = 70.0  # from which on many SSDs slow themselves down; their own threshold is not always told
MEMORY = ("tmpfs", "ramfs", "devtmpfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "sshfs", "vboxsf")
COPY_ON_WRITE = ("btrfs", "zfs", "bcachefs", "nilfs2")
FULL = 0.9
_STACKED = (DiskKind.MD, DiskKind.DM, DiskKind.BCACHE)


@dataclass(frozen=True, slots=True)
class DriveState:
    """A disk under the target. None: not known."""

    name: str
    model: str | None = None
    firmware: str | None = None
    size: int | None = None
    kind: str | None = None
    rotational: bool | None = None
    link: str | None = None  # "8 GT/s x4"
    link_slowed: bool = False
    scheduler: str | None = None
    queue_depth: int | None = None  # requests that it takes at once, as the kernel has it
    write_cache: str | None = None  # "write back", "write through"
    array_level: str | None = None
    array_action: str | None = None  # "idle", "resync", "recover", "check" ...
    array_degraded: bool = False
    temperature_c: float | None = None
    temperature_after_c: float | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """Sizes in bytes. None: not known, or there is none."""

    kernel: str = ""
    fio: str = ""
    processor: str | None = None
    cores: int | None = None
    governor: str | None = None
    load: float | None = None  # runnable tasks over the last minute, before it began
    on_battery: bool = False
    filesystem: str | None = None
    mount_options: str | None = None
    room: int | None = None  # of the file system, in all
    free: int | None = None  # before it began
    caches_dropped: bool = False
    hole_share: float | None = None  # of what is read of a file that is there; of a device nobody can tell
    drives: tuple[DriveState, ...] = ()  # the one that was named first, then those below it

    @property
    def drive(self) -> str:
        """Return the model or name of the first drive; "": not known."""
        return (self.drives[0].model or self.drives[0].name) if self.drives else ""


def bottom_of(drives: Sequence[DriveState]) -> Sequence[DriveState]:
    """Return the drives that lie below arrays and volumes; where none of those is known, what is."""
    return [drive for drive in drives if drive.kind not in _STACKED] or drives


def crowded_words(seen: Conditions) -> str:
    """Return why equal rates prove nothing: other programs waited for every core; "": they did not."""
    if seen.load is None or not seen.cores or seen.load < seen.cores:
        return ""
    return f"busy machine (load {seen.load:g} on {seen.cores} cores before it began)"


def warnings_of(conditions: Conditions, *, direct: bool) -> Iterator[str]:
    """Why not to trust the figures, a sentence each."""
    if not direct:
        yield "direct I/O is not possible here: these are figures of the page cache as much as of the drive"
    if conditions.hole_share:
        yield holes_words(conditions.hole_share)
    yield from _about_file_system(conditions)
    yield from _about_machine(conditions)
    for drive in conditions.drives:
        yield from _about_drive(drive)


def holes_words(share: float) -> str:
    """`share`: of what is read, above 0."""
    much = "all" if share >= 1 else f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"
    return (
        f"{much} of what is read are holes of the file, which were never written: the file system answers those "
        "without the drive, so that the figures are the processor's as much as the drive's; name the folder instead, "
        "where a file is made and filled"
    )


def _about_file_system(seen: Conditions) -> Iterator[str]:
    kind, options = seen.filesystem or "", seen.mount_options or ""
    if kind in REMOTE or kind.startswith("fuse"):
        yield f"{kind} is not a drive's own file system: what lies between is measured as well"
    if kind == "overlay":
        yield "this is an overlay: the file lies on the file system of its upper folder"
    if kind in COPY_ON_WRITE:
        yield f"{kind} writes every block to a new place: repeated writes do not go where the first ones went"
    if "compress" in options or kind == "zfs":
        yield "the file system may compress; the data is random, so it gains nothing, and costs time"
    if seen.room and seen.free is not None and seen.free < seen.room * (1 - FULL):
        yield f"the file system is {100 - 100 * seen.free // seen.room} % full; a drive without free room writes slower"


def _about_machine(seen: Conditions) -> Iterator[str]:
    if seen.governor and seen.governor not in ("performance", "schedutil"):
        yield (
            f"the processor's governor is {seen.governor}: small requests one at a time look slower than the drive is"
        )
    if seen.load is not None and seen.cores and seen.load > seen.cores / 2:
        yield f"the machine is busy with other things (load {seen.load:g} on {seen.cores} cores)"
    if seen.on_battery:
        yield "the machine runs on its battery, and may save power"


def _about_drive(drive: DriveState) -> Iterator[str]:
    if drive.array_action and drive.array_action not in ("idle", "frozen"):
        yield f"{drive.name} is busy with a {drive.array_action}: measure again when that has ended"
    if drive.array_degraded:
        yield f"{drive.name} is degraded: a member is missing"
    if drive.link_slowed:
        yield f"the link of {drive.name} is slower than it could be: {drive.link}"
    hottest = max((t for t in (drive.temperature_c, drive.temperature_after_c) if t is not None), default=None)
    if hottest is not None and hottest >= HOT_C and drive.kind == "nvme":
        yield f"{drive.name} got to {hottest:g} °C: it may have slowed itself down"
    if drive.scheduler and drive.scheduler not in ("none", "mq-deadline") and drive.rotational is False:
        yield f"{drive.name} has the scheduler {drive.scheduler}: it costs time on a fast drive"
    if drive.kind == "loop":
        yield f"{drive.name} is a loop device: its file and what that lies on are measured as well"


def room_words(needed: int, free: int) -> str | None:
    """Why the file does not fit; None: it does. A part of the file system stays free."""
    spare = min(GIB, free // 20)
    if needed + spare <= free:
        return None
    return f"{format_about(needed)} are needed and {format_about(spare)} to spare, and {format_about(free)} are free"
