"""Find the target of a benchmark (folder, file or device) and its conditions; list saved results."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from aligntool.commands import shell_word
from aligntool.errors import Refused, failing_as
from aligntool.inventory import Disk, DiskKind, Sampled, link_maximum, port_above, runs_below
from aligntool.linux.content import hole_share, sample
from aligntool.linux.device_numbers import block_number, kernel_name, sysfs_folder
from aligntool.linux.devices import active_word
from aligntool.linux.files import append_line, read_text
from aligntool.linux.look import look
from aligntool.linux.outputs import make_folder
from aligntool.linux.sysfs import LIVE, READ_ONLY, Mount, live_paths, mounts_now, on_battery, opened
from aligntool.linux.targets import refuse_ambiguous, refuse_silent
from aligntool.measure.results import LARGEST, MEMORY, Conditions, DriveState, HistoryEntry, Result, from_json
from aligntool.measure.schedule import Target, TargetKind
from aligntool.measure.sweeps import Spans, Starts, experiment_from_json
from aligntool.units import Extent, mb_s

# Read a saved result of a benchmark, and list all of them.


def history_folder(environment: Mapping[str, str], *, root: bool) -> Path:
    """Return the folder of saved results: in $XDG_STATE_HOME, otherwise in /var/lib for root and
    ~/.local/state for others (XDG Base Directory Specification).
    """
    state = environment.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = "/var/lib" if root else str(Path(environment.get("HOME") or "/", ".local", "state"))
    return Path(state, "aligntool", "bench")


def read_result(file: str) -> Result:
    """Return the result in a file. Raises Refused."""
    return from_json(read_text(file, hint="aligntool bench list", most=LARGEST), file)


def read_any(file: str) -> Result | Starts | Spans:
    """Return the result of a benchmark or an experiment in a file. Raises Refused."""
    text = read_text(file, hint="aligntool bench list", most=LARGEST)
    return experiment_from_json(text, file) or from_json(text, file)


def _history_entry(file: str) -> HistoryEntry:
    found = read_any(file)
    if isinstance(found, Result):
        figure = next(
            (f"{one.test.title} {mb_s(one.rate.median)} MB/s" for one in found.series), "no figures"
        )
        profile = found.settings.profile
        drive = found.conditions.drive
        return HistoryEntry(
            file, None, found.when, profile, found.target, None, drive, found.complete, figure
        )
    name = "alignment" if isinstance(found, Starts) else "span"
    return HistoryEntry(
        file, None, found.when, name, found.target, found.summary, found.drive, found.complete
    )


def list_results(folder: Path) -> list[HistoryEntry]:
    """Return the files of the history, oldest first; empty if there is no history."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".json"))
    except OSError:
        return []
    found = []
    for name in names:
        file = str(folder / name)
        try:
            found.append(_history_entry(file))
        except Refused as refusal:
            found.append(HistoryEntry(file, str(refusal)))  # not a result
    return found


# Test data that measurements left on a device. No signature identifies it, so the digest of its samples is
# recorded, and the next measurement may overwrite what is still the same.


def foreign_data(path: str, size: int) -> Sampled | None:
    """Return samples of a device, or None if they are those of the test data that a measurement left on it.
    Blank samples are never taken for test data.
    """
    sampled = sample(path, Extent(0, size))
    with suppress(OSError):
        if sampled.written and sampled.digest in _test_data().read_text().split():
            return None
    return sampled


@contextmanager
def recorded_test_data(path: str, size: int, report: Callable[[str], None]) -> Iterator[None]:
    """Record the test data that the block leaves on a device. A failure is reported, and is not an error."""
    try:
        yield
    finally:
        try:
            make_folder(_test_data().parent)
            append_line(_test_data(), sample(path, Extent(0, size)).digest)
        except OSError as error:
            report(
                f"{path}: the test data is not recorded, so that the next measurement needs --wipe:"
                f" {error.strerror}"
            )


def _test_data() -> Path:
    return history_folder(dict(os.environ), root=os.geteuid() == 0).with_name("test-data")


# The target of a benchmark: a folder, a file or a device, and its file system.


def find_target(named: str) -> Target:
    """Return the target that the user named. Raises Refused."""
    found = _find(named)
    place = f"{found.path}/{found.name}" if found.name else found.path
    return replace(found, place=os.path.abspath(place))  # noqa: PTH100 - links are not resolved


def _find(named: str) -> Target:
    if not named or "\0" in named:
        raise Refused(f"{named!r} is not the name of a folder, file or device")
    refuse_ambiguous(named, folders=True)
    path = named
    if "/" not in named and not os.path.lexists(named):
        with suppress(OSError):  # "sda" means /dev/sda if that is a device
            path = f"/dev/{named}" if Path("/dev", named).is_block_device() else named
    refuse_silent(path)
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        if named.rpartition("/")[2] in ("", ".", ".."):
            raise Refused(
                f"{named}: folder not found; nothing was written", hint=f"mkdir {shell_word(named)}"
            ) from None
        if "/" not in named:  # a typing error must not create a file
            hint = (
                f"name a folder or device; ./{named} creates a file here; bench list, show and compare are"
                " commands"
            )
            raise Refused(f"{named} not found", hint=hint) from None
        return _new_file(named, path)
    except (OSError, ValueError) as error:
        raise Refused(f"{named}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(mode):
        return _in_folder(named, path, None)
    if stat.S_ISBLK(mode):
        return _device(named, path)
    if stat.S_ISREG(mode):
        return _file(named, path)
    raise Refused(f"{named} is neither a folder nor a file nor a block device", hint="lsblk")


def _new_file(named: str, path: str) -> Target:
    folder = Path(path).parent
    if path.startswith("/dev/") and mount_of("/dev") == mount_of(str(folder) if folder.is_dir() else "/dev"):
        raise Refused(f"{named} not found", hint="lsblk")
    if not folder.is_dir():
        raise Refused(
            f"{named} not found, and neither is its folder {folder}", hint="name an existing folder"
        )
    return _in_folder(named, str(folder), Path(path).name)


def _in_folder(named: str, folder: str, name: str | None) -> Target:
    _refuse_memory(named, folder, "name a folder on the drive, such as /home")
    room = os.statvfs(folder)
    if room.f_flag & os.ST_RDONLY:
        raise Refused(f"{named} is on a file system that is mounted read-only", hint="name another folder")
    return Target(
        named,
        TargetKind.FOLDER,
        folder,
        free=room.f_bavail * room.f_frsize,
        name=name,
        logical_block=_logical_block(Path(folder).stat().st_dev),
        direct=_folder_is_direct(folder),
    )


def _refuse_memory(named: str, path: str, hint: str) -> None:
    mount = mount_of(path)
    if mount and mount.kind in MEMORY:
        raise Refused(f"{named} is in memory ({mount.kind}), not on a drive", hint=hint)


def _folder_is_direct(folder: str) -> bool:
    """Return whether files in the folder support direct I/O, by creating one without a name, which is gone
    when its descriptor is closed.
    """
    try:
        with opened(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT):
            return True
    except OSError as error:
        return error.errno != errno.EINVAL  # other errors (no O_TMPFILE, no permission) do not show it


def _file(named: str, path: str) -> Target:
    status = Path(path).stat()
    if not status.st_size:
        raise Refused(f"{named} is empty: there is nothing to read", hint="name its folder")
    _refuse_memory(named, path, "name a file on the drive")
    return Target(
        named,
        TargetKind.FILE,
        path,
        size=status.st_size,
        logical_block=_logical_block(status.st_dev),
        direct=_opens_directly(named, path),
    )


def _device(named: str, path: str) -> Target:
    direct = _opens_directly(named, path)
    with open(path, "rb", buffering=0) as device:  # noqa: PTH123 - seek tells a block device's size
        size = device.seek(0, os.SEEK_END)
    if not size:
        raise Refused(f"{named} has size 0: no medium", hint="lsblk")
    block = _logical_block(Path(path).stat().st_rdev)
    return Target(named, TargetKind.DEVICE, path, size=size, logical_block=block, direct=direct)


def _opens_directly(named: str, path: str) -> bool:
    opening = failing_as(Refused, f"{named} cannot be opened", denied="run the same command with sudo")
    with (
        opening,
        opened(path, os.O_RDONLY | os.O_NOCTTY),
        suppress(OSError),
        opened(path, READ_ONLY | os.O_DIRECT),
    ):
        return True
    return False


def _logical_block(number: int) -> int:
    """Return the logical block size of a device by its number; if no device has it (btrfs, overlay), a size
    that suits every disk.
    """
    folder = sysfs_folder(number)
    places = (folder, folder.parent)  # the queue of a partition is in the folder above
    found = (LIVE.number(f"{place}/queue/logical_block_size") for place in places)
    return next((size for size in found if size), 4096)


def mount_of(path: str) -> Mount | None:
    """Return the mount that a path is on: the last one with the longest mount point above it."""
    real = os.path.realpath(path)
    try:
        above = [
            mount
            for mount in mounts_now()
            if mount.place in ("/", real) or real.startswith(f"{mount.place}/")
        ]
    except OSError:
        return None
    return max(reversed(above), key=lambda mount: len(mount.place), default=None)


# The conditions of a measurement: drives, their links and temperatures, the file system, the machine.

_MOST_DRIVES = 64


def look_at_conditions(target: Target, span: int) -> Conditions:
    """Return the conditions before the first run, which uses `span` bytes from the start. None: cannot be
    read.
    """
    mount = mount_of(target.path) if target.kind is not TargetKind.DEVICE else None
    return Conditions(
        kernel=os.uname().release,
        processor=_processor(),
        cores=os.cpu_count(),
        governor=_governor(),
        load=round(os.getloadavg()[0], 2),
        on_battery=on_battery(),
        filesystem=mount.kind if mount else None,
        mount_options=mount.options if mount else None,
        room=_room(target),
        free=target.free,
        hole_share=hole_share(target.path, span) if target.kind is TargetKind.FILE else None,
        drives=tuple(drive_state(disk) for disk in disks_below(target, mount)),
    )


def with_final_temperatures(before: Conditions) -> Conditions:
    """Return the conditions with the current temperatures of the drives as those after the run."""
    drives = tuple(replace(drive, temperature_after_c=temperature_of(drive.name)) for drive in before.drives)
    return replace(before, drives=drives)


def disks_below(target: Target, mount: Mount | None) -> tuple[Disk, ...]:
    """Return the disk that the target is on, then the members of an array or a volume, down to drives."""
    first = block_name(target, mount)
    if first is None:
        return ()
    found: dict[str, Disk] = {}
    names = [first]
    while names and len(found) < _MOST_DRIVES:
        try:
            inventory = look((f"/dev/{names.pop(0)}",))
        except Refused:
            continue
        for disk in inventory.disks:
            if disk.name not in found:
                found[disk.name] = disk
                names += disk.slaves
    return tuple(found.values())


def block_name(target: Target, mount: Mount | None) -> str | None:
    """Return the kernel's name of the block device: the target itself, the source of its mount, or the device
    number of its file.
    """
    number = block_number(target.path) or block_number(mount.source if mount else "")
    if not number and target.kind is not TargetKind.DEVICE:
        with suppress(OSError):
            number = Path(target.path).stat().st_dev
    folder = sysfs_folder(number)
    return kernel_name(folder) if number and folder.exists() else None


def drive_state(disk: Disk) -> DriveState:
    path = next((path for path in disk.links if path), ())
    hop = path[0] if path else None
    link = f"{hop.speed_gts:g} GT/s x{hop.width}" if hop and hop.speed_gts and hop.width else None
    most = link_maximum(hop, port_above(path)) if hop else None
    slowed = bool(hop and most and most.both_ends and runs_below(hop, most))
    array = disk.array
    folder = f"/sys/class/block/{disk.name.replace('/', '!')}"
    # that the device offers (C3): for ATA the depth of NCQ, otherwise that of the block layer
    depth = disk.queue_depth
    if depth is None and disk.kind is DiskKind.NVME:
        depth = LIVE.number(f"{folder}/queue/nr_requests")
    return DriveState(
        name=disk.name,
        model=disk.model,
        firmware=disk.firmware,
        size=disk.size,
        kind=disk.kind.value,
        rotational=disk.rotational,
        link=link,
        link_slowed=slowed,
        queue_depth=depth,
        scheduler=active_word(LIVE.text(f"{folder}/queue/scheduler") or "") or None,
        write_cache=LIVE.text(f"{folder}/queue/write_cache") or None,
        array_level=array.level if array else None,
        array_action=LIVE.text(f"{folder}/md/sync_action") or None,
        array_degraded=bool(array and array.degraded),
        temperature_c=temperature_of(disk.name),
    )


def temperature_of(name: str) -> float | None:
    """Return the temperature from hwmon in °C, by the NVMe driver or drivetemp for ATA; sysfs has thousandths
    (Documentation/hwmon/sysfs-interface).
    """
    folder = Path("/sys/class/block", name.replace("/", "!"), "device")
    for below in ("hwmon*", "hwmon/hwmon*", "device/hwmon/hwmon*"):
        for sensor in live_paths(folder, f"{below}/temp1_input"):
            number = LIVE.number(str(sensor))
            if number is not None:
                return number / 1000
    return None


def _governor() -> str | None:
    """Return the frequency governors of the cores, a single word if all have the same."""
    files = live_paths(Path("/sys/devices/system/cpu"), "cpu[0-9]*/cpufreq/scaling_governor")
    words = dict.fromkeys(word for file in files if (word := LIVE.text(str(file))))
    return ", ".join(words) or None


def _processor() -> str | None:
    for line in (LIVE.content("/proc/cpuinfo") or b"").decode("utf-8", "replace").splitlines():
        name, found, value = line.partition(":")
        if found and name.strip() in ("model name", "Model", "cpu model"):
            return value.strip() or None
    return None


def _room(target: Target) -> int | None:
    with suppress(OSError):
        found = None if target.kind is TargetKind.DEVICE else os.statvfs(target.path)
        return found.f_blocks * found.f_frsize if found else None
    return None
