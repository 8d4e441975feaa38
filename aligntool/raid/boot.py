"""Plan how an array starts: initramfs images, mdadm.conf and fstab lines, late start, ESP copies."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from pkgutil import get_data
from typing import TypeVar
from uuid import UUID

from aligntool import steps
from aligntool.audit import array_boot
from aligntool.audit.array_boot import RunningArray, kernel_node, short_name
from aligntool.audit.arrays import partition_node
from aligntool.change import Bind, RaidGoal
from aligntool.commands import ByHand, by_hand
from aligntool.contents.catalogue import kind_named
from aligntool.contents.swap import SWAP
from aligntool.errors import Refusal
from aligntool.inventory import Inventory
from aligntool.raid.levels import LEVELS
from aligntool.raid.members import Placed
from aligntool.steps import (
    EditFile,
    EnableUnit,
    InitramfsStep,
    MakeArray,
    MakeFileSystem,
    Step,
    SystemStep,
    WriteFile,
)
from aligntool.system import (
    LATE_START,
    ArrayLine,
    Installed,
    MdadmConf,
    TableLine,
    parse_fstab,
    parse_mdadm_conf,
)
from aligntool.system import System as Files

# Configuration files of each family of distributions. Sources: Debian's mdadm (hooks/mdadm, mkconf), dracut's
# 90mdraid and 70mdraid module-setup.sh, Debian's dracut (conflicts with initramfs-tools), Arch's mdadm_udev
# hook.

BACKUP = ".before-aligntool"
FSTAB = "/etc/fstab"


@dataclass(frozen=True, slots=True)
class System:
    word: str
    title: str
    mdadm_conf: str
    maker: str  # the program that builds its initramfs: a key of MAKERS
    note: str = ""  # what the user has to do


_DRACUT_NOTE = "a root file system on the array also needs rd.md.uuid={uuid} on the kernel command line"


# dracut finds mdadm.conf in both places, and stores it as etc/mdadm.conf in the image.
_DEBIAN_NOTE = (
    "the initramfs finds arrays on its own only while mdadm.conf lists none; now every array needs a line"
)
_ARCH_NOTE = "mdadm_udev must come before filesystems in HOOKS in /etc/mkinitcpio.conf"
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
    """Return the step that inserts lines into a system file in place of those that contain `instead_of`."""
    return EditFile(path, lines, instead_of, path + BACKUP)


_AnyStep = TypeVar("_AnyStep", bound=Step)


def steps_for(installed: Installed | None, planned: Iterable[_AnyStep]) -> tuple[_AnyStep, ...]:
    """Return the steps without those that an installed system does not need, as it does not run: its systemd
    reads its files when it starts.
    """
    return tuple(step for step in planned if installed is None or not isinstance(step, steps.ReloadUnits))


OLDER_KERNELS = "Linux before 6.19 cannot assemble the array"


def kernel_attention(system: Files) -> Iterator[str]:
    """Yield a sentence if this kernel creates arrays that older ones cannot assemble, with the images of
    those.
    """
    if array_boot.kernel_version(system.kernel or "") < array_boot.STORES_BLOCK_SIZE:
        return
    older = array_boot.images_of_older_kernels(system)
    which = ", ".join(older) or "older rescue systems"
    yield (
        f"Linux {system.kernel} stores the block size in the superblocks: {OLDER_KERNELS}, which concerns"
        f" {which}"
    )


# The programs that build initramfs images, and how to list the arrays in an image of each.


def system_file_text(name: str) -> str:
    """Return the text of a file in system_files: a script or a unit that aligntool installs."""
    return (get_data("aligntool.raid", f"system_files/{name}") or b"").decode()


@dataclass(frozen=True, slots=True)
class Maker:
    """A program that builds initramfs images."""

    name: str
    rebuild: tuple[str, ...]  # the command that builds the images of all installed kernels
    programs: tuple[str, str]  # the shell that runs `check`, and the program that lists an image
    where: str = "every initramfs"  # the images that must contain the line

    @property
    def check(self) -> tuple[str, ...]:
        """Return the command that, with a UUID appended, prints the array's line, or fails if an initramfs
        lacks it.

        The script is joined into one line, as a plan shows it.
        """
        lines = system_file_text(f"check-{self.name}.sh").splitlines()
        script = " ".join(line.strip() for line in lines if not line.startswith("#"))
        return self.programs[0], "-c", script, self.programs[0]


_WITH_CONF = "every initramfs that has an mdadm.conf"
MAKERS = {
    "initramfs-tools": Maker(
        "initramfs-tools", ("update-initramfs", "-u", "-k", "all"), ("sh", "unmkinitramfs")
    ),
    "dracut": Maker("dracut", ("dracut", "-f", "--regenerate-all"), ("sh", "lsinitrd"), _WITH_CONF),
    "mkinitcpio": Maker("mkinitcpio", ("mkinitcpio", "-P"), ("bash", "lsinitcpio")),
}


# fstab: the file system's UUID and its mount options.

# How long a mount waits for its device. mdadm-last-resort@.timer starts an array without its missing members
# 30 s after the first member appeared, and the mount began to wait before that; with nofail, booting does not
# wait for the mount.
DEVICE_TIMEOUT = "x-systemd.device-timeout=2min"


def sets_device_timeout(options: Sequence[str]) -> bool:
    """Return whether the options set a timeout for the device already: systemd.mount(5)."""
    return any(option.startswith("x-systemd.device-timeout=") for option in options)


def mount_options(goal: RaidGoal) -> tuple[str, ...]:
    """Return the mount options of the goal's file system. All but the root get `nofail`: a machine whose data
    array is missing still boots, and can be repaired over the network.
    """
    given = kind_named(goal.filesystem).mount_options if goal.mount_options is None else goal.mount_options
    extra = (
        () if goal.place == "/" else ("nofail", *(() if sets_device_timeout(given) else (DEVICE_TIMEOUT,)))
    )
    return tuple(dict.fromkeys((*given, *extra)))


def mount_line(uuid: str, place: str, kind: str, options: Sequence[str]) -> str:
    """Return a line of fstab. XFS and btrfs are not checked at boot: fsck.xfs(8)."""
    return (
        f"UUID={uuid} {place} {kind} {','.join(options)} 0 {2 if kind_named(kind).is_checked_at_boot else 0}"
    )


def mount_steps(
    uuid: str, place: str, line: str, others: Iterable[EditFile] = (), *, mounted: bool = False
) -> Iterator[EditFile | SystemStep]:
    """Yield the edit of fstab if there is a `line`, and the mount unless it is `mounted`. `place` "": swap
    space. `others`: edits for what needs the mount. systemd would make the source of a bind mount whose file
    system has no line yet, and mount it.
    """
    if line:
        yield edit(FSTAB, f"UUID={uuid}", line)
        yield from others
        yield steps.ReloadUnits()
    if not place:
        yield steps.Swapon(uuid)
    elif not mounted:
        yield steps.MakeDirectory(place)
        yield steps.Mount(place)


def mount_steps_of_goal(goal: RaidGoal) -> Iterator[EditFile | SystemStep]:
    """Yield the steps that mount the goal's file system by UUID, never by /dev/mdN, which changes from boot
    to boot.
    """
    line = f"UUID={goal.filesystem_uuid} none swap sw,nofail 0 0"
    uuid = goal.filesystem_uuid
    if goal.place:
        line = mount_line(uuid, goal.place, goal.filesystem, mount_options(goal))
    if goal.filesystem == SWAP.name or goal.place:
        yield from mount_steps(uuid, goal.place, line, bind_edits(goal) if goal.place else ())
    if goal.place:
        yield from directory_steps(goal)


# Directories of the new file system: its top, and those that are mounted elsewhere as well.
#
# Their lines name no UUID, so they have a mark by which they are found and replaced. Options that begin with
# "x-" are comments to mount(8). A line by itself does not wait for the file system that its path is on.

_MARK = "x-aligntool.bind"


def mark_of_drive(goal: RaidGoal) -> str:
    """Return the mark of a file system that is on one drive instead of an array."""
    return f"x-aligntool.drive={goal.name}"


def is_bind_line(line: TableLine, goal: RaidGoal) -> bool:
    """Return whether a line of fstab is for a directory of the goal's file system."""
    return f"{_MARK}={goal.name}" in line.options


def bind_edits(goal: RaidGoal) -> Iterator[EditFile]:
    """Yield the edit of fstab for the directories that are mounted elsewhere, if there are any."""
    if goal.binds:
        # the mark is the last of the options, before a space: that of another name may begin with it
        yield edit(FSTAB, f"{_MARK}={goal.name} ", *(_bind_line(goal, bind) for bind in goal.binds))


def _bind_line(goal: RaidGoal, bind: Bind) -> str:
    options = ("bind", "nofail", f"x-systemd.requires-mounts-for={goal.place}", f"{_MARK}={goal.name}")
    return f"{_source(goal, bind)} {bind.path} none {','.join(options)} 0 0"


def _source(goal: RaidGoal, bind: Bind) -> str:
    return f"{goal.place.rstrip('/')}/{bind.folder}"


def directory_steps(goal: RaidGoal) -> Iterator[SystemStep]:
    """Yield the steps that mount directories of the new file system elsewhere, and set who may use it: last,
    so that nobody else can put a link in place of one of these directories.
    """
    for bind in goal.binds:
        source = _source(goal, bind)
        yield steps.PrepareDirectory(source, goal.place)
        yield steps.MakeDirectory(bind.path)
        yield steps.BindMount(bind.path, source, goal.place)
    if goal.owner or goal.group or goal.mode:
        yield steps.PrepareDirectory(goal.place, goal.place, goal.owner, goal.group, goal.mode)


# The ARRAY line of an array: its device name, and the lines that it replaces.
#
# A wrong line is worse than none: once Debian's file has its first line, the hook no longer searches for
# arrays.

LEAST_MD_NUMBER = 120  # md numbers arrays without a number of their own from 127 downwards
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
# In a replaced line: mdadm --monitor moves spares within a group, and a bitmap in a file is found only by its
# path.
_KEPT = re.compile(r"(?i)(?<=\s)(?:spare-group=|bitmap=/)[^\s\"'#]+(?=\s|$)")
# what an ARRAY line can name without quotes
_NODE = re.compile(r"/dev/md(/[A-Za-z0-9][A-Za-z0-9._-]*|(_d)?\d+)")
_NUMBER = re.compile(r"md_?d?(\d+)")


def conf_line(device: str, metadata: str | None, uuid: str | None) -> str:
    """Return the line that gives the array of this UUID its device name: mdadm.conf(5)."""
    return f"ARRAY {device}{f' metadata={metadata}' if metadata else ''} UUID={uuid or ''}"


def persistence_steps(
    goal: RaidGoal, system: System, device: str, others: Iterable[EditFile] = ()
) -> Iterator[EditFile | InitramfsStep]:
    """Yield the edits of mdadm.conf and the rebuild of the initramfs. `others`: edits that running arrays
    need too.
    """
    yield from others
    yield edit(
        system.mdadm_conf, f"UUID={goal.array_uuid}", conf_line(device, goal.metadata, goal.array_uuid)
    )
    yield steps.RebuildInitramfs(system.maker)
    yield steps.CheckInitramfs(system.maker, goal.array_uuid)


def conf_steps(array: RunningArray, system: System) -> Iterator[EditFile]:
    """Yield the edits that give mdadm.conf a line for the array, and on Debian for every other running array
    without a line.

    The first wrong line is replaced; the others become comments first, because the new line may contain their
    text, so that each array has one line.
    """
    wrong = array.wrong_lines()
    named = array.lines_in(array.system.mdadm.arrays)
    unlisted = _unlisted_arrays(array, system)
    if unlisted:
        file = _conf_file(array.system, system)
        old = f"UUID={array.facts.uuid}"
        # each once: an edit replaces every such line
        texts = dict.fromkeys((line.file, line.text) for line in wrong)
        yield from (edit(path, text, f"# replaced by aligntool: {text}") for path, text in list(texts)[1:])
        yield edit(*((wrong[0].file, wrong[0].text) if wrong else (file, old)), *_conf_lines(unlisted))
    # each once, because an edit replaces every line with its text
    surplus = dict.fromkeys(array.surplus_lines())
    for line in surplus:
        kept = (line.text,) if line == named[0] else ()
        yield edit(line.file, line.text, *kept, f"# replaced by aligntool: {line.text}")


def refuse_device_lines(conf: MdadmConf, path: str, members: Sequence[str]) -> Iterator[Refusal]:
    """Refuse an mdadm.conf whose DEVICE lines do not permit these devices: neither --incremental nor
    --assemble --scan would start the array, although the file has its line.
    """
    forbidden = conf.forbidden(members)
    if forbidden:
        files = ", ".join(conf.files)
        text = (
            f"the DEVICE line of {files} does not permit {', '.join(forbidden)}: the array would not start at"
            " boot"
        )
        hint = f'remove that line from {files}, or add "partitions" to it'
        if any(word.endswith("\r") for word in conf.devices):  # mdadm reads "partitions\r" as a pattern
            hint = by_hand(ByHand.SYSTEM_FILES, "an editor", files)
        yield Refusal("file-conflict", path, text, hint)


def refuse_array_lines(conf: MdadmConf, step: EditFile, made: MakeArray | None) -> Iterator[Refusal]:
    """Refuse the name of another array in mdadm.conf, and a line that would match the new array, too: `mdadm
    --incremental` starts no array that two lines match (config.c, conf_match).
    """
    if step.path == SYSTEMS["debian"].mdadm_conf and step.path not in {line.file for line in conf.arrays}:
        for file in dict.fromkeys(line.file for line in conf.arrays):
            text = f"an initramfs has no lines of {file}; once {step.path} lists one array, it lists no other"
            yield Refusal("file-conflict", file, text, f"move the ARRAY lines of {file} into {step.path}")
    others = [line for line in conf.arrays if line.file != step.path or step.instead_of not in line.text]
    for ours in parse_mdadm_conf("\n".join(step.lines), step.path).arrays:
        for other in (line for line in others if line.uuid != ours.uuid):
            if ours.device and kernel_node(array_boot.node_of(other.device)) == kernel_node(ours.device):
                text = f"{other.file} gives the name {ours.device} to another array: {other.text}"
                yield Refusal("name-taken", ours.device, text, "--name another")
            elif made and other.uuid is None and _would_match(other, made):
                text = (
                    f"a line in {other.file} also matches the new array, which then would not start at boot"
                )
                yield Refusal(
                    "file-conflict", other.file, f"{text}: {other.text}", f"remove it from {other.file}"
                )


def taken_places(step: EditFile, lines: Sequence[TableLine]) -> Iterator[tuple[TableLine, str]]:
    """Yield each line that the step writes into fstab, with what one of its `lines` already mounts at that
    place, except a line that it replaces.
    """
    replaced = {line.place for line in lines if step.instead_of in line.text}
    taken = {line.place: line.spec for line in lines if line.place.startswith("/")}
    for wanted in parse_fstab("\n".join(step.lines)) if step.path == FSTAB else ():
        if wanted.place in taken.keys() - replaced:
            yield wanted, taken[wanted.place]


def _would_match(line: ArrayLine, made: MakeArray) -> bool:
    listed = [
        word for words in re.findall(r"(?i)\sdevices=(\S+)", line.text) for word in words.split(",") if word
    ]
    is_listed = any(PurePath(member).match(word) for member in made.members for word in listed)
    return is_listed or (line.name or "").lower() == f"any:{made.name}".lower()


def lines_for_running_arrays(inventory: Inventory, system: System, new: str) -> Iterator[EditFile]:
    """Yield lines for every running array if Debian's file is about to get its first line: from then on the
    hook does not search for other arrays. `new`: the device of the array to be created, a name that no other
    array gets.
    """
    running = [array for array in array_boot.running_arrays(inventory) if array.facts.uuid]
    if running and _initramfs_searches(running[0].system, system):
        yield edit(
            _conf_file(running[0].system, system), f"UUID={running[0].facts.uuid}", *_conf_lines(running, new)
        )


def _initramfs_searches(files: Files, system: System) -> bool:
    """Return whether the initramfs finds arrays on its own, as Debian's does until its mdadm.conf lists
    one.
    """
    return system.word == "debian" and not files.mdadm.arrays


def _conf_lines(arrays: Sequence[RunningArray], new: str = "") -> tuple[str, ...]:
    """Return a line for each array. An array whose name is used already, or is `new`, gets another name."""
    lines: dict[str, str] = {}
    for array in arrays:
        device = device_of(array)
        device = unique_array_name(array) if device in (*lines, new) else device
        kept = [word for line in array.wrong_lines()[:1] for word in _KEPT.findall(line.text)]
        lines[device] = " ".join((conf_line(device, array.facts.metadata, array.facts.uuid), *kept))
    return tuple(lines.values())


def conf_words(array: RunningArray, system: System) -> Iterator[str]:
    """Yield what is changed in mdadm.conf and why, a sentence each."""
    named = array.lines_in(array.system.mdadm.arrays)
    if named:
        yield f"its line in {named[0].file} is correct: {named[0].text}"
        for line in array.surplus_lines():
            why = "because mdadm --incremental starts no array that two lines match"
            yield f"a line in {line.file} becomes a comment, {why}: {line.text}"
        return
    yield f"its UUID gets the name {device_of(array)}"
    for line in array.wrong_lines():
        gone = line.uuid is not None and line.uuid not in array_boot.known_arrays(array.inventory)
        why = "names an array without members on this machine" if gone else "does not identify it by its UUID"
        if line.uuid == array.facts.uuid:
            why = "forbids its assembly" if line.device == "<ignore>" else array.mismatch_words(line)
        why = array_boot.CARRIAGE_RETURN if line.text.endswith("\r") else why
        yield f"a line in {line.file} is replaced, because it {why}: {line.text}"
    others = [other.disk.path for other in _unlisted_arrays(array, system)[1:]]
    if others:
        why = "because Debian's initramfs finds arrays on its own only while mdadm.conf lists none"
        yield f"{', '.join(others)}: also get lines, {why}"


def _unlisted_arrays(array: RunningArray, system: System) -> list[RunningArray]:
    """Return the arrays that get a line, the array itself first; none if it has a line already."""
    if array.lines_in(array.system.mdadm.arrays):
        return []
    others = array_boot.running_arrays(array.inventory) if _initramfs_searches(array.system, system) else ()
    return [array, *(other for other in others if other.facts.uuid and other.disk.name != array.disk.name)]


def _conf_file(files: Files, system: System) -> str:
    """Return the mdadm.conf that exists, never a file in the folder beside it, else the path that the system
    uses.
    """
    existing = [file for file in files.mdadm.files if ".conf.d/" not in file]
    return system.mdadm_conf if not existing or system.mdadm_conf in existing else existing[0]


def device_of(array: RunningArray) -> str:
    """Return the name that the array keeps: from its wrong line, from its superblock, else its current
    node.
    """
    names = [node for line in array.wrong_lines() if _NODE.fullmatch(node := array_boot.node_of(line.device))]
    name = short_name(array.disk)
    if name.isdecimal():
        names.append(f"/dev/md{int(name)}")
    elif _NAME.fullmatch(name):
        names.append(f"/dev/md/{name}")
    names.append(array.disk.path)
    in_use = array.nodes_of_others()
    return next(
        (path for path in names if not _is_numbered_by_md(path) and path not in in_use),
        unique_array_name(array),
    )


def unique_array_name(array: RunningArray) -> str:
    """Return a name that no other array has: it ends with the first digits of the UUID."""
    name = short_name(array.disk)
    return f"/dev/md/{name if _NAME.fullmatch(name) else 'array'}-{(array.facts.uuid or '')[:8]}"


def _is_numbered_by_md(device: str) -> bool:
    number = _NUMBER.fullmatch(device.removeprefix("/dev/"))
    return number is not None and int(number[1]) >= LEAST_MD_NUMBER


def _unit_steps(unit: str, *names: str) -> Iterator[WriteFile | EnableUnit]:
    """Yield the steps that write the files of a unit and enable it."""
    for name in names:
        path = f"/usr/local/lib/{name}" if name.endswith(".sh") else f"/etc/systemd/system/{name}"
        yield WriteFile(path, tuple(system_file_text(name).splitlines()), path + BACKUP)
    yield EnableUnit(unit)


# EFI system partitions on the drives of a system's array: separate file systems, kept in sync by the
# installed system.
#
# Firmware cannot read md, so these partitions are not part of the array and must be kept in sync
# (docs/decisions/0021). FAT stores times in units of 2 s, and cp preserves them, so a newer file in a copy
# was written there and nowhere else. The unit is ordered after the mount units of all possible mount points;
# units that do not exist are ignored: systemd.unit(5), After=.

UNIT = "esp-copies.service"
LIST_FILE = "/etc/default/esp-copies"
_FAT = "[0-9A-F]{4}-[0-9A-F]{4}"
_LISTED = re.compile(rf'ESP_COPIES="{_FAT}(?: {_FAT})*" ESP_ARRAY=([0-9a-f-]{{36}})')


def boot_volumes(goal: RaidGoal, placed: Sequence[Placed]) -> tuple[str, ...]:
    """Return the ids of the EFI file systems as blkid prints them, in the order of the drives, all different;
    () if the goal has none.
    """
    if not (goal.esp_size and placed[0].entries):
        return ()
    first = int(goal.filesystem_uuid[:8], 16)
    digits = (f"{(first + index) % 2**32:08X}" for index in range(len(placed)))
    return tuple(f"{volume[:4]}-{volume[4:]}" for volume in digits)


def boot_partition_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[MakeFileSystem]:
    """Yield the steps that make an EFI system partition on every drive, each a separate file system with its
    own id.
    """
    for place, volume in zip(placed, boot_volumes(goal, placed), strict=False):
        volume_id = volume.replace("-", "").lower()
        device = partition_node(place.member.disk.path, 1)
        yield MakeFileSystem(device, "vfat", volume, ("-F", "32", "-n", "EFI", "-i", volume_id))


def boot_copy_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[steps.FileStep | EnableUnit]:
    """Yield the steps that keep the EFI system partitions in sync, by files of the system copied onto the
    array.
    """
    volumes = boot_volumes(goal, placed)
    if volumes:
        yield from _copy_steps(f'ESP_COPIES="{" ".join(volumes)}" ESP_ARRAY={_as_blkid(goal.array_uuid)}')


def listed_copy_steps(text: str, array_uuid: str) -> Iterator[steps.FileStep | EnableUnit]:
    """Yield the steps that keep the EFI system partitions of an array in sync as the list of another system
    does; none if that is not for this array. `text`: of that list.
    """
    for line in text.splitlines():
        found = _LISTED.fullmatch(line)
        if found and found[1] == _as_blkid(array_uuid):
            yield from _copy_steps(line)


def _as_blkid(array_uuid: str) -> str:
    return str(UUID(array_uuid.replace(":", "")))


def _copy_steps(line: str) -> Iterator[steps.FileStep | EnableUnit]:
    yield edit(LIST_FILE, "ESP_COPIES=", line)
    yield from _unit_steps(UNIT, "esp-copies.sh", UNIT)


def esp_notes(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[str]:
    """Yield what the user has to do about the EFI system partitions, a sentence each."""
    volumes = boot_volumes(goal, placed)
    if volumes:
        mount = (
            f"mount one of them in the new system's fstab (UUID={volumes[0]} /boot/efi vfat umask=0077,nofail"
            " 0 2) and install the boot loader there"
        )
        copies = f"{UNIT} copies it to the others at every boot and shutdown, or when restarted"
        where = (
            "if the firmware does not look for EFI/BOOT/BOOTX64.EFI; every step: docs/raid.md, A system on"
            " RAID1"
        )
        yield f"the EFI system partitions are not part of the array: {mount}"
        yield f"{copies}; register each in the firmware, with efibootmgr, {where}"


# Arrays that lack a drive at boot, on Debian and Ubuntu: they are started degraded after half a minute, as
# mdadm-last-resort@.timer does; fstab waits two minutes.
#
# There is a gap between two programs: initramfs-tools adds members one by one and starts incomplete arrays
# only for the root file system (its script local-block/mdadm); mdadm's own timer for other arrays
# (mdadm-last-resort@.timer) starts when a member is added, but by then the initramfs has added all of them.


def late_start_steps(goal: RaidGoal, system: System) -> Iterator[WriteFile | EnableUnit]:
    """Yield the steps of the late start if the array can run without a drive but nothing else would start it
    then.
    """
    if system.word == array_boot.LEAVES_INACTIVE and LEVELS[goal.level].redundant:
        yield from install_late_start()


def install_late_start() -> Iterator[WriteFile | EnableUnit]:
    """Yield the steps that install the late start, which serves all arrays of mdadm.conf at once."""
    name = LATE_START.removesuffix(".timer")
    yield from _unit_steps(LATE_START, f"{name}.sh", f"{name}.service", LATE_START)
