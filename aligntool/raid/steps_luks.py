"""Steps on LUKS2: check the content, and re-encrypt by cryptsetup."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from aligntool.audit.wording import command, label_words, layer_name, shell_word
from aligntool.change import ArrayPlan, Event, Plan, Progress, Said
from aligntool.commands import ByHand, by_hand
from aligntool.contents.catalogue import smallest_unit
from aligntool.contents.layers import read_layers
from aligntool.contents.luks import NOT_BY_CRYPTSETUP, is_reencrypted, unflushed_copy
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.formats.reader import open_area
from aligntool.formats.tables import read_table
from aligntool.inventory import Disk
from aligntool.linux.block import ReadOnlyDevice, open_read_only
from aligntool.linux.confined import run_confined
from aligntool.linux.lock import lock_disk
from aligntool.linux.loops import PartitionLoop, partition_loop
from aligntool.linux.luks import open_luks
from aligntool.linux.programs import ProgramResult, follow_program, how_ended, run_program
from aligntool.linux.sysfs import opened
from aligntool.mover.whole_disk import other_kinds
from aligntool.raid.commands import reencrypt_command
from aligntool.steps import ReencryptSectors, is_same_disk, subject
from aligntool.units import MIB, Extent, format_size

# Whether the content works on larger sectors: only content that is known to do so is accepted. A loop device
# over the partition of a locked disk is not open elsewhere.


def content_problems(reader: ReadOnlyDevice, size: int, sector: int) -> Iterator[str]:
    """Yield why the content in the `size` bytes of the device may not work on sectors of this size."""
    layers = read_layers(reader, Extent(0, size))
    tables = {
        found.label.value for table in (512, 4096) if (found := read_table(reader, sector_size=table).table)
    }
    others = other_kinds(reader, layers[0].kind) if layers else ()
    if len(layers) != 1 or tables or others:
        names = (
            *map(layer_name, layers),
            *others,
            *(f"a {label_words(label)} table".replace("a MBR", "an MBR") for label in sorted(tables)),
        )
        yield f"{' and '.join(names) or 'nothing'} is recognised inside: required sectors unknown"
        return
    unit = smallest_unit(reader, layers[0])
    if not unit.fits(sector):
        yield (
            f"{layer_name(layers[0])} inside {unit.words}: it would not work on sectors of"
            f" {format_size(sector)}"
        )


Look = Callable[[PartitionLoop, bytes, int], tuple[str, ...]]
"""Open the content with its key, and return why it may not work on sectors of that size. Raises Refused."""


def look_inside(loop: PartitionLoop, key: bytes, sector: int) -> tuple[str, ...]:
    """Open the LUKS2 read-only, and return why its content may not work on these sectors. Raises Refused if
    it cannot be opened.
    """
    with open_luks(loop.device, key, (loop.descriptor,)) as reader:
        return tuple(content_problems(reader, reader.size, sector))


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a LUKS2, and the function that checks the content with it."""

    content: bytes = b""
    look: Look = look_inside


NO_KEY = Key()


# The re-encryption. Its progress is in the header, which cryptsetup writes. After a power cut a header is
# written here as well: the first copy from the second, or both as cryptsetup completed them in a file.

_REENCRYPTING = "online-reencrypt"  # LUKS2 specification, 3.6: requirements; followed by "-v2" and the like
_MOST_SLOTS = 32  # specification, 3.2; a re-encryption takes one of them
_WRONG_KEY = 2  # cryptsetup(8), RETURN CODES


@dataclass(frozen=True, slots=True)
class _Header:
    uuid: str
    sectors: frozenset[int]
    underway: bool
    complete: bool  # underway, and all data are done
    # the sectors that the re-encryption underway leads to, if it only changes sectors or keys
    goal: int | None
    unknown: tuple[str, ...]  # requirements that a change must not ignore
    unfit: str  # why cryptsetup would not begin; "" if nothing is known
    sizes: tuple[int, int, int]  # bytes of one of the two copies, of the key slots, and before the data

    def is_continued_by(self, step: ReencryptSectors) -> bool:
        """Return whether the re-encryption underway is that of the step."""
        return self.underway and self.goal == step.after


def _read_header(loop: PartitionLoop, device: str | None = None) -> _Header:
    """Read the LUKS2 header, also from a file with a copy of it. Raises Stopped if cryptsetup cannot read
    it.
    """
    device = device or loop.device
    with opened(device) as disk:  # locked by aligntool; the folder of cryptsetup's own locks is not reachable
        name = f"/proc/self/fd/{disk}"  # device may be a file
        uuid = run_confined("cryptsetup", "luksUUID", "--disable-locks", name, disks=(disk,))
        words = ("cryptsetup", "luksDump", "--disable-locks", "--dump-json-metadata", name)
        dump = run_confined(*words, disks=(disk,))
    try:
        tree = json.loads(dump.output)
        described = tree["segments"].values()
        slots = tree["keyslots"].values()
        segments = [segment for segment in described if "backup-" not in str(segment.get("flags"))]
        mandatory = tuple(tree["config"].get("requirements", {}).get("mandatory", ()))
        sectors = frozenset(int(segment["sector_size"]) for segment in segments if segment["type"] == "crypt")
        goal = _goal_of(described, slots)
        unfit = _why_unfit(segments, len(slots))
        copy = int(tree["config"]["json_size"]) + 4096
        area = int(tree["config"]["keyslots_size"])
        sizes = (copy, area, min(int(segment["offset"]) for segment in segments))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Stopped(f"cryptsetup does not read the header: {dump.output_tail[-200:] or error}") from error
    known = tuple(word for word in mandatory if word.startswith(_REENCRYPTING))
    unknown = tuple(word for word in mandatory if word not in known)
    complete = bool(known) and is_reencrypted(tree)
    return _Header(uuid.output.strip(), sectors, bool(known), complete, goal, unknown, unfit, sizes)


def _goal_of(segments: Iterable[Mapping[str, object]], slots: Iterable[Mapping[str, object]]) -> int | None:
    """Return the sectors after a re-encryption of all data in their places; None if it encrypts, decrypts or
    moves.
    """
    own = [slot for slot in slots if slot["type"] == "reencrypt"]
    if any(slot["mode"] != "reencrypt" or "datashift" in str(slot["area"]) for slot in own):
        return None
    final = (segment for segment in segments if "backup-final" in str(segment.get("flags")))
    return next((int(str(segment["sector_size"])) for segment in final if segment["type"] == "crypt"), None)


def _why_unfit(segments: Sequence[Mapping[str, object]], slots: int) -> str:
    """Return why cryptsetup refuses to re-encrypt, which it would only do after the record was begun."""
    if any(segment["type"] != "crypt" or segment.get("integrity") for segment in segments):
        return "it has integrity data, or is encrypted by the drive"
    if any(segment["size"] != "dynamic" for segment in segments):
        return "its length is fixed, and would not be any more"
    return (
        f"all {_MOST_SLOTS} key slots are used, and a re-encryption needs one" if slots >= _MOST_SLOTS else ""
    )


def refuse_unfit(plan: Plan, key: Key) -> None:
    """Raise Refused if reading shows that a step is impossible: a wrong key, or content that needs small
    sectors.
    """
    for step in plan.of(ReencryptSectors):
        with _attached(plan, step) as loop:
            found = _read_header(loop)
            about = f"partition {step.partition}"
            if found.underway and not found.is_continued_by(step):
                text = f"{about} is being re-encrypted for another purpose than larger sectors"
                hint = NOT_BY_CRYPTSETUP if found.complete else finishing_command(plan, step)
                raise Refused(text, hint=hint, code="in-flight", subject=about)
            if found.underway:  # it was begun before and its record is lost, and it is continued
                continue
            why = found.unfit or ("" if not found.unknown else f"it requires {', '.join(found.unknown)}")
            if why:
                text = f"{about} cannot be re-encrypted: {why}"
                raise Refused(text, hint="aligntool explain AT406", code="layer-fixed", subject=about)
            _refuse_inside(step, loop, key)


def finishing_command(plan: Plan, step: ReencryptSectors) -> str:
    """Return where the user finds how cryptsetup itself finishes a re-encryption that was interrupted."""
    extent = step.extent
    place = f"{shell_word(plan.disk.path)}, {extent.length} bytes from byte {extent.start}"
    return by_hand(ByHand.LUKS, "cryptsetup", place)


def refuse_begun(plan: Plan) -> None:
    """Raise Refused if a volume is partly re-encrypted, which cannot be undone."""
    for step in plan.of(ReencryptSectors):
        with _attached(plan, step) as loop:
            found = _read_header(loop)
        if found.underway:
            text = f"partition {step.partition} is partly re-encrypted, which cannot be undone"
            raise Refused(text, hint=command("resume", plan.disk.path))


def undo(step: ReencryptSectors, plan: Plan) -> Said:
    """Report what a rollback leaves: it undoes nothing, because each volume is as it was, or is complete."""
    with _attached(plan, step) as loop:
        is_done = step.after in _read_header(loop).sectors
    state = f"stays re-encrypted, with sectors of {format_size(step.after)}" if is_done else "is unchanged"
    return Said(f"partition {step.partition} {state}")


def with_current_path(plan: ArrayPlan, disks: Sequence[Disk]) -> ArrayPlan:
    """Return the plan with the current path of its disk. Its table may have changed since, because each LUKS
    is found by its place and its UUID. Raises Refused unless exactly one disk is that disk.
    """
    was = plan.disk
    if Path(was.path).is_file():
        size = Path(was.path).stat().st_size
        if size != was.size:
            raise Refused(f"{was.path} has {size} bytes, but had {was.size}: it is another image")
        return plan
    found = [disk for disk in disks if is_same_disk(subject(disk), was)]
    found = found or [
        disk for disk in disks if is_same_disk(replace(subject(disk), table_digest=was.table_digest), was)
    ]
    if len(found) != 1:
        others = f"cannot be distinguished from others: {', '.join(disk.path for disk in found)}"
        raise Refused(
            f"{was.path} {others if found else 'is missing'}", hint="lsblk -o NAME,MODEL,SERIAL,SIZE"
        )
    return replace(plan, disk=replace(was, path=found[0].path))


def _refuse_inside(step: ReencryptSectors, loop: PartitionLoop, key: Key) -> None:
    reasons = key.look(loop, key.content, step.after)
    if reasons:
        text = "\n".join(f"partition {step.partition}: {reason}" for reason in reasons)
        raise Refused(
            text, hint="aligntool explain AT406", code="layer-fixed", subject=f"partition {step.partition}"
        )


@contextmanager
def _attached(plan: Plan, step: ReencryptSectors) -> Iterator[PartitionLoop]:
    path = plan.disk.path
    # An image that another program has open is refused, but not one of which that is unknown: there is no
    # option.
    locked = lock_disk(path, image_sector_size=plan.disk.sector_size, keep_posix=True, no_lease=True)
    with locked, partition_loop(path, step.extent, direct=True) as loop:
        # before any cryptsetup: it copies the first header to the second
        with open_read_only(loop.device) as reader:
            copy = unflushed_copy(open_area(reader, Extent(0, reader.size), 512, lambda *_: ()))
        if copy is not None:
            _write_durably(loop, copy, 0)
        yield loop


def _write_durably(loop: PartitionLoop, content: bytes, offset: int) -> None:
    os.pwrite(loop.descriptor, content, offset)
    os.fsync(loop.descriptor)


def reencrypt(step: ReencryptSectors, index: int, plan: Plan, key: Key) -> Iterator[Event]:
    """Re-encrypt, or continue an interrupted re-encryption. Raises Stopped, or Refused if nothing was
    written.
    """
    with _attached(plan, step) as loop:
        found = _read_header(loop)
        other = found.unknown or (found.underway and not found.is_continued_by(step))
        if found.uuid != step.uuid or other or not found.sectors <= {step.before, step.after}:
            details = ", ".join((found.uuid, *map(str, sorted(found.sectors)), *found.unknown))
            raise Stopped(f"the LUKS2 of partition {step.partition} is not the one in the plan: {details}")
        if not found.underway and found.sectors == {step.after}:
            yield Said(f"partition {step.partition} already has sectors of {format_size(step.after)}")
            return
        if not found.underway:
            _refuse_inside(step, loop, key)
        elif not found.complete:
            _recover(loop, key, found)  # and completes it if that was all that was left
            found = _read_header(loop)
            if not found.underway:
                return
        if found.complete:
            _complete_header(step, loop, key, found)
            yield Said(f"partition {step.partition}: all data were done, and its header is complete now")
            return
        words = (*reencrypt_command(step, resume=found.underway), loop.device)
        for line in follow_program(*words, stdin=key.content, pass_fds=(loop.descriptor,)):
            if isinstance(line, ProgramResult):
                _stop_unless_done(step, line, _read_header(loop))
            elif (progress := _progress(line)) is not None:
                yield Progress(index, *progress)


@contextmanager
def _header_copy(loop: PartitionLoop, found: _Header) -> Iterator[Path]:
    """Yield a file with a copy of the header and its key slots; write it back if the block ends without an
    error. `found`: the header as it is on the disk.

    The journal stays on the disk, so until the new header is there, everything can be done once more.
    """
    copy, slots, _ = found.sizes
    with tempfile.TemporaryDirectory(prefix="aligntool-") as folder, failing_as(Stopped, folder):
        header = Path(folder, "header")
        header.write_bytes(os.pread(loop.descriptor, 2 * copy + slots, 0))
        yield header
        content = header.read_bytes()
        os.fsync(loop.descriptor)  # the data that were recovered, before the header that counts them as done
        for at in (0, copy):  # with a flush between them: one copy is whole at any moment
            _write_durably(loop, content[at : at + copy], at)


def _recover(loop: PartitionLoop, key: Key, found: _Header) -> None:
    """Have cryptsetup repair the area that was being written when it was interrupted: it continues only after
    that. If it was not interrupted, this changes nothing. Raises Stopped, also for a wrong key.

    It works on a copy of the header: it flushes the data only with the header, and before that it wipes the
    journal if this was the last area.
    """
    with _header_copy(loop, found) as header:
        words = (
            "cryptsetup",
            "repair",
            "--batch-mode",
            "--key-file",
            "-",
            "--header",
            str(header),
            loop.device,
        )
        ended = run_program(*words, stdin=key.content, pass_fds=(loop.descriptor,))
        _refuse_wrong_key(ended.code)
        if ended.code:
            raise Stopped(f"cryptsetup repair {how_ended(ended.code)}: {ended.errors.partition(chr(10))[0]}")


def _complete_header(step: ReencryptSectors, loop: PartitionLoop, key: Key, found: _Header) -> None:
    """Complete a header whose data are all done: cryptsetup completes a copy of it, with an empty file as its
    data. Raises Stopped, also for a wrong key; nothing is written then.
    """
    *_, start = found.sizes
    with _header_copy(loop, found) as header:
        data = header.with_name("data")
        with data.open("wb") as file:
            file.truncate(start + MIB)
        words = (*reencrypt_command(step, resume=True), "--header", str(header), str(data))
        ended = run_program(*words, stdin=key.content)
        _refuse_wrong_key(ended.code)
        done = _read_header(loop, str(header))
        if ended.code or done.underway or done.sectors != {step.after} or done.uuid != step.uuid:
            why = ended.errors.partition("\n")[0]
            raise Stopped(
                f"partition {step.partition}: cryptsetup does not complete a copy of the header: {why}"
            )


def _refuse_wrong_key(code: int) -> None:
    if code == _WRONG_KEY:
        raise Stopped("no key slot opens with this key: run the same command again, with the right one")


def _progress(line: str) -> tuple[int, int] | None:
    """Return the bytes done and the total, or None; cryptsetup(8), --progress-json."""
    try:
        progress = json.loads(line)
        return int(progress["device_bytes"]), int(progress["device_size"])
    except (ValueError, KeyError, TypeError):
        return None


def _stop_unless_done(step: ReencryptSectors, ended: ProgramResult, now: _Header) -> None:
    if ended.code or now.underway or now.sectors != {step.after}:
        outcome = f"{how_ended(ended.code)}: {ended.errors.strip()}" if ended.code else "did not finish"
        raise Stopped(f"partition {step.partition}: cryptsetup {outcome}")
