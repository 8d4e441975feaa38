"""Find what uses a disk: mounts, swap, stacked devices, loop devices, exports, locks; and what ends each use.

The kernel reports only EBUSY, and for a loop device over a disk or file not even that.
"""

import os
import signal
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aligntool.audit.wording import release_command
from aligntool.commands import Command, joined_commands, typed
from aligntool.inventory import Inventory
from aligntool.linux.device_numbers import block_number, identity, kernel_name, parse_number, sysfs_folder
from aligntool.linux.file_locks import flockers, is_locked
from aligntool.linux.held import open_held, status_of
from aligntool.linux.loops import ask_loop
from aligntool.linux.partitions import find_devices
from aligntool.linux.process_state import has_signal, thread_paths
from aligntool.linux.same_bytes import names_by_identity, nodes_of
from aligntool.linux.sysfs import READ_ONLY, live_paths, mounts_now, swaps_now

_OWN_PROGRAMS_S = 10.0  # a program left behind by a killed aligntool ends by itself, usually at once
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Occupant:
    """A use of a disk that prevents a change."""

    what: str  # "sda1 is mounted at /srv"
    end: str  # the command that ends the use, or shows the program
    passing: bool = False  # it ends by itself soon


def occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Return the users of a device: for a whole disk also those of its partitions; for a partition also those
    of the disk as a whole, but not of other partitions; for an image file, the loop devices over it.
    """
    others = (*killed_processes(flockers(status)), *loops_over(status), *exports_of(status))
    if not stat.S_ISBLK(status.st_mode):
        return others
    nodes = nodes_of(status)
    listed = (*_mount_occupants(nodes), *_swap_occupants(nodes), *_holder_occupants(nodes))
    return tuple(dict.fromkeys((*listed, *caches(nodes.values()), *others)))


def all_ends(found: Iterable[Occupant]) -> str:
    """Return the commands that end all these uses, each once: several may be ended by the same command."""
    return joined_commands(occupant.end for occupant in found)


def remaining_occupants(status: os.stat_result) -> tuple[Occupant, ...]:
    """Wait some seconds at most for the programs of a killed aligntool to end; then return the
    `occupants`.
    """
    deadline = time.monotonic() + _OWN_PROGRAMS_S
    found = occupants(status)
    while found and all(occupant.passing for occupant in found) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        found = occupants(status)
    return found


def loops_over(status: os.stat_result) -> Iterator[Occupant]:
    """Yield the loop devices over the same bytes, which an exclusive open does not detect."""
    yield from _loop_occupants(names_by_identity(status))


_CONFIGFS = Path("/sys/kernel/config")
_EXPORTS = {"nvmet/subsystems/*/namespaces/*": "device_path", "target/core/*/*": "udev_path"}
"""The folders of what the kernel serves to other machines, and the file in each that names the device or
file.
"""


def exports_of(status: os.stat_result, folder: Path = _CONFIGFS) -> Iterator[Occupant]:
    """Yield the targets of NVMe over fabrics and of iSCSI that serve the same bytes to other machines. An
    exclusive open does not detect them: nvmet and LIO's fileio open without claiming
    (nvme/target/io-cmd-bdev.c, nvmet_bdev_ns_enable; target/target_core_file.c, fd_configure_device).
    """
    same = names_by_identity(status)
    for pattern, word in _EXPORTS.items():
        for file in live_paths(folder, f"{pattern}/{word}"):
            try:
                served = Path(file.read_text(errors="surrogateescape").rstrip("\n")).stat()
                enabled = (file.parent / "enable").read_text().strip() == "1"
            except (OSError, ValueError):  # removed meanwhile, or without a device
                continue
            if enabled and (name := same.get(identity(served))):
                end = f"{typed('ls', str(file.parent))}   shows it; nvmetcli or targetcli ends it"
                yield Occupant(f"{name} is served to other machines", end)


def _mount_occupants(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    """Yield the mounts, inner ones first, matched by number and by source: the number of a btrfs is not a
    device's.
    """
    for mount in reversed(tuple(mounts_now())):
        source = block_number(mount.source)
        numbers = (
            parse_number(mount.number),
            source,
            *(_btrfs_devices(source) if mount.kind == "btrfs" else ()),
        )
        name = next((nodes[number] for number in numbers if number in nodes), None)
        if name:
            yield Occupant(f"{name} is mounted at {mount.place}", typed("umount", mount.place))


def _btrfs_devices(one: int) -> tuple[int, ...]:
    """Return all devices of a mounted btrfs, of which only one is its source: linux/fs/btrfs/sysfs.c."""
    for folder in live_paths(Path("/sys/fs/btrfs"), "*/devices"):
        with suppress(OSError):
            numbers = tuple(parse_number((device / "dev").read_text()) for device in sorted(folder.iterdir()))
            if one in numbers:
                return numbers
    return ()


def _swap_occupants(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    for path in swaps_now():
        name = nodes.get(block_number(path))
        if name:
            yield Occupant(f"{name} is used as swap", typed("swapoff", path))


def _holder_occupants(nodes: Mapping[int, str]) -> Iterator[Occupant]:
    folders = ((sysfs_folder(number) / "holders", name) for number, name in nodes.items())
    held = [(kernel_name(holder), name) for folder, name in folders for holder in live_paths(folder, "*")]
    devices = find_devices() if held else Inventory(())
    for holder, name in held:
        device = devices.disk(holder)
        what = f"{holder} ({device.mapping})" if device and device.mapping else holder
        yield Occupant(f"{what} uses {name}", release_command(holder, devices))


def caches(names: Iterable[str], folder: Path = Path("/sys/class/block")) -> Iterator[Occupant]:
    """Yield the caches of running bcache devices, which sysfs does not list as holders of them
    (bcache/super.c, register_cache).
    """
    for name in names:
        used = folder / name.replace("/", "!") / "bcache/set"
        if used.exists():
            end = str(Command("tee", (f"{used}/unregister",), stdin="1"))
            yield Occupant(f"{name} is the cache of a bcache", end)


def _loop_occupants(targets: Mapping[tuple[int, int], str]) -> Iterator[Occupant]:
    """Yield the loop devices over one of the targets, matched by `identity`."""
    for file in live_paths(Path("/sys/block"), "loop*/loop/backing_file"):
        loop = f"/dev/{file.parent.parent.name}"
        is_own, backing = ask_loop(loop, file, {device for device, _ in targets})
        if (0, block_number(loop)) not in targets and (name := targets.get(backing)):
            mappings = [*live_paths(file.parent.parent / "holders", "*/dm/name")] if is_own else []
            for mapping in mappings:  # left behind by an aligntool that was killed
                with suppress(OSError):  # closed meanwhile
                    opened_as = mapping.read_text().strip()
                    yield Occupant(
                        f"{name} is open as {opened_as}", typed("cryptsetup close", opened_as), passing=True
                    )
            if is_own and not mappings:
                what = f"a program started by aligntool is using {name} through {loop} and will end by itself"
                yield Occupant(what, typed("fuser -v", loop), passing=True)
            elif not is_own:
                yield Occupant(f"{name} is attached to {loop}", *_detaching(loop, file.parent))


def killed_processes(processes: Iterable[int | str]) -> Iterator[Occupant]:
    """Yield the processes that were killed and have not ended: they end when the disk answers, and until then
    the disk may still execute their writes.
    """
    for pid in processes:
        if any(has_signal(task, "SigPnd", signal.SIGKILL) for task in thread_paths(pid)):
            what = (
                f"process {pid} was interrupted, but still waits for a read or write that the disk has not"
                " answered"
            )
            end = f"ps {pid}   shows whether it has ended; sudo dmesg shows why the disk does not answer"
            yield Occupant(what, end, passing=True)


def _detaching(loop: str, folder: Path) -> tuple[str, bool]:
    """Return the command that detaches a loop device, and whether that is about to happen. LO_FLAGS_AUTOCLEAR
    is set by `losetup -d` on a device that is open, by udev for a moment or as long as it is mounted, and by
    `mount -o loop`.
    """
    end = typed("losetup -d", loop)
    try:
        clears = (folder / "autoclear").read_text().strip() == "1"
        nodes = nodes_of(Path(loop).stat())
    except OSError:  # detached meanwhile
        return end, True
    uses = (*_mount_occupants(nodes), *_swap_occupants(nodes), *_holder_occupants(nodes))
    if uses:
        return all_ends([*uses, *(() if clears else (Occupant("", end),))]), False
    return end, clears


def unlisted_occupants(path: str) -> tuple[Occupant, ...]:
    """Return the users that neither a mount nor a holder in sysfs shows: loop devices over the same bytes,
    targets that serve them to other machines, bcache, and locks of other programs, such as QEMU's on the
    drives of its machines. For a drive this includes its partitions, for a partition its drive.

    Raises OSError if the path does not exist.
    """
    status = status_of(path)
    names = nodes_of(status).values()
    others = (*loops_over(status), *exports_of(status), *caches(names))
    return (*others, *(occupant for name in names for occupant in locks_on(f"/dev/{name}")))


def locks_on(path: str) -> tuple[Occupant, ...]:
    """Return whether other processes have POSIX, OFD or flock locks, as an `Occupant` or (). Only locks on
    this node count, not those on another node of the same device.
    """
    try:
        descriptor = open_held(path, READ_ONLY)
    except OSError:
        return ()  # a missing node has no locks; an unreadable one is refused elsewhere
    try:
        locked = is_locked(descriptor)
    finally:
        os.close(descriptor)
    return (Occupant(f"{path} is locked by another program", typed("fuser -v", path)),) * locked
