"""Steps on the members of a new array: lock them, erase signatures, partition."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

from aligntool import steps as plan_steps
from aligntool.audit.arrays import partition_node
from aligntool.audit.wording import audit_command
from aligntool.change import Said
from aligntool.commands import typed
from aligntool.device import Device, zero
from aligntool.errors import Refusal, Refused, Stopped, failing_as, refuse
from aligntool.inventory import Disk, TableCopyState, TableLabel
from aligntool.layout.layout import libparted_errors, new_table, set_types
from aligntool.linux import lock as locks
from aligntool.linux.block import DiskDevice
from aligntool.linux.checks import run_blkid
from aligntool.linux.content import sample
from aligntool.linux.lock import LockedDisk, lock_disk
from aligntool.linux.look import look
from aligntool.raid.members import ranges_to_zero
from aligntool.units import Extent


def read_disk(path: str) -> Disk:
    """Read the current state of a whole disk. Raises Refused if the path is not one."""
    disk = look((path,), files=False).disk(path)
    if disk is None:
        raise Refused(f"{path} is not a whole disk", hint="lsblk")
    return disk


def read_all_disks() -> tuple[Disk, ...]:
    """Read the current state of every disk of the machine."""
    return look((), wake=True, files=False).disks


# Content that was written to a member after the plan was made.
#
# An array may be resumed months later: a member that was blank then may now hold unrecognised content, which
# is found only by reading its bytes.


def stop_unless_blank(
    disk: Disk, step: plan_steps.MakeMember, area: plan_steps.DataArea, *, begun: bool
) -> None:
    """Raise Stopped for what `unplanned_content` reports."""
    why = unplanned_content(disk, step, area, begun=begun)
    if why:
        raise Stopped(f"{why}; it is not overwritten", hint="to undo the rest: sudo aligntool rollback")


def unplanned_content(
    disk: Disk, step: plan_steps.MakeMember, area: plan_steps.DataArea, *, begun: bool
) -> str:
    """Return a sentence about unplanned content on the member; "" if it is blank, or the plan overwrites it.

    `begun`: the table may exist, and superblocks and bitmaps of the array in front of its data; md itself
    writes nothing into the data area of blank members.
    """
    number = None if step.entries else part_number(disk, step)
    whole = Extent(0, disk.size or 0)  # the extent of the member on the disk
    if number is not None:
        whole = next(part.extent for part in disk.partitions if part.number == number)
    elif step.entries and begun:
        whole = step.entries[-1].extent
    if step.wipe or not whole.length:
        return ""
    found = sample(step.disk.path, area.of(whole) if begun else whole)
    if found.unreadable:
        return f"{step.device} cannot be read at {found.unreadable} of {found.places} places"
    content = (
        f"holds data that was not there when the plan was made, at {found.written} of {found.places} places"
    )
    return f"{step.device} {content}" if found.written else ""


# Old signatures that would show through a new array, at the extents of its data on its members.
#
# As soon as an array runs, udev probes it: an old volume group or array that begins where its data begin is
# activated, and keeps the new array in use before a file system is made on it.


def old_signatures(step: plan_steps.MakeMember, area: plan_steps.DataArea) -> Iterator[Refusal]:
    """Yield a reason for each signature that blkid finds at the start of a new partition or of the array's
    data although no table shows it: of a lost partition, an old member, the content of an earlier array.
    """
    for entry in step.entries:
        yield from _signature_at(step.disk.path, entry.extent, "where the new partition begins")
    if area.offset:
        device = step.device
        extent = Extent(area.offset, area.length or 0)
        if step.entries:
            device = step.disk.path
            extent = area.of(step.entries[-1].extent)
        yield from _signature_at(device, extent, "where the array's data would begin")


def _signature_at(device: str, extent: Extent, where: str) -> Iterator[Refusal]:
    """Yield a reason if blkid finds a signature. An extent without a length extends to the end of the
    device.
    """
    length = ("-S", str(extent.length)) if extent.length else ()
    columns = ("-o", "value", "-s", "TYPE", "-s", "PTTYPE")
    probed = run_blkid(device, "-O", str(extent.start), *length, *columns)
    if probed.code == 0 and probed.output.strip():
        text = f"{device} holds {probed.output.split()[0]} at byte {extent.start}, {where}"
        yield Refusal("not-empty", device, text, typed("blkid -p -O", extent.start, device))
    elif probed.code not in (0, 2):
        text = f"{device}: blkid cannot identify the content at byte {extent.start}: {probed.output_tail}"
        yield Refusal("not-read", device, text)


# Locks on all members of a new array, taken together before they are read for the last time and kept until
# their tables are written.
#
# udev probes a drive when a writer closes it, and adds what it finds there to arrays and volume groups. So no
# member may be unlocked while any of them still has content that the plan overwrites: the remaining half of a
# half-erased array would be assembled and be in use.


class LockedMembers:
    """The locked drives and partitions, by path. Any other is locked only while it is used."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._opened: dict[str, ExitStack] = {}
        self._disks: dict[str, LockedDisk] = {}
        self._partitions: dict[str, DiskDevice] = {}

    def lock(self, step: plan_steps.MakeMember | plan_steps.FormatDrive) -> None:
        """Lock a whole drive by `lock_disk`, or only the existing partition that becomes the member. Raises
        Refused.
        """
        path = step.disk.path
        if isinstance(step, plan_steps.FormatDrive) or step.entries or step.device == path:
            if path not in self._disks:
                self._lock_disk(path)
        else:
            self._partitions[step.device] = self._stack.enter_context(locks.lock_partition(step.device))

    def _lock_disk(self, path: str) -> None:
        opened = self._stack.enter_context(ExitStack())
        self._disks[path] = opened.enter_context(lock_disk(path))
        self._opened[path] = opened

    @contextmanager
    def closed(self, path: str) -> Iterator[None]:
        """Unlock a drive within the context, if it is locked. Raises Refused if it cannot be locked again."""
        opened = self._opened.pop(path, None)
        if opened is None:
            yield
            return
        del self._disks[path]
        opened.close()
        yield
        self._lock_disk(path)

    def disk(self, path: str) -> AbstractContextManager[LockedDisk]:
        return nullcontext(self._disks[path]) if path in self._disks else lock_disk(path)

    def partition(self, path: str) -> AbstractContextManager[DiskDevice]:
        return nullcontext(self._partitions[path]) if path in self._partitions else locks.lock_partition(path)

    def unlock(self) -> bool:
        """Unlock all of them; return whether any was locked."""
        any_locked = bool(self._disks or self._partitions)
        self._disks.clear()
        self._opened.clear()
        self._partitions.clear()
        self._stack.close()
        return any_locked


@contextmanager
def lock_members(steps: Sequence[plan_steps.Step]) -> Iterator[LockedMembers]:
    """Lock the members of these steps. Raises Refused with the reasons of all members."""
    found: list[Refused] = []
    members = LockedMembers()
    try:
        for step in steps:
            try:
                if isinstance(step, plan_steps.MakeMember | plan_steps.FormatDrive):
                    members.lock(step)
            except Refused as refusal:
                found.append(refusal)
        refuse(reason for refused in found for reason in refused.refusals)
        yield members
    finally:
        members.unlock()


# Preparing a drive as a member, and undoing that.
#
# This is where the content of a drive is overwritten: nothing is written to a drive that differs from the
# plan's in its identity or in anything that is recognised on it. It is read for this while it is locked.

_ANYWHERE = plan_steps.DataArea()


def make_member(
    step: plan_steps.MakeMember, members: LockedMembers, *, again: bool, area: plan_steps.DataArea = _ANYWHERE
) -> Iterator[Said]:
    """Prepare a member. `again`: the step was begun before, so the drive may be in any state between old and
    new.

    `area`: the array's data on the member; with `wipe` both its ends are zeroed too, so that no old signature
    shows through the new array. Raises Refused if the drive cannot be locked, else Stopped.
    `wait_for_members` checks that the new partitions exist, after the unlock lets udev probe them.
    """
    disk = read_disk(step.disk.path)
    if step.entries and has_new_table(disk, step) and not _is_to_be_wiped(disk, step, area, again=again):
        yield Said(f"{disk.path} already has its table")
        if any(_problem(disk, entry) for entry in step.entries):
            with members.disk(disk.path) as locked:
                locked.kernel.show([(entry.number, entry.extent) for entry in step.entries])
    elif step.entries:
        with members.disk(disk.path) as locked:
            disk = _planned_disk(step, again=again)
            stop_unless_blank(disk, step, area, begun=again)
            _make_table(locked, disk, step, area)
    else:
        _stop_unless_planned(disk, step, again=again)
        stop_unless_blank(disk, step, area, begun=again)
        if step.wipe:
            _wipe_taken(disk, step, members, again=again, area=area)


def _is_to_be_wiped(
    disk: Disk, step: plan_steps.MakeMember, area: plan_steps.DataArea, *, again: bool
) -> bool:
    """Return whether the member still has to be wiped: the old table may equal the new one, with all its
    content.
    """
    return step.wipe and (
        not again or bool(plan_steps.recognised_content(disk)) or any(old_signatures(step, area))
    )


def wait_for_members(steps: Sequence[plan_steps.Step]) -> None:
    """Return once udev has processed all members and each new partition exists. Raises Stopped."""
    locks.wait_for_udev()
    for step in steps:
        if isinstance(step, plan_steps.MakeMember):
            for entry in step.entries:
                locks.wait_for_partition(
                    step.disk.path, partition_node(step.disk.path, entry.number), entry.extent
                )


def stop_unless_in_place(step: plan_steps.MakeMember, area: plan_steps.DataArea, *, blank: bool) -> None:
    """Raise Stopped unless a member on which nothing was made yet is at its planned extent and, if `blank`,
    has no new content.
    """
    disk = read_disk(step.disk.path)
    problems = [why for entry in step.entries if (why := _problem(disk, entry))]
    if not step.entries and (number := part_number(disk, step)) is not None:
        extents = {part.extent for part in disk.partitions if part.number == number}
        seen = dict(disk.kernel_partitions).get(number)
        problems += ["the kernel has it elsewhere than the table"] * (
            seen is not None and seen not in extents
        )
    unchanged = (
        bool(step.entries)
        or plan_steps.is_same_disk(plan_steps.subject(disk), step.disk)
        or _is_blanked(disk, step)
    )
    if problems or not unchanged or not is_same_drive(disk, step):
        raise Stopped(
            f"{step.device} is not as it was created: {'; '.join(problems) or 'its drive has changed'}"
        )
    if blank:
        stop_unless_blank(disk, step, area, begun=True)


def _problem(disk: Disk, entry: plan_steps.NewEntry) -> str:
    return locks.partition_problem(disk.path, partition_node(disk.path, entry.number), entry.extent)


def has_new_table(disk: Disk, step: plan_steps.MakeMember) -> bool:
    """Return whether the planned table is on the drive, with every entry as planned, in both copies."""
    if not is_same_drive(disk, step) or disk.table is None or disk.table.label is not TableLabel.GPT:
        return False
    found = [(part.number, part.extent, part.type_code, part.name or "") for part in disk.partitions]
    wanted = [(entry.number, entry.extent, entry.type_code, entry.name) for entry in step.entries]
    damaged = disk.table.faults or any(copy.state is not TableCopyState.GOOD for copy in disk.table.copies)
    return found == wanted and not damaged


def is_same_drive(disk: Disk, step: plan_steps.DriveStep) -> bool:
    """Compare what does not depend on the table: model, serial number, WWN, and size, which a format may
    change. The plan has the size before the first format, also in a rollback, whose steps format from the new
    one to the old one.
    """
    planned = step.disk
    if isinstance(step, plan_steps.FormatStep) and disk.limits.logical_block_size != planned.sector_size:
        return (disk.model, disk.serial, disk.wwn) == (planned.model, planned.serial, planned.wwn)
    return (disk.model, disk.serial, disk.wwn, disk.size) == (
        planned.model,
        planned.serial,
        planned.wwn,
        planned.size,
    )


def _planned_disk(step: plan_steps.MakeMember, *, again: bool) -> Disk:
    """Read the drive again, now that it is locked. Raises Stopped."""
    disk = read_disk(step.disk.path)
    _stop_unless_planned(disk, step, again=again)
    return disk


def _stop_unless_planned(disk: Disk, step: plan_steps.MakeMember, *, again: bool) -> None:
    """Raise Stopped if it is another drive, or has another table, or recognised content that is not in the
    plan.
    """
    if not is_same_drive(disk, step):
        raise Stopped(f"{disk.path} is not the drive in the plan: model, serial number, WWN or size differ")
    if not (disk.table_read and disk.content_read):
        raise Stopped(f"{disk.path} could not be read, so it may have changed since the plan was made")
    # Without its table a drive shows the superblock of its last partition as its own.
    erased = step.old_arrays if again else ()
    number = None if step.entries else part_number(disk, step)
    added = set(plan_steps.recognised_content(disk, number, ignored_arrays=erased)) - set(step.holds)
    if added:
        text = (
            f"{disk.path} holds content that was not there when the plan was made: {', '.join(sorted(added))}"
        )
        raise Stopped(text)
    if plan_steps.is_same_disk(plan_steps.subject(disk), replace(step.disk, path=disk.path)) or (
        again and _is_between(disk, step)
    ):
        return
    raise Stopped(f"{disk.path} has another partition table than when the plan was made")


def _is_between(disk: Disk, step: plan_steps.MakeMember) -> bool:
    """Return whether an interrupted run of this step may have left this table: none, or half of the old or
    new one.
    """
    old = step.wipe and plan_steps.subject(disk).table_digest == step.disk.table_digest
    return old or _is_ours(disk, step) or _is_blanked(disk, step)


def _is_blanked(disk: Disk, step: plan_steps.MakeMember) -> bool:
    """Return whether the member is a whole drive whose old table was erased."""
    return step.wipe and step.device == step.disk.path and not step.entries and disk.table is None


def _is_ours(disk: Disk, step: plan_steps.MakeMember) -> bool:
    """Return whether all partitions are the step's, whatever their types: those are set after libparted has
    written the table.
    """
    if step.entries and disk.partitions and disk.table and disk.table.label is TableLabel.DOS:
        # A protective MBR whose GPT was not written yet.
        return [part.type_code.lower() for part in disk.partitions] == ["0xee"]
    return bool(step.entries) and {part.extent for part in disk.partitions} <= {
        entry.extent for entry in step.entries
    }


def _make_table(
    locked: LockedDisk, disk: Disk, step: plan_steps.MakeMember, area: plan_steps.DataArea
) -> None:
    sector_size = locked.device.sector_size
    failures: tuple[type[Exception], ...] = (OSError, *libparted_errors())
    locked.kernel.forget(locked.kernel.numbers())
    with new_table(disk.path, step, sector_size) as table:
        try:
            if step.wipe:
                zero(locked.device, ranges_to_zero(disk, step.entries, None, area))
            # once a partition exists, udev would start an old array in it
            for reason in old_signatures(step, area):
                raise Stopped(f"{reason.text}; it was not overwritten")
            table.commitToDevice()
            set_types(locked.device, step)
            locked.kernel.show([(entry.number, entry.extent) for entry in step.entries])
        except failures as error:
            raise Stopped(f"{disk.path}: {error}; its new table may be incomplete") from error


def _wipe_taken(
    disk: Disk, step: plan_steps.MakeMember, members: LockedMembers, *, again: bool, area: plan_steps.DataArea
) -> None:
    """Wipe an existing partition or a whole drive: its two ends and those of the array's data, nothing
    outside it.
    """
    number = part_number(disk, step)
    if number is None:
        with members.disk(disk.path) as locked:
            disk = _planned_disk(step, again=again)
            locked.kernel.forget(locked.kernel.numbers())
            zero(locked.device, ranges_to_zero(disk, (), None, area))
        return
    extent = next(part.extent for part in disk.partitions if part.number == number)
    why = locks.partition_problem(disk.path, step.device, extent)
    if why:
        raise Stopped(f"{step.device}: {why}")
    with members.partition(step.device) as device:
        disk = _planned_disk(step, again=again)
        with failing_as(Stopped, step.device, "; its old content may be partly wiped"):
            ranges = ranges_to_zero(disk, (), extent, area)
            zero(device, tuple(Extent(part.start - extent.start, part.length) for part in ranges))


def part_number(disk: Disk, step: plan_steps.MakeMember) -> int | None:
    """Return the number of the partition that becomes the member, or None for a whole drive. Raises
    Stopped.
    """
    for part in disk.partitions:
        if step.device in (f"/dev/{part.node}", partition_node(disk.path, part.number)):
            return part.number
    if step.device != disk.path:
        raise Stopped(f"{disk.path} has no partition {step.device}")
    return None


def remove_member(
    step: plan_steps.MakeMember, area: plan_steps.DataArea = _ANYWHERE, *, blank: bool = False
) -> Iterator[Said]:
    """Remove the new table, if the step has entries. `blank`: the plan has not yet written into the member,
    so any content there is foreign.

    Raises Refused if the drive is in use, Stopped if writing fails.
    """
    if step.wipe:
        yield Said(f"the former content of {step.device}, erased by --wipe, cannot be restored")
    if not step.entries:
        return
    disk = read_disk(step.disk.path)
    if not is_same_drive(disk, step):
        raise Refused(f"{disk.path} is not the drive in the plan", hint="attach the drive of the plan")
    refuse_unread(disk)
    if not _is_ours(disk, step) or plan_steps.recognised_content(disk):
        found = ", ".join(plan_steps.recognised_content(disk)) or "another table"
        yield Said(f"{disk.path} is left as it is: it holds {found}, which is not part of this array")
        return
    if blank and (why := unplanned_content(disk, step, area, begun=True)):
        yield Said(f"{disk.path} is left as it is: {why}")
        return
    with LockedMembers().disk(disk.path) as locked:
        if disk.table is None and not _ends_with_gpt(locked.device):
            yield Said(f"{disk.path} has no table; there is nothing to undo")
            return
        locked.kernel.forget(locked.kernel.numbers())
        with failing_as(Stopped, disk.path, "; its table may be partly removed"):
            zero(locked.device, ranges_to_zero(disk, step.entries, None, area))
    locks.wait_for_udev()


def refuse_unread(disk: Disk) -> None:
    """Raise Refused if the content of the drive could not be read: its table is then kept."""
    if not (disk.table_read and disk.content_read and all(part.content_read for part in disk.partitions)):
        look = audit_command(disk)
        raise Refused(f"{disk.path} could not be read, so its table is kept", hint=look)


def _ends_with_gpt(device: Device) -> bool:
    """Return whether the last sector is a backup GPT header, which is ignored without a primary or protective
    MBR.
    """
    return bytes(device.read(device.size - device.sector_size, device.sector_size)).startswith(b"EFI PART")
