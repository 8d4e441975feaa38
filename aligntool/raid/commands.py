"""Commands and steps that create arrays and file systems."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from aligntool import steps
from aligntool.audit.arrays import is_flash
from aligntool.change import RaidGoal
from aligntool.contents.catalogue import kind_named
from aligntool.contents.kind import NewArray
from aligntool.formats.gpt import table_sizes
from aligntool.inventory import Disk, DiskKind
from aligntool.raid.boot import FSTAB, MAKERS
from aligntool.raid.levels import LEVELS, Level, capacity, data_members
from aligntool.raid.members import METADATA, Placed
from aligntool.steps import DataArea, MakeArray, MakeFileSystem, SystemStep
from aligntool.system import Installed
from aligntool.units import GIB, KIB, MIB, Extent, align_down, format_size

# `mdadm --create` with every value given, so that nothing depends on its defaults or on its questions.
#
# The defaults differ between versions of mdadm: before 4.4 members over 100 GiB got a bitmap by default;
# since then mdadm asks, and a script without a terminal gets none (mdadm.c, "To optimize recovery speed").

LARGER_BLOCK = 4 * KIB
ANY_CHUNK = 64 * KIB  # the size of a RAID1 is rounded to this
BITMAP_CHUNK = 64 * MIB  # mdadm's own
PARITY_BITMAP_CHUNK = GIB
BITMAP_HEADER = 256  # bytes: sizeof(bitmap_super_t)
# super1.c, choose_bm_space: (least size of the member, room for its bitmap); BITMAP_ROOM on smaller members.
BITMAP_ROOMS = ((200 * GIB + 64 * KIB, 128 * KIB), (8 * GIB + 8 * KIB, 64 * KIB))
BITMAP_ROOM = 4 * KIB


@dataclass(frozen=True, slots=True)
class ArrayGeometry:
    """The geometry of a planned array. Sizes in bytes."""

    device: str
    level: Level
    layout: str
    chunk: int | None
    bitmap: str
    offset: int
    each: int  # bytes used of every member
    size: int  # of the array
    data: int  # members' worth of data in a full stripe
    flash: bool  # whether all members are flash
    sector: int | None  # larger logical blocks that all members can be given; None: not all


def array_device(goal: RaidGoal) -> str:
    """Return the device node of the array."""
    return f"/dev/md/{goal.name}"


def geometry_of(
    goal: RaidGoal, level: Level, layout: str, chunk: int | None, placed: Sequence[Placed], offset: int
) -> ArrayGeometry:
    """Return the geometry. Each member contributes what remains of the smallest one, in whole chunks."""
    length = align_down(
        min(member.extent.length for member in placed) - (offset or METADATA), chunk or ANY_CHUNK
    )
    bitmap = goal.bitmap or ("internal" if level.redundant else "none")
    size = capacity(level, len(placed), layout, length)
    data = data_members(level, len(placed), layout)
    flash = all(is_flash(place.member.disk) for place in placed)
    sector = LARGER_BLOCK if all(_offers_larger_blocks(place.member.disk) for place in placed) else None
    return ArrayGeometry(
        array_device(goal), level, layout, chunk, bitmap, offset, length, size, data, flash, sector
    )


def _offers_larger_blocks(disk: Disk) -> bool:
    """Return whether an NVMe drive has smaller logical blocks now, and a format of the larger ones without
    metadata.
    """
    formats = disk.nvme.formats if disk.kind is DiskKind.NVME and disk.nvme else ()
    is_small = 0 < (disk.limits.logical_block_size or 0) < LARGER_BLOCK
    return is_small and any(form.data_size == LARGER_BLOCK and not form.metadata_size for form in formats)


def make_array(goal: RaidGoal, geometry: ArrayGeometry, members: tuple[str, ...]) -> MakeArray:
    """Return the step that creates the array. A RAID0 uses its members whole, so its data area has no
    length.
    """
    level = geometry.level
    bitmap = bitmap_chunk(geometry) if level.redundant and geometry.bitmap == "internal" else None
    data = DataArea(geometry.offset, geometry.each if level.redundant else None)
    form = (level.word, geometry.layout, geometry.chunk, goal.metadata, bitmap, data)
    return MakeArray(geometry.device, goal.array_uuid, goal.name, members, *form, zeroed=goal.zero_members)


def zero_command(device: str, extent: Extent) -> tuple[str, ...]:
    """Return the command that zeroes an extent of a member with the Write Zeroes command of its drive.

    On a block device FALLOC_FL_PUNCH_HOLE promises zeros, as a discard does not, lets the drive deallocate
    its blocks, and fails if the drive lacks the command (block/fops.c, blkdev_fallocate, with
    BLKDEV_ZERO_NOFALLBACK), instead of writing zeros for hours as `blkdiscard --zeroout` does.
    """
    place = ("--offset", str(extent.start), "--length", str(extent.length))
    return ("fallocate", "--punch-hole", *place, device)


def create_command(step: MakeArray, *, assume_clean: bool = False) -> tuple[str, ...]:
    """Return the mdadm(8) command. With `--homehost=any` every machine treats the array as its own, whatever
    host name the initramfs has.
    """
    words = ["mdadm", "--create", step.device, "--run", f"--level={step.level.removeprefix('raid')}"]
    words += ["--force"] if len(step.members) == 1 else []  # before --raid-devices: mdadm(8)
    words += [f"--raid-devices={len(step.members)}"]
    words += [f"--chunk={step.chunk // KIB}K"] if step.chunk else []
    words += [f"--layout={step.layout}"] if step.layout else []
    words += [f"--metadata={step.metadata}"]
    words += [f"--data-offset={step.data.offset // KIB}K"] if step.data.offset else []
    if LEVELS[step.level].redundant:  # mdadm takes none of these options for a RAID0
        words += [f"--size={step.data.length // KIB}K"] if step.data.length else []
        chunk = step.bitmap_chunk
        bitmap = ["--bitmap=none", "--consistency-policy=resync"]
        if chunk:
            bitmap = ["--bitmap=internal", f"--bitmap-chunk={chunk // MIB}M", "--consistency-policy=bitmap"]
        words += bitmap
    words += [f"--name={step.name}", "--homehost=any", f"--uuid={step.uuid}"]
    return (*words, *(["--assume-clean"] if assume_clean or step.zeroed else []), *step.members)


def tuning_command(step: MakeArray) -> tuple[str, ...]:
    """Return the command for the test array of a sweep: without an initial resynchronisation.

    The parity that it would write protects no data that is ever read, and while it runs every write to RAID5
    and RAID6 is a reconstruct-write (raid5.c, handle_stripe_dirtying), unlike in normal operation.
    """
    return create_command(step, assume_clean=LEVELS[step.level].redundant)


def bitmap_chunk(geometry: ArrayGeometry) -> int:
    """Return the bytes per bit of the bitmap; no more than each member contributes, and no less than mdadm
    has room for.
    """
    wanted = PARITY_BITMAP_CHUNK if geometry.level.parity else BITMAP_CHUNK
    while wanted > geometry.each and wanted > MIB:
        wanted //= 2
    return max(wanted, least_bitmap_chunk(geometry))


def least_bitmap_chunk(geometry: ArrayGeometry) -> int:
    """Return the fewest bytes per bit that mdadm accepts; with fewer it stops with "Given bitmap chunk size
    not supported" (super1.c, add_internal_bitmap1).

    The bits of a RAID10 cover the array, those of other levels a member (Create.c).
    """
    room = next((room for size, room in BITMAP_ROOMS if geometry.each >= size), BITMAP_ROOM)
    most = (room - BITMAP_HEADER) * 8
    chunk = 4 * KIB
    bits = (geometry.size if geometry.level.word == "raid10" else geometry.each) // (4 * KIB) + 1
    while bits > most:
        chunk = chunk * 2
        bits = (bits + 1) // 2
    return chunk


def consistency_notes(goal: RaidGoal, geometry: ArrayGeometry) -> Iterator[str]:
    """Yield how the members are made consistent after a crash, and what that costs."""
    if not geometry.level.redundant:
        yield f"no bitmap: {geometry.level.title} has nothing to resynchronise"
        return
    if geometry.bitmap == "none":
        yield (
            "no bitmap: after a crash the whole array is resynchronised; a second failure until then can lose"
            " data"
        )
    else:
        cost = "it slowed small writes to a RAID1 by 7 % (published, one tester)"
        if geometry.level.parity:
            cost = (
                "small writes to five NVMe drives fell to less than a hundredth with mdadm's 64MiB per bit,"
            )
            cost += " and to half with 1GiB (published, one tester; --bitmap none is the fastest)"
        resolution = f"one bit per {format_size(bitmap_chunk(geometry))}"
        yield (
            f"an internal bitmap, {resolution}: after a crash only areas being written are resynchronised;"
            f" {cost}"
        )
    if geometry.level.word == "raid5":
        hole = "the write hole (a crash while a member is missing can damage data that was not being written)"
        cost = (
            "but costs up to 30 to 40 % of writes and excludes a bitmap (published: the kernel's"
            " raid5-ppl.rst)"
        )
        yield f"no partial parity log: it would close {hole}, {cost}"
    if not goal.zero_members:
        yield (
            "no --assume-clean: the members may not hold zeros, so the initial resynchronisation runs;"
            " --fast-sync lifts md's limit for it, and --zero-members avoids it on empty NVMe drives"
        )


# The mkfs command of the array's file system.


def new_array(goal: RaidGoal, geometry: ArrayGeometry) -> NewArray:
    """Return what the kind of the goal's file system needs to know."""
    wants_stripes = bool(geometry.level.parity) or not geometry.flash
    sizes = (goal.block_size, goal.inode_size, goal.log_size)
    array = NewArray(
        goal.filesystem_uuid, goal.name, geometry.chunk or 0, geometry.data, wants_stripes, *sizes
    )
    array = replace(array, discards=not goal.zero_members)
    fits = geometry.sector is not None and array.block >= geometry.sector
    return replace(array, sector=geometry.sector) if fits else array


def file_system_step(goal: RaidGoal, geometry: ArrayGeometry) -> MakeFileSystem | None:
    """Return the step that makes the goal's file system, or None if the goal has none.

    Its options force the creation: on drives that held an array before, the data of the new one begin at the
    same byte, so mkfs would find the old content and refuse or ask. The content of the members was checked
    before the array was created.
    """
    on_array = kind_named(goal.filesystem).on_array
    if on_array is None:
        return None
    options = tuple(on_array.options(new_array(goal, geometry)))
    return MakeFileSystem(geometry.device, goal.filesystem, goal.filesystem_uuid, options)


def label_of(goal: RaidGoal) -> str:
    """Return the label that the goal's file system gets: the name, as far as the kind has room for it."""
    on_array = kind_named(goal.filesystem).on_array
    sizes = (goal.block_size, goal.inode_size, goal.log_size)
    if on_array is None:
        return ""
    options = tuple(on_array.options(NewArray("", goal.name, 0, 1, False, *sizes)))
    return options[options.index("-L") + 1]


def filesystem_notes(goal: RaidGoal, geometry: ArrayGeometry) -> Iterator[str]:
    """Yield why the file system gets these stripe settings, a sentence each."""
    on_array = kind_named(goal.filesystem).on_array
    if on_array:
        yield from on_array.notes(new_array(goal, geometry))
    if goal.block_size and goal.block_size > 4 * KIB:
        yield (
            f"most machines cannot mount blocks of {format_size(goal.block_size)}: their memory pages are"
            " smaller"
        )


def format_command(step: steps.FormatStep) -> tuple[str, ...]:
    """Return the Format NVM command itself, because `nvme format` also sets a buffer size, which fails on a
    disk that is opened exclusively.

    Dword 10: LBAF in bits 3:0 and 13:12, no secure erase, no protection information. The kernel refuses the
    number of another namespace.
    """
    number = step.format_after & 0xF | step.format_after >> 4 << 12
    words = ("--opcode=0x80", f"--namespace-id={step.namespace}", f"--cdw10={number}", "--timeout=600000")
    return ("nvme", "admin-passthru", step.disk.path, *words)


# Steps on the members of a running array, one after the other. Each step runs its commands in order and skips
# those that are already done.


def member_commands(step: steps.MemberStep) -> tuple[tuple[str, ...], ...]:
    """Return the commands of a step, as a plan shows them; sfdisk reads the output of `table_script`."""
    match step:
        case steps.CheckArray(_, path):
            return (("mdadm", "--action=check", path),)
        case steps.TakeOutMember(_, path, device, spare):
            replace = ("--replace", device, "--with", spare) if spare else ("--fail", device)
            return (("mdadm", path, *replace), ("mdadm", path, "--remove", device))
        case steps.FormatMember():
            form = format_command(step)
            disk = step.disk.path
            table = ("sfdisk", "--no-reread", "--no-tell-kernel", "--wipe=never", "--quiet", disk)
            return (form, table) if step.entries else (form,)
        case steps.PutBackMember(_, path, device):
            return (("mdadm", path, "--add", device),)


def table_script(step: steps.FormatMember) -> str:
    """Return the sfdisk script of the table: the entries with their GUIDs, in sectors of the new size."""
    size = step.block_after
    lines = ["label: gpt", f"label-id: {step.disk.disk_id}", f"first-lba: {table_sizes(size)[0] // size}"]
    for entry, uuid in zip(step.entries, step.uuids, strict=True):
        extent = f"start={entry.extent.start // size}, size={entry.extent.length // size}"
        name = f', name="{entry.name}"' if entry.name else ""
        lines.append(f"{entry.number} : {extent}, type={entry.type_code}, uuid={uuid}{name}")
    return "\n".join(lines) + "\n"


RELOAD_RULES = ("udevadm", "control", "--reload")
"""Has udev read its rules again: it looks for new ones at most every three seconds."""


# The command that each step runs, and its purpose.

ProgramStep = MakeArray | MakeFileSystem | SystemStep


def command_of(step: ProgramStep) -> tuple[str, ...]:
    """Return the command of a step, which plans show and applying runs."""
    if isinstance(step, MakeArray):
        return create_command(step)
    if isinstance(step, MakeFileSystem):
        return (kind_named(step.kind).maker, *step.options, step.device)
    return _purpose_and_command(step)[1]


def command_in(step: ProgramStep, installed: Installed | None) -> tuple[str, ...]:
    """Return the command of a step of a plan for an installed system, whose own programs run in a chroot of
    its folder. A file system is mounted by the running system: in the chroot, its mount would end with it.
    """
    words = command_of(step)
    if installed is None:
        return words
    if isinstance(step, steps.Mount):
        root = installed.root
        return ("mount", "--fstab", f"{root}{FSTAB}", "--target-prefix", root, step.path)
    return ("chroot", installed.root, *words) if isinstance(step, steps.InstalledStep) else words


def reencrypt_command(step: steps.ReencryptSectors, *, resume: bool = False) -> tuple[str, ...]:
    """Return the command without its device. The key is kept, and with it every key slot and token.
    Resilience by a journal does not rely on atomic sector writes, as checksums would. The device is never
    active (see steps_luks).
    """
    action = ("--resume-only",) if resume else ("--sector-size", str(step.after), "--keep-key")
    words = (
        "--resilience",
        "journal",
        "--force-offline-reencrypt",
        "--progress-json",
        "--progress-frequency",
        "1",
    )
    return ("cryptsetup", "reencrypt", "--batch-mode", *action, *words, "--key-file", "-")


def purpose_of(step: SystemStep) -> str:
    """Return what a step does, in a few words."""
    return _purpose_and_command(step)[0]


def programs_of(step: ProgramStep) -> tuple[str, ...]:
    """Return the programs that a step needs."""
    if isinstance(step, steps.CheckInitramfs):
        return MAKERS[step.maker].programs
    zeroing = ("fallocate",) if isinstance(step, MakeArray) and step.zeroed else ()
    return (*zeroing, command_of(step)[0])


def _purpose_and_command(step: SystemStep) -> tuple[str, tuple[str, ...]]:
    match step:
        case steps.SetPartitionType(disk, partition, type_code):
            # The kernel stores no types, and rereading the table would fail while another partition is in
            # use.
            command = ("sfdisk", "--no-tell-kernel", "--part-type", disk, str(partition), type_code)
            return f"set the type of partition {partition} of {disk} to RAID member", command
        case steps.RebuildInitramfs(maker):
            return "rebuild every initramfs", MAKERS[maker].rebuild
        case steps.CheckInitramfs(maker, uuid):
            return f"check that the array's line is in {MAKERS[maker].where}", (*MAKERS[maker].check, uuid)
        case steps.ReloadUnits():
            return "have systemd reload its unit files and fstab", ("systemctl", "daemon-reload")
        case steps.EnableUnit():
            return f"enable {step.unit}", ("systemctl", "enable", step.unit)
        case steps.MakeDirectory():
            return f"create the directory {step.path}", ("mkdir", "-p", step.path)
        case steps.Mount():
            return f"mount {step.path} by its fstab line", ("mount", step.path)
        case steps.PrepareDirectory():
            return _directory_words(step), _directory_command(step)
        case steps.BindMount():
            return f"mount {step.source} at {step.path} as well, by its fstab line", ("mount", step.path)
        case steps.Swapon():
            return "enable the swap space", ("swapon", "-U", step.uuid)
        case _:
            assert_never(step)


def access_words(step: steps.PrepareDirectory) -> str:
    """Return the owner, group and mode of a directory, as far as they are wanted."""
    wanted = {"owner": step.owner, "group": step.group, "mode": step.mode}
    return ", ".join(f"{name} {value}" for name, value in wanted.items() if value)


def _directory_words(step: steps.PrepareDirectory) -> str:
    words = access_words(step)
    if step.path == step.mount:
        return f"set {words} of {step.path}"
    return f"create the directory {step.path} on it{f', {words}' if words else ''}"


def _directory_command(step: steps.PrepareDirectory) -> tuple[str, ...]:
    """Return the command of install(1), which also sets the attributes of a directory that exists."""
    wanted = {"-o": step.owner, "-g": step.group, "-m": step.mode}
    options = (word for option, value in wanted.items() if value for word in (option, value))
    return ("install", "-d", *options, step.path)
