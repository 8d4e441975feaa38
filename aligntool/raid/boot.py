"""Plan how an array starts: initramfs images, mdadm.conf and fstab lines, late start, ESP copies."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pkgutil import get_data

from aligntool import steps
from aligntool.audit.array_boot import LEAVES_INACTIVE, RunningArray, known_arrays, node_of, running_arrays, short_name
from aligntool.audit.arrays import partition_node
from aligntool.change import RaidGoal
from aligntool.inventory import Inventory
from aligntool.raid.levels import LEVELS
from aligntool.raid.members import Placed
from aligntool.steps import EditFile, EnableUnit, InitramfsStep, MakeFileSystem, SystemStep, WriteFile
from aligntool.system import LATE_START
from aligntool.system import System as Files

# The files of each family of distributions. Sources: Debian's mdadm (hooks/mdadm, mkconf), dracut's 90mdraid and
# 70mdraid module-setup.sh, Debian's dracut (conflicts with initramfs-tools), Arch's mdadm_udev hook.

BACKUP = ".before-aligntool"
FSTAB = "/etc/fstab"


@dataclass(frozen=True, slots=True)
class System:
    word: str
    title: str
    mdadm_conf: str
    maker: str  # of its initramfs: one of MAKERS
    note: str = ""  # what the user has to see to


_DRACUT_NOTE = "a root file system on the array also needs rd.md.uuid={uuid} on the kernel command line"


# dracut itself finds mdadm.conf in either place, and calls it etc/mdadm.conf inside.
_DEBIAN_NOTE = "the initramfs finds arrays by itself only while mdadm.conf names none; now every array needs its line"
_ARCH_NOTE = "mdadm_udev must stand before filesystems in HOOKS of /etc/mkinitcpio.conf"
SYSTEMS = {
    "debian": System("debian", "Debian, Ubuntu", "/etc/mdadm/mdadm.conf", "initramfs-tools", _DEBIAN_NOTE),
    "debian-dracut": System(
        "debian-dracut", "Debian, Ubuntu with dracut", "/etc/mdadm/mdadm.conf", "dracut", _DRACUT_NOTE
    ),
    "fedora": System("fedora", "Fedora, RHEL, CentOS", "/etc/mdadm.conf", "dracut", _DRACUT_NOTE),
    "opensuse": System("opensuse", "openSUSE, SLES", "/etc/mdadm.conf", "dracut", _DRACUT_NOTE),
    "arch": System("arch", "Arch Linux", "/etc/mdadm.conf", "mkinitcpio", _ARCH_NOTE),
}


def edit(path: str, instead_of: str, *lines: str) -> EditFile:
    """Return the step that puts lines into a file of the system."""
    return EditFile(path, lines, instead_of, path + BACKUP)


# The programs that build initramfs images, and how each shows the arrays inside.


def own_text(name: str) -> str:
    """Return one of the files in system_files: scripts, and units that aligntool brings along."""
    return (get_data("aligntool.raid", f"system_files/{name}") or b"").decode()


@dataclass(frozen=True, slots=True)
class Maker:
    """A program that builds initramfs images."""

    name: str
    rebuild: tuple[str, ...]  # the command that builds those of all installed kernels
    programs: tuple[str, str]  # the shell that `check` is for, and what shows an image
    where: str = "every initramfs"  # that has to have the line

    @property
    def check(self) -> tuple[str, ...]:
        """With a UUID behind it: prints the array's line, or fails where an initramfs lacks it. In one line, as a plan
        shows it.
        """
        lines = own_text(f"check-{self.name}.sh").splitlines()
        script = " ".join(line.strip() for line in lines if not line.startswith("#"))
        return self.programs[0], "-c", script, self.programs[0]


_WITH_CONF = "every initramfs that has an mdadm.conf"
MAKERS = {
    "initramfs-tools": Maker("initramfs-tools", ("update-initramfs", "-u", "-k", "all"), ("sh", "unmkinitramfs")),
    "dracut": Maker("dracut", ("dracut", "-f", "--regenerate-all"), ("sh", "lsinitrd"), _WITH_CONF),
    "mkinitcpio": Maker("mkinitcpio", ("mkinitcpio", "-P"), ("bash", "lsinitcpio")),
}


# fstab: an array by its UUID, and the options that it is mounted with.

# How long a mount waits for its device. mdadm-last-resort@.timer starts an array without the members that are missing
# 30 s after the first one was seen, and the mount began to wait before that; with nofail nothing waits for the mount.
PATIENCE = "x-systemd.device-timeout=2min"


def default_options(filesystem: str) -> tuple[str, ...]:
    """Return the recommended mount options; `nofail` comes on top for an array that the system can start without."""
    return ("noatime",) if filesystem in ("xfs", "ext4", "btrfs") else ()


def waits_as_asked(options: Sequence[str]) -> bool:
    """Somebody said already how long it is waited for: systemd.mount(5)."""
    return any(each.startswith("x-systemd.device-timeout=") for each in options)


def mount_options(goal: RaidGoal) -> tuple[str, ...]:
    """`nofail`: a machine whose data array is missing starts all the same, and can be repaired over the network."""
    given = default_options(goal.filesystem) if goal.mount_options is None else goal.mount_options
    extra = () if goal.place == "/" else ("nofail", *(() if waits_as_asked(given) else (PATIENCE,)))
    return tuple(dict.fromkeys((*given, *extra)))


def mount_line(uuid: str, place: str, kind: str, options: Sequence[str]) -> str:
    """Return a line of fstab. XFS and btrfs are not checked at boot: fsck.xfs(8)."""
    return f"UUID={uuid} {place} {kind} {','.join(options)} 0 {2 if kind.startswith('ext') else 0}"


def mount_steps(uuid: str, place: str, line: str, *, mounted: bool = False) -> Iterator[EditFile | SystemStep]:
    """Yield the edit of fstab, where it gets a `line`, and the mount itself, where it is not there yet. `place` "":
    swap space.
    """
    if line:
        yield edit(FSTAB, f"UUID={uuid}", line)
        yield steps.ReloadUnits()
    if not place:
        yield steps.Swapon(uuid)
    elif not mounted:
        yield steps.MakeDirectory(place)
        yield steps.Mount(place)


def mount_steps_of_goal(goal: RaidGoal) -> Iterator[EditFile | SystemStep]:
    """By UUID, never by /dev/mdN, which changes from boot to boot."""
    line, uuid = f"UUID={goal.filesystem_uuid} none swap sw,nofail 0 0", goal.filesystem_uuid
    if goal.place:
        line = mount_line(uuid, goal.place, goal.filesystem, mount_options(goal))
    if goal.filesystem == "swap" or goal.place:
        yield from mount_steps(uuid, goal.place, line)


# The ARRAY line of an array: what it is called, and which lines it takes the place of.
#
# A line that is wrong is worse than none; the first line in Debian's file ends the hook's own search for arrays.

COUNTED_DOWN = 120  # md gives numbers from 127 downwards to arrays that nobody gave one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_NUMBER = re.compile(r"md_?d?(\d+)")


def conf_line(device: str, metadata: str | None, uuid: str | None) -> str:
    """Return the line that names an array by its UUID, with the name it shall have: mdadm.conf(5)."""
    return f"ARRAY {device}{f' metadata={metadata}' if metadata else ''} UUID={uuid or ''}"


def persistence_steps(
    goal: RaidGoal, system: System, device: str, others: Iterable[EditFile] = ()
) -> Iterator[EditFile | InitramfsStep]:
    """Yield the edits of mdadm.conf, and the initramfs rebuilt. `others`: lines that running arrays need as well."""
    yield from others
    yield edit(system.mdadm_conf, f"UUID={goal.array_uuid}", conf_line(device, goal.metadata, goal.array_uuid))
    yield steps.RebuildInitramfs(system.maker)
    yield steps.CheckInitramfs(system.maker, goal.array_uuid)


def conf_steps(array: RunningArray, system: System) -> Iterator[EditFile]:
    """Yield the steps that give mdadm.conf a line for the array, and on Debian for every other running one without a
    line.

    The first wrong line is replaced; others become comments, so that one array has one line.
    """
    wrong = array.wrong_lines()
    if need := _without_line(array, system):
        file, old = _file(array.system, system), f"UUID={array.facts.uuid}"
        yield edit(*((wrong[0].file, wrong[0].text) if wrong else (file, old)), *_lines(need))
        yield from (edit(line.file, line.text, f"# replaced by aligntool: {line.text}") for line in wrong[1:])


def lines_from_now_on(inventory: Inventory, system: System, new: str) -> Iterator[EditFile]:
    """For every array that runs, before Debian's file gets its first line: from then on its hook looks for no other.
    `new`: the device of the array that the first line is for, whose name no other gets.
    """
    running = [one for one in running_arrays(inventory) if one.facts.uuid]
    if running and _finds_by_itself(running[0].system, system):
        yield edit(_file(running[0].system, system), f"UUID={running[0].facts.uuid}", *_lines(running, new))


def _finds_by_itself(files: Files, system: System) -> bool:
    """Debian's initramfs finds every array, until its mdadm.conf names one."""
    return system.word == "debian" and not files.mdadm.arrays


def _lines(arrays: Sequence[RunningArray], new: str = "") -> tuple[str, ...]:
    """Of two that would have the same name the second gets another; `new` is nobody's."""
    given: dict[str, str] = {}
    for one in arrays:
        device = made_up_name(one) if (device := device_of(one)) in (*given, new) else device
        given[device] = conf_line(device, one.facts.metadata, one.facts.uuid)
    return tuple(given.values())


def conf_words(array: RunningArray, system: System) -> Iterator[str]:
    """Yield what is done with mdadm.conf and why, a sentence each."""
    named = array.lines_in(array.system.mdadm.arrays)
    if named:
        yield f"its line in {named[0].file} is right: {named[0].text}"
        return
    yield f"it gets the name {device_of(array)}, by its UUID"
    for line in array.wrong_lines():
        gone = line.uuid is not None and line.uuid not in known_arrays(array.inventory)
        why = "names an array of which no member is here" if gone else "does not name it by its UUID"
        yield f"a line in {line.file} goes, because it {why}: {line.text}"
    others = [one.disk.path for one in _without_line(array, system)[1:]]
    if others:
        why = "because Debian's initramfs finds arrays by itself only while mdadm.conf names none"
        yield f"{', '.join(others)}: get their lines too, {why}"


def _without_line(array: RunningArray, system: System) -> list[RunningArray]:
    """Return the arrays that get a line, the array itself first; none where it has one."""
    if array.lines_in(array.system.mdadm.arrays):
        return []
    others = running_arrays(array.inventory) if _finds_by_itself(array.system, system) else ()
    return [array, *(one for one in others if one.facts.uuid and one.disk.name != array.disk.name)]


def _file(files: Files, system: System) -> str:
    """The one that is there, else the system's own."""
    there = files.mdadm.files
    return system.mdadm_conf if not there or system.mdadm_conf in there else there[0]


def device_of(array: RunningArray) -> str:
    """Return the name that the array keeps: of the wrong line, of its superblock, else the node that it has now."""
    names = [node_of(line.device) for line in array.wrong_lines() if line.device and line.device != "<ignore>"]
    name = short_name(array.disk)
    if name.isdecimal():
        names.append(f"/dev/md{int(name)}")
    elif _NAME.fullmatch(name):
        names.append(f"/dev/md/{name}")
    names.append(array.disk.path)
    in_use = array.nodes_of_others()
    return next((each for each in names if not _counted_down(each) and each not in in_use), made_up_name(array))


def made_up_name(array: RunningArray) -> str:
    """No other array has it: with the beginning of its UUID."""
    name = short_name(array.disk)
    return f"/dev/md/{name if _NAME.fullmatch(name) else 'array'}-{(array.facts.uuid or '')[:8]}"


def _counted_down(device: str) -> bool:
    found = _NUMBER.fullmatch(device.removeprefix("/dev/"))
    return found is not None and int(found[1]) >= COUNTED_DOWN


def _unit_steps(unit: str, *names: str) -> Iterator[WriteFile | EnableUnit]:
    """Yield the files of a unit, and that it is enabled."""
    for name in names:
        path = f"/usr/local/lib/{name}" if name.endswith(".sh") else f"/etc/systemd/system/{name}"
        yield WriteFile(path, tuple(own_text(name).splitlines()), path + BACKUP)
    yield EnableUnit(unit)


# EFI system partitions on the drives of a system's array: made apart, and kept alike by the system itself.
#
# Firmware knows nothing of md: these are not part of the array, and something has to keep them alike
# (docs/decisions/0021). FAT keeps times of 2 s, and cp keeps them: what is newer in a copy was written there and
# nowhere else. The unit stands after a mount by each name that it may have; those that are not there count for nothing:
# systemd.unit(5), After=.

UNIT = "esp-copies.service"
LIST_FILE = "/etc/default/esp-copies"


def boot_volumes(goal: RaidGoal, placed: Sequence[Placed]) -> tuple[str, ...]:
    """The ids of their file systems, as blkid writes them, in the order of the drives: different ones; () for none."""
    if not (goal.esp_size and placed[0].entries):
        return ()
    first = int(goal.filesystem_uuid[:8], 16)
    ids = (f"{(first + index) % 2**32:08X}" for index in range(len(placed)))
    return tuple(f"{each[:4]}-{each[4:]}" for each in ids)


def boot_partition_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[MakeFileSystem]:
    """Yield the steps that make an EFI system partition on every drive, each a file system of its own with an id of
    its own.
    """
    for each, volume in zip(placed, boot_volumes(goal, placed), strict=False):
        word = volume.replace("-", "").lower()
        device = partition_node(each.member.disk.path, 1)
        yield MakeFileSystem(device, "vfat", volume, ("-F", "32", "-n", "EFI", "-i", word))


def boot_copy_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[steps.FileStep | EnableUnit]:
    """Yield the steps that keep the EFI system partitions alike, in the files of the system that is copied onto the
    array.
    """
    if volumes := boot_volumes(goal, placed):
        yield edit(LIST_FILE, "ESP_COPIES=", f'ESP_COPIES="{" ".join(volumes)}"')
        yield from _unit_steps(UNIT, "esp-copies.sh", UNIT)


def boot_words(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[str]:
    """Yield what the user has to do about the EFI system partitions, a sentence each."""
    if volumes := boot_volumes(goal, placed):
        mount = f"mount one of them (UUID={volumes[0]} /boot/efi vfat umask=0077,nofail 0 2) and put the boot loader"
        copies = f"{UNIT} copies that one to the others at every start and stop, or when restarted"
        where = "where the firmware looks for no EFI/BOOT/BOOTX64.EFI; every step: docs/raid.md, A system on RAID1"
        yield f"the EFI system partitions are not part of the array: have the new system's fstab {mount} there"
        yield f"{copies}; register each with efibootmgr {where}"


# Arrays that lack a drive when the machine starts, on Debian and Ubuntu: started all the same, half a minute
# later, as mdadm-last-resort@.timer has it; fstab waits two minutes.
#
# Two programs leave a gap: initramfs-tools adds members one by one and starts incomplete arrays only for the root
# file system (its script local-block/mdadm); mdadm's own timer for the others (mdadm-last-resort@.timer) is started
# when a member is added, and by then all of them are.


def late_start_steps(goal: RaidGoal, system: System) -> Iterator[WriteFile | EnableUnit]:
    """Where the array can do without a drive, and nobody else would start it then."""
    if system.word == LEAVES_INACTIVE and LEVELS[goal.level].redundant:
        yield from bring_late_start()


def bring_late_start() -> Iterator[WriteFile | EnableUnit]:
    """For all arrays of mdadm.conf at once."""
    name = LATE_START.removesuffix(".timer")
    yield from _unit_steps(LATE_START, f"{name}.sh", f"{name}.service", LATE_START)
