"""The record of an array that is being created: its plan, the progress, and what is needed to undo each step.

A resume knows nothing else: a record has to be durable before the step that it describes begins.

Each record is a JSON file `arrays/UUID.json`. A new version is written to a new file, which is renamed over
the old one. If that folder does not survive a reboot (a live system), the user is warned; only rollback is
lost.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from aligntool.audit.wording import shell_word
from aligntool.change import ArrayPlan, array_plan, digest, from_json, to_json
from aligntool.commands import ByHand, by_hand
from aligntool.documents import as_object, check_schema, decode, load_object
from aligntool.errors import Refused, failing_as
from aligntool.linux.files import remove_file, replace_file, sync_folder
from aligntool.linux.in_use import killed_processes
from aligntool.linux.open_files import openers
from aligntool.linux.outputs import make_folder, open_place
from aligntool.linux.programs import inherited
from aligntool.raid.steps_system import STATE, Trace

SCHEMA = "aligntool.record"
VERSION = 1
LONGEST_RECORD = 16 << 20  # bytes; most of a genuine record are the contents of a few system files


@dataclass(frozen=True, slots=True)
class Record:
    """The record of an array. `position`: the next step, or the interrupted one if it has `begun`."""

    file: Path
    plan: ArrayPlan
    position: int = 0
    begun: bool = False
    forward: bool = True  # False: it is being undone
    traces: Mapping[int, Trace] = field(default_factory=dict)

    def trace(self, index: int) -> Trace:
        return self.traces.get(index, {})


def record_file(state: Path, plan: ArrayPlan) -> Path:
    """Return the file of a plan's record, named by the UUID of the new array, which no two plans share, else
    by the digest of the plan.
    """
    made = plan.array
    name = made.uuid.replace(":", "") if made else digest(plan)[:32]
    return state / "arrays" / f"{name}.json"


def save(record: Record) -> None:
    """Write the record; it is durable on return. Raises OSError."""
    body = _body(record)
    text = json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"
    replace_file(record.file, text.encode(), mode=0o600)


def remove_record(record: Record) -> None:
    """Remove the record, because the plan is applied or undone. Raises OSError."""
    remove_file(record.file)


def set_aside(record: Record) -> Path:
    """Give the record of an array that cannot be finished a name by which it is not found. Return its new
    file. Raises Refused.
    """
    aside = replace(record, file=record.file.with_name(f"{record.file.name}.old"))
    with lock_state(record.file.parent.parent), failing_as(Refused, f"{record.file} cannot be renamed"):
        save(aside)
        remove_record(record)
    return aside.file


def find_records(state: Path = STATE) -> tuple[Record, ...]:
    """Return all records. Raises Refused if one cannot be read, and names it."""
    folder = state / "arrays"
    try:
        files = sorted(folder.iterdir())  # Path.glob() returns nothing for a folder that may not be read
    except FileNotFoundError:
        return ()
    except OSError as error:
        text = f"the records of unfinished arrays in {folder} cannot be read: {error.strerror}"
        raise Refused(text, hint="run the same command with sudo") from error
    return tuple(read_record(file) for file in files if file.suffix == ".json")


def read_record(file: Path) -> Record:
    """Read a record. Raises Refused if it is not readable, torn, changed, or of another version."""
    try:
        if file.stat().st_size > LONGEST_RECORD:
            raise ValueError("it is far too large")
        document = load_object(file.read_text(encoding="utf-8"))
        check_schema(document, SCHEMA, VERSION)
        if document.pop("checksum", None) != _checksum(document):
            raise ValueError("it is damaged, or was changed by hand: its checksum does not match")
        return _decode_record(file, document)
    except PermissionError as error:
        raise Refused(f"{file}: {error.strerror}", hint="run the same command with sudo") from error
    except (OSError, ValueError, Refused) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = by_hand(ByHand.RECORDS, "rm", shell_word(str(file)))
        raise Refused(
            f"{file}: the record of an unfinished array cannot be read: {reason}", hint=hint
        ) from error


@dataclass(frozen=True, slots=True)
class _Body:
    schema: str
    version: int
    plan: dict[str, object]
    position: int
    begun: bool
    forward: bool
    traces: dict[str, dict[str, str]]


def _body(record: Record) -> dict[str, object]:
    plan: dict[str, object] = json.loads(to_json(record.plan))
    traces = {str(index): dict(trace) for index, trace in sorted(record.traces.items())}
    return as_object(_Body(SCHEMA, VERSION, plan, record.position, record.begun, record.forward, traces))


def _decode_record(file: Path, document: dict[str, object]) -> Record:
    body = decode(_Body, document, exact=True)
    plan = array_plan(from_json(json.dumps(body.plan)))
    if not -1 <= body.position <= len(plan.steps):
        raise ValueError(f"it is at step {body.position}; the plan has no such step")
    traces = {int(index): trace for index, trace in body.traces.items()}
    if any(not 0 <= index < len(plan.steps) for index in traces):
        raise ValueError("it has traces of steps that the plan does not have")
    return Record(file, plan, body.position, body.begun, body.forward, traces)


def _checksum(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@contextmanager
def lock_state(state: Path = STATE) -> Iterator[None]:
    """Keep other aligntool processes from creating or undoing an array while this one, or a program that it
    started, runs. Create the state directory. Raises Refused.
    """
    with failing_as(Refused, str(state), denied="run the same command with sudo"):
        make_folder(state)
        make_folder(state / "arrays", 0o700)
        sync_folder(state)
        sync_folder(state.parent)
        with open_place(state / "lock") as place:
            descriptor = place.open(os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with inherited(descriptor):
            yield
    except BlockingIOError:
        for user in killed_processes(openers(state / "lock")):
            raise Refused(user.what, hint=user.end) from None
        raise Refused("another aligntool process is creating an array", hint="aligntool status") from None
    finally:
        os.close(descriptor)
