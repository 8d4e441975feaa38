"""Steps on LUKS2: check the content, and re-encrypt by cryptsetup."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aligntool.audit.wording import command, layer_name
from aligntool.change import Event, Plan, Progress, Said
from aligntool.errors import Refused, Stopped
from aligntool.formats.layers import read_layers
from aligntool.formats.reader import Reader
from aligntool.formats.smallest_units import smallest_unit
from aligntool.linux.lock import lock_disk
from aligntool.linux.luks import open_luks
from aligntool.linux.process import Ended, follow_program, how_ended, run_program
from aligntool.linux.users import PartitionLoop, partition_loop
from aligntool.raid.commands import reencrypt_command
from aligntool.steps import ReencryptSectors
from aligntool.units import Extent, format_size

# Whether the content works on larger sectors: only content that is known to do so is accepted. A loop device over the
# partition of a locked disk is not open elsewhere.


def content_problems(reader: Reader, size: int, sector: int) -> Iterator[str]:
    """Yield why the content in the `size` bytes of the reader may not work on sectors of this size."""
    layers = read_layers(reader, Extent(0, size))
    if len(layers) != 1:
        yield f"{' and '.join(map(layer_name, layers)) or 'nothing'} is recognised inside: required sectors unknown"
        return
    unit = smallest_unit(reader, layers[0])
    if not unit.fits(sector):
        yield f"{layer_name(layers[0])} inside {unit.words}: it would not work on sectors of {format_size(sector)}"


Look = Callable[[PartitionLoop, bytes, int], tuple[str, ...]]
"""Open the content with its key, and return why it may not work on sectors of that size. Raises Refused."""


def look_inside(loop: PartitionLoop, key: bytes, sector: int) -> tuple[str, ...]:
    """Open the LUKS2 read-only, and return why its content may not work on these sectors. Raises Refused if it cannot
    be opened.
    """
    with open_luks(loop.device, key, (loop.descriptor,)) as reader:
        return tuple(content_problems(reader, reader.size, sector))


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a LUKS2, and the function that checks the content with it."""

    content: bytes = b""
    look: Look = look_inside


NO_KEY = Key()


# The re-encryption. Its progress is in the header, which only cryptsetup writes.

_REENCRYPTING = "online-reencrypt"  # LUKS2 specification, 3.6: requirements; followed by "-v2" and the like


@dataclass(frozen=True, slots=True)
class _Header:
    uuid: str
    sectors: frozenset[int]
    underway: bool
    unknown: tuple[str, ...]  # requirements that a change must not ignore


def _read_header(loop: PartitionLoop) -> _Header:
    """Read the LUKS2 header. Raises Stopped if cryptsetup cannot read it."""
    uuid = run_program("cryptsetup", "luksUUID", loop.device, pass_fds=(loop.descriptor,))
    dump = run_program("cryptsetup", "luksDump", "--dump-json-metadata", loop.device, pass_fds=(loop.descriptor,))
    try:
        tree = json.loads(dump.output)
        segments = [segment for segment in tree["segments"].values() if not segment.get("flags")]
        mandatory = tuple(tree["config"].get("requirements", {}).get("mandatory", ()))
        sectors = frozenset(int(segment["sector_size"]) for segment in segments if segment["type"] == "crypt")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Stopped(f"cryptsetup does not read the header: {dump.last_words[-200:] or error}") from error
    known = tuple(word for word in mandatory if word.startswith(_REENCRYPTING))
    return _Header(uuid.output.strip(), sectors, bool(known), tuple(word for word in mandatory if word not in known))


def refuse_unfit(plan: Plan, key: Key) -> None:
    """Raise Refused if reading shows that a step is impossible: a wrong key, or content that needs small sectors."""
    for step in plan.steps:
        if isinstance(step, ReencryptSectors):
            with _attached(plan, step) as loop:
                found = _read_header(loop)
                if found.underway and step.after not in found.sectors:
                    text = f"partition {step.partition} is being re-encrypted for another purpose than larger sectors"
                    raise Refused(text, hint="sudo cryptsetup reencrypt --resume-only PARTITION", code="in-flight")
                if not found.underway:  # otherwise it was begun before and its record is lost, and it is continued
                    _refuse_inside(step, loop, key)


def refuse_begun(plan: Plan) -> None:
    """Raise Refused if any data was re-encrypted, which cannot be undone."""
    for step in plan.steps:
        if isinstance(step, ReencryptSectors):
            with _attached(plan, step) as loop:
                found = _read_header(loop)
            if found.underway or step.after in found.sectors:
                text = f"partition {step.partition} was re-encrypted, wholly or in part, which cannot be undone"
                raise Refused(text, hint=command("resume", plan.disk.path))


def _refuse_inside(step: ReencryptSectors, loop: PartitionLoop, key: Key) -> None:
    if reasons := key.look(loop, key.content, step.after):
        text = "\n".join(f"partition {step.partition}: {reason}" for reason in reasons)
        raise Refused(text, hint="aligntool explain AT406", code="layer-fixed", subject=f"partition {step.partition}")


@contextmanager
def _attached(plan: Plan, step: ReencryptSectors) -> Iterator[PartitionLoop]:
    path = plan.disk.path
    locked = lock_disk(path, image_sector_size=plan.disk.sector_size)
    with locked, partition_loop(path, step.extent) as loop:
        yield loop


def reencrypt(step: ReencryptSectors, index: int, plan: Plan, key: Key) -> Iterator[Event]:
    """Re-encrypt, or continue an interrupted re-encryption. Raises Stopped, or Refused if nothing was written."""
    with _attached(plan, step) as loop:
        found = _read_header(loop)
        if found.uuid != step.uuid or found.unknown or not found.sectors <= {step.before, step.after}:
            details = ", ".join((found.uuid, *map(str, sorted(found.sectors)), *found.unknown))
            raise Stopped(f"the LUKS2 of partition {step.partition} is not the one in the plan: {details}")
        if not found.underway and found.sectors == {step.after}:
            yield Said(f"partition {step.partition} already has sectors of {format_size(step.after)}")
            return
        if found.underway:
            _recover(loop, key)
        else:
            _refuse_inside(step, loop, key)
        words = (*reencrypt_command(step, resume=found.underway), loop.device)
        for line in follow_program(*words, stdin=key.content, pass_fds=(loop.descriptor,)):
            if isinstance(line, Ended):
                _stop_unless_done(step, line, _read_header(loop))
            elif (progress := _progress(line)) is not None:
                yield Progress(index, *progress)


def _recover(loop: PartitionLoop, key: Key) -> None:
    """Have cryptsetup repair the area that was being written when it was interrupted: it continues only after that. If
    it was not interrupted, this changes nothing. Raises Stopped, also for a wrong key.
    """
    words = ("cryptsetup", "repair", "--batch-mode", "--key-file", "-", loop.device)
    ended = run_program(*words, stdin=key.content, pass_fds=(loop.descriptor,))
    if ended.code:
        raise Stopped(f"cryptsetup repair {how_ended(ended.code)}: {ended.errors.partition(chr(10))[0]}")


def _progress(line: str) -> tuple[int, int] | None:
    """Return the bytes done and the total, or None; cryptsetup(8), --progress-json."""
    try:
        progress = json.loads(line)
        return int(progress["device_bytes"]), int(progress["device_size"])
    except (ValueError, KeyError, TypeError):
        return None


def _stop_unless_done(step: ReencryptSectors, ended: Ended, now: _Header) -> None:
    if ended.code or now.underway or now.sectors != {step.after}:
        outcome = f"{how_ended(ended.code)}: {ended.errors.strip()}" if ended.code else "did not finish"
        raise Stopped(f"partition {step.partition}: cryptsetup {outcome}")
