"""What is so while it is measured: drives, their links and temperatures, the file system, the machine.

In: a Target. Out: Conditions. Alone because most of it is in no inventory: it changes from one minute to the next.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aligntool.bench.conditions import Conditions, DriveState
from aligntool.bench.schedule import Target, TargetKind
from aligntool.errors import Refused
from aligntool.inventory import Disk, most_of, port_above, runs_below
from aligntool.probe.bench_targets import Mount, mount_of
from aligntool.probe.holes import hole_share

_SYS_BLOCK = Path("/sys/class/block")
_MOST_DRIVES = 64


def look_at_conditions(target: Target, span: int) -> Conditions:
    """Before the first run, which is over so many bytes from the start. What cannot be seen is None."""
    mount = mount_of(target.path) if target.kind is not TargetKind.DEVICE else None
    return Conditions(
        kernel=os.uname().release,
        processor=_processor(),
        cores=os.cpu_count(),
        governor=_governor(),
        load=round(os.getloadavg()[0], 2),
        on_battery=_on_battery(),
        filesystem=mount.kind if mount else None,
        mount_options=mount.options if mount else None,
        room=_room(target),
        free=target.free,
        hole_share=hole_share(target.path, span) if target.kind is TargetKind.FILE else None,
        drives=tuple(drive_state(disk) for disk in disks_below(target, mount)),
    )


def warmed(before: Conditions) -> Conditions:
    """The same with the temperatures of now as those of after."""
    drives = tuple(replace(drive, temperature_after_c=_temperature(drive.name)) for drive in before.drives)
    return replace(before, drives=drives)


def disks_below(target: Target, mount: Mount | None) -> tuple[Disk, ...]:
    """The disk that the target is on, then the members of an array or a volume, down to drives."""
    first = _block_name(target, mount)
    if first is None:
        return ()
    from aligntool.probe.look import look

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


def _block_name(target: Target, mount: Mount | None) -> str | None:
    """The kernel's name of the block device: of the mount's source, else of the number that the file has."""
    for path in (target.path, mount.source if mount else ""):
        with suppress(OSError, ValueError):
            number = Path(path).stat().st_rdev
            if number and Path(path).is_block_device():
                return _name_of(number)
    if target.kind is TargetKind.DEVICE:
        return None
    with suppress(OSError):
        return _name_of(Path(target.path).stat().st_dev)
    return None


def _name_of(number: int) -> str | None:
    folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return folder.resolve().name.replace("!", "/") if folder.exists() else None


def drive_state(disk: Disk) -> DriveState:
    path = next((path for path in disk.links if path), ())
    hop = path[0] if path else None
    link = f"{hop.speed_gts:g} GT/s x{hop.width}" if hop and hop.speed_gts and hop.width else None
    most = most_of(hop, port_above(path)) if hop else None
    slowed = bool(hop and most and most.both_ends and runs_below(hop, most))
    array = disk.array
    return DriveState(
        name=disk.name,
        model=disk.model,
        firmware=disk.firmware,
        size=disk.size,
        kind=disk.kind.value,
        rotational=disk.rotational,
        link=link,
        link_slowed=slowed,
        scheduler=_scheduler(disk.name),
        queue_depth=_queue_depth(disk),
        write_cache=_text(_folder(disk.name) / "queue/write_cache"),
        array_level=array.level if array else None,
        array_action=_text(_folder(disk.name) / "md/sync_action"),
        array_degraded=bool(array and array.degraded),
        temperature_c=_temperature(disk.name),
    )


def _folder(name: str) -> Path:
    return _SYS_BLOCK / name.replace("/", "!")


def _queue_depth(disk: Disk) -> int | None:
    """What the device offers (C3): NCQ's depth of ATA, else what the block layer gives it."""
    if disk.queue_depth is not None:
        return disk.queue_depth
    word = _text(_folder(disk.name) / "queue/nr_requests")
    return int(word) if word and word.isdecimal() and disk.kind.value == "nvme" else None


def _scheduler(name: str) -> str | None:
    """ "[none] mq-deadline": the one in brackets is in use."""
    words = (_text(_folder(name) / "queue/scheduler") or "").split()
    chosen = next((word.strip("[]") for word in words if word.startswith("[")), None)
    return chosen or (words[0] if len(words) == 1 else None)


def _temperature(name: str) -> float | None:
    """hwmon of the NVMe driver, or of drivetemp for ATA, in thousandths (Documentation/hwmon/sysfs-interface)."""
    for file in _sensors(_folder(name)):
        word = _text(file)
        if word and word.lstrip("-").isdecimal():
            return int(word) / 1000
    return None


def _sensors(folder: Path) -> Iterator[Path]:
    for below in (
        "device/hwmon*/temp1_input",
        "device/hwmon/hwmon*/temp1_input",
        "device/device/hwmon/hwmon*/temp1_input",
    ):
        with suppress(OSError):
            yield from sorted(folder.glob(below))


def _governor() -> str | None:
    """One word where all cores have the same."""
    files = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    words = dict.fromkeys(word for file in files if (word := _text(file)))
    return ", ".join(words) or None


def _processor() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, found, value = line.partition(":")
            if found and name.strip() in ("model name", "Model", "cpu model"):
                return value.strip() or None
    return None


def _on_battery() -> bool:
    """A battery of the machine is discharging (Documentation/ABI/testing/sysfs-class-power)."""
    supplies = sorted(Path("/sys/class/power_supply").glob("*"))
    own = [each for each in supplies if _text(each / "scope") != "Device"]
    return any(_text(each / "type") == "Battery" and _text(each / "status") == "Discharging" for each in own)


def _room(target: Target) -> int | None:
    if target.kind is TargetKind.DEVICE:
        return None
    with suppress(OSError):
        found = os.statvfs(target.path)
        return found.f_blocks * found.f_frsize
    return None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip() or None
    except OSError:
        return None
