"""Plan how an array starts: mdadm.conf lines, late start, ESP copies, RAID partitions for booting."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aligntool.audit.array_boot import (
    LEAVES_INACTIVE,
    is_native,
    known_arrays,
    lines_of,
    node_of,
    running_nodes,
    short_name,
    wrong_lines,
)
from aligntool.change import RaidGoal
from aligntool.inventory import Disk, Inventory
from aligntool.raid.chunks import LEVELS
from aligntool.raid.commands import fstab_line
from aligntool.raid.members import Placed, partition_node
from aligntool.steps import (
    CheckInitramfs,
    EditFile,
    EnableUnit,
    FileStep,
    InitramfsStep,
    MakeDirectory,
    MakeFileSystem,
    Mount,
    RebuildInitramfs,
    ReloadUnits,
    Swapon,
    SystemStep,
    WriteFile,
)
from aligntool.system import LATE_START, ArrayLine
from aligntool.system import System as Files

# The files of each family of distributions. Sources: Debian's mdadm (hooks/mdadm, mkconf), dracut's 90mdraid and
# 70mdraid module-setup.sh, Debian's dracut (conflicts with initramfs-tools), Arch's mdadm_udev hook.

BACKUP = ".before-aligntool"


@dataclass(frozen=True, slots=True)
class System:
    word: str
    title: str
    mdadm_conf: str
    maker: str  # of its initramfs: one of INITRAMFS_MAKERS
    note: str = ""  # what the user has to see to


_DRACUT_NOTE = "a root file system on the array also needs rd.md.uuid={uuid} on the kernel command line"


# dracut itself finds mdadm.conf in either place, and calls it etc/mdadm.conf inside.
SYSTEMS = {
    system.word: system
    for system in (
        System(
            "debian", "Debian, Ubuntu", "/etc/mdadm/mdadm.conf", "initramfs-tools",
            "the initramfs finds arrays by itself only while mdadm.conf names none; from now on every array needs "
            "its line",
        ),
        System("debian-dracut", "Debian, Ubuntu with dracut", "/etc/mdadm/mdadm.conf", "dracut", _DRACUT_NOTE),
        System("fedora", "Fedora, RHEL, CentOS", "/etc/mdadm.conf", "dracut", _DRACUT_NOTE),
        System("opensuse", "openSUSE, SLES", "/etc/mdadm.conf", "dracut", _DRACUT_NOTE),
        System(
            "arch", "Arch Linux", "/etc/mdadm.conf", "mkinitcpio",
            "mdadm_udev must stand before filesystems in HOOKS of /etc/mkinitcpio.conf",
        ),
    )
}  # fmt: skip


def own_file(path: str, text: str) -> WriteFile:
    """Return the step that writes one of aligntool's own files."""
    return WriteFile(path, tuple(text.splitlines()), path + BACKUP)


def conf_line_of_goal(goal: RaidGoal, device: str) -> str:
    """By UUID, with the name it shall have: mdadm.conf(5)."""
    return f"ARRAY {device} metadata={goal.metadata} UUID={goal.array_uuid}"


def persistence_steps(
    goal: RaidGoal, system: System, device: str, others: Iterable[EditFile] = ()
) -> Iterator[EditFile | InitramfsStep]:
    """Yield the edits of mdadm.conf, and the initramfs rebuilt. `others`: lines that running arrays need as well."""
    key = f"UUID={goal.array_uuid}"
    yield from others
    yield EditFile(system.mdadm_conf, (conf_line_of_goal(goal, device),), key, system.mdadm_conf + BACKUP)
    yield RebuildInitramfs(system.maker)
    yield CheckInitramfs(system.maker, goal.array_uuid)


def mount_steps(goal: RaidGoal) -> Iterator[EditFile | SystemStep]:
    """Yield the edit of fstab and the mount itself, where the goal has one."""
    is_swap = goal.filesystem == "swap"
    if not (is_swap or goal.place):
        return
    yield EditFile("/etc/fstab", (fstab_line(goal),), f"UUID={goal.filesystem_uuid}", "/etc/fstab" + BACKUP)
    yield ReloadUnits()
    if is_swap:
        yield Swapon(goal.filesystem_uuid)
    else:
        yield MakeDirectory(goal.place)
        yield Mount(goal.place)


# The ARRAY line of an array that is there: what it is called, and which lines it takes the place of.
#
# A line that is wrong is worse than none; the first line in Debian's file ends the hook's own search for arrays.

COUNTED_DOWN = 120  # md gives numbers from 127 downwards to arrays that nobody gave one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_NUMBER = re.compile(r"md_?d?(\d+)")


def conf_steps(disk: Disk, inventory: Inventory, files: Files, system: System) -> Iterator[EditFile]:
    """For the array, and on Debian for every other one that runs, where the file has no line yet.

    The first wrong line is replaced; others become comments, so that one array has one line.
    """
    need = _in_need(disk, inventory, files, system)
    if not need:
        return
    wrong = wrong_lines(disk, inventory, files)
    file = wrong[0].file if wrong else _file(files, system)
    uuid = disk.array.uuid if disk.array else None
    yield EditFile(file, _lines(need, inventory, files), wrong[0].text if wrong else f"UUID={uuid}", file + BACKUP)
    for other in wrong[1:]:
        yield EditFile(other.file, (f"# replaced by aligntool: {other.text}",), other.text, other.file + BACKUP)


def lines_from_now_on(inventory: Inventory, system: System, new: str) -> Iterator[EditFile]:
    """For every array that runs, before Debian's file gets its first line: from then on its hook looks for no other.
    `new`: the device of the array that the first line is for, whose name no other gets.
    """
    files = inventory.system
    if files is None or system.word != "debian" or files.mdadm.arrays:
        return
    running = [one for one in inventory.disks if is_native(one) and one.array and one.array.uuid]
    if running and running[0].array:
        file = _file(files, system)
        key = f"UUID={running[0].array.uuid}"
        yield EditFile(file, _lines(running, inventory, files, new), key, file + BACKUP)


def _lines(arrays: Sequence[Disk], inventory: Inventory, files: Files, new: str = "") -> tuple[str, ...]:
    """Of two that would have the same name the second gets another; `new` is nobody's."""
    given: dict[str, str] = {}
    for one in arrays:
        device = device_of(one, inventory, files)
        device = made_up_name(one) if device in given or device == new else device
        given[device] = conf_line_of_disk(one, device)
    return tuple(given.values())


def conf_words(disk: Disk, inventory: Inventory, files: Files, system: System) -> Iterator[str]:
    """What is done with mdadm.conf and why, a sentence each."""
    named = lines_of(disk, files.mdadm.arrays)
    if named:
        yield f"its line in {named[0].file} is right: {named[0].text}"
        return
    yield f"it gets the name {device_of(disk, inventory, files)}, by its UUID"
    for line in wrong_lines(disk, inventory, files):
        gone = line.uuid is not None and line.uuid not in known_arrays(inventory)
        why = "names an array of which no member is here" if gone else "does not name it by its UUID"
        yield f"a line in {line.file} goes, because it {why}: {line.text}"
    others = [one.path for one in _in_need(disk, inventory, files, system) if one.name != disk.name]
    if others:
        yield (
            f"{', '.join(others)}: get their lines too, because Debian's initramfs finds arrays by itself only while "
            "mdadm.conf names none"
        )


def _in_need(disk: Disk, inventory: Inventory, files: Files, system: System) -> list[Disk]:
    """The array first."""
    if lines_of(disk, files.mdadm.arrays):
        return []
    if system.word != "debian" or files.mdadm.arrays:
        return [disk]
    others = [one for one in inventory.disks if is_native(one) and one.name != disk.name]
    return [disk, *(one for one in others if one.array and one.array.uuid)]


def _file(files: Files, system: System) -> str:
    """The one that is there, else the system's own."""
    there = files.mdadm.files
    return system.mdadm_conf if not there or system.mdadm_conf in there else there[0]


def conf_line_of_disk(disk: Disk, device: str) -> str:
    """mdadm.conf(5)."""
    facts = disk.array
    metadata = f" metadata={facts.metadata}" if facts and facts.metadata else ""
    return f"ARRAY {device}{metadata} UUID={facts.uuid if facts else ''}"


def device_of(disk: Disk, inventory: Inventory, files: Files) -> str:
    """The name that it keeps: of the wrong line, of its superblock, else the node that it has now."""
    in_use = _names_in_use(disk, inventory, files)
    wrong: list[ArrayLine] = list(wrong_lines(disk, inventory, files))
    names = [node_of(line.device) for line in wrong if line.device and line.device != "<ignore>"]
    name = short_name(disk)
    if name.isdecimal():
        names.append(f"/dev/md{int(name)}")
    elif _NAME.fullmatch(name):
        names.append(f"/dev/md/{name}")
    names += [disk.path] if not _counted_down(disk.path) else []
    names = [each for each in names if not _counted_down(each)]
    return next((each for each in names if each not in in_use), made_up_name(disk))


def made_up_name(disk: Disk) -> str:
    """No other array has it: with the beginning of its UUID."""
    name, uuid = short_name(disk), (disk.array.uuid if disk.array else None) or ""
    return f"/dev/md/{name if _NAME.fullmatch(name) else 'array'}-{uuid[:8]}"


def _names_in_use(disk: Disk, inventory: Inventory, files: Files) -> frozenset[str]:
    """By lines of other arrays that are here, and by other arrays that run."""
    uuid = disk.array.uuid if disk.array else None
    known = known_arrays(inventory)
    lines = {node_of(line.device) for line in files.mdadm.arrays if line.uuid != uuid and line.uuid in known}
    others = [one for one in inventory.disks if one.array and one.name != disk.name]
    return frozenset(lines | {node for one in others for node in running_nodes(one)})


def _counted_down(device: str) -> bool:
    found = _NUMBER.fullmatch(device.removeprefix("/dev/"))
    return found is not None and int(found[1]) >= COUNTED_DOWN


# EFI system partitions on the drives of a system's array: made apart, and kept alike by the system itself.
#
# Firmware knows nothing of md: these are not part of the array, and something has to keep them alike
# (docs/decisions/0021).

UNIT = "esp-copies.service"
SCRIPT_FILE = "/usr/local/lib/esp-copies.sh"
LIST_FILE = "/etc/default/esp-copies"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"

# FAT keeps times of 2 s, and cp keeps them: what is newer in a copy was written there and nowhere else.
SCRIPT = """\
set -eu
# From aligntool: copies the EFI system partition that is mounted to the others of ESP_COPIES, as a whole.
# sh esp-copies.sh UUID copies that one, whatever the others hold.
. "${ESP_COPIES_FILE:-/etc/default/esp-copies}"
right=${1:-}
newest() { find "$1" -type f -printf '%T@\\n' | sort -n | tail -n 1; }
listing() { (cd "$1" && find . -type d && find . -type f -exec cksum {} +) | sort; }
stop() { echo "$1" >&2; exit 1; }
if [ -z "$right" ]; then
    for uuid in $ESP_COPIES; do
        device=$(blkid -U "$uuid") && findmnt --source "$device" > /dev/null || continue
        [ -z "$right" ] || stop "$right and $uuid are both mounted; unmount the one that is a copy"
        right=$uuid
    done
fi
[ -n "$right" ] || { echo "none of $ESP_COPIES is mounted, so nothing is copied"; exit 0; }
work=$(mktemp -d)
trap 'umount "$work"/* 2> /dev/null || :; rmdir "$work"/* "$work"' EXIT
mkdir "$work/from" "$work/to"
mount "$(blkid -U "$right")" "$work/from"
[ ! -e "$work/from/unfinished-copy" ] || stop "$right is an unfinished copy: sh $0 UUID of the one that is right"
[ -n "$(find "$work/from" -iname '*.efi')" ] || stop "$right has no boot loader: sh $0 UUID of the one that has"
for uuid in $ESP_COPIES; do
    [ "$uuid" != "$right" ] || continue
    device=$(blkid -U "$uuid") || { echo "$uuid is not there"; continue; }
    mount "$device" "$work/to"
    latest=$(newest "$work/from")
    if [ "$(listing "$work/from")" = "$(listing "$work/to")" ]; then
        echo "$uuid is the same as $right"
    elif [ $# = 0 ] && [ ! -e "$work/to/unfinished-copy" ] &&
        [ "$({ echo "$latest"; newest "$work/to"; } | sort -n | tail -n 1)" != "$latest" ]; then
        stop "$uuid has something newer than $right has: sh $0 UUID of the one that is right"
    else
        : > "$work/to/unfinished-copy"
        find "$work/to" -mindepth 1 ! -path "$work/to/unfinished-copy" -delete
        cp -r --preserve=timestamps "$work/from/." "$work/to/"
        sync -f "$work/to"
        rm "$work/to/unfinished-copy"
        echo "$uuid is a copy of $right"
    fi
    umount "$work/to"
done
exit 0
"""
# By the names that a mount of it has; those that are not there count for nothing: systemd.unit(5), After=.
UNIT_TEXT = f"""\
[Unit]
Description=Copy the EFI system partition that is mounted to those of the array's other drives
After=local-fs.target boot-efi.mount efi.mount boot.mount
[Service]
Type=oneshot
RemainAfterExit=yes
PrivateMounts=yes
ExecStart=/bin/sh {SCRIPT_FILE}
ExecStop=/bin/sh {SCRIPT_FILE}
[Install]
WantedBy=multi-user.target
"""


def has_boot_partitions(goal: RaidGoal, placed: Sequence[Placed]) -> bool:
    return bool(goal.esp_size and placed[0].entries)


def boot_volumes(goal: RaidGoal, placed: Sequence[Placed]) -> tuple[str, ...]:
    """The ids of their file systems, as blkid writes them, in the order of the drives: different ones."""
    first = int(goal.filesystem_uuid[:8], 16)
    ids = (f"{(first + index) % 2**32:08X}" for index in range(len(placed)))
    return tuple(f"{each[:4]}-{each[4:]}" for each in ids)


def boot_partition_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[MakeFileSystem]:
    """An EFI system partition on every drive, each a file system of its own with an id of its own."""
    if not has_boot_partitions(goal, placed):
        return
    for each, volume in zip(placed, boot_volumes(goal, placed), strict=True):
        device = partition_node(each.member.disk.path, 1)
        word = volume.replace("-", "").lower()
        yield MakeFileSystem(device, "vfat", volume, ("-F", "32", "-n", "EFI", "-i", word))


def boot_copy_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[FileStep | EnableUnit]:
    """What keeps them alike, in the files of the system that is copied onto the array."""
    if not has_boot_partitions(goal, placed):
        return
    listed = f'ESP_COPIES="{" ".join(boot_volumes(goal, placed))}"'
    yield EditFile(LIST_FILE, (listed,), "ESP_COPIES=", LIST_FILE + BACKUP)
    for file, text in ((SCRIPT_FILE, SCRIPT), (UNIT_FILE, UNIT_TEXT)):
        yield own_file(file, text)
    yield EnableUnit(UNIT)


def boot_words(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[str]:
    """What the user has to see to."""
    if not has_boot_partitions(goal, placed):
        return
    yield (
        "the EFI system partitions are not part of the array: have the new system's fstab mount one of them "
        f"(UUID={boot_volumes(goal, placed)[0]} /boot/efi vfat umask=0077,nofail 0 2) and put the boot loader there; "
        f"{UNIT} copies it to the others at every start and stop, or when restarted; register each with efibootmgr "
        "where the firmware looks for no EFI/BOOT/BOOTX64.EFI; every step: docs/raid.md, A system on RAID1"
    )


# Arrays that lack a drive when the machine starts, on Debian and Ubuntu: started all the same, half a minute
# later.
#
# Two programs leave a gap: initramfs-tools adds members one by one and starts incomplete arrays only for the root
# file system (its script local-block/mdadm); mdadm's own timer for the others (mdadm-last-resort@.timer) is started
# when a member is added, and by then all of them are.

NAME = LATE_START.removesuffix(".timer")
LATE_START_SCRIPT_FILE = f"/usr/local/lib/{NAME}.sh"
SERVICE_FILE = f"/etc/systemd/system/{NAME}.service"
TIMER_FILE = f"/etc/systemd/system/{LATE_START}"
DELAY_S = 30  # as mdadm-last-resort@.timer has it; fstab waits two minutes

LATE_START_SCRIPT = """\
# From aligntool: starts each array of mdadm.conf that is still inactive, without the drives that it lacks.
for state in /sys/block/md*/md/array_state; do
    [ "$(cat "$state" 2> /dev/null)" = inactive ] || continue
    array=${state#/sys/block/}
    array=${array%%/*}
    for member in "/sys/block/$array/slaves/"*; do
        uuid=$(mdadm --examine --export "/dev/${member##*/}" | sed -n '/^MD_UUID=/{s///;s/:/[:.-]?/g;p}')
        if [ -n "$uuid" ] && cat /etc/mdadm/mdadm.conf /etc/mdadm/mdadm.conf.d/*.conf /etc/mdadm.conf 2> /dev/null |
            grep -iE "^[^#]*$uuid" | grep -qv "<ignore>"; then
            mdadm --run "/dev/$array" || echo "/dev/$array lacks too many drives"
        fi
        break
    done
done
exit 0
"""
SERVICE = f"""\
[Unit]
Description=Start arrays without the drives that they lack
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target
[Service]
Type=oneshot
ExecStart=/bin/sh {LATE_START_SCRIPT_FILE}
"""
TIMER_TEXT = f"""\
[Unit]
Description=Wait for the drives of arrays, then start them without
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target
[Timer]
OnActiveSec={DELAY_S}
AccuracySec=1
Unit={NAME}.service
[Install]
WantedBy=sysinit.target
"""


def late_start_steps(goal: RaidGoal, system: System) -> Iterator[WriteFile | EnableUnit]:
    """Where the array can do without a drive, and nobody else would start it then."""
    if system.word == LEAVES_INACTIVE and LEVELS[goal.level].redundant:
        yield from bring_late_start()


def bring_late_start() -> Iterator[WriteFile | EnableUnit]:
    """For all arrays of mdadm.conf at once."""
    for file, text in ((LATE_START_SCRIPT_FILE, LATE_START_SCRIPT), (SERVICE_FILE, SERVICE), (TIMER_FILE, TIMER_TEXT)):
        yield own_file(file, text)
    yield EnableUnit(LATE_START)
