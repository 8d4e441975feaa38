"""The record of an array in the making: which step is done, what was there before."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aligntool.change import Plan, digest, from_json, to_json
from aligntool.documents import as_object, check_schema, decode, load_object
from aligntool.errors import Refused, failing_as
from aligntool.linux.files import remove_file, replace_file, sync_folder
from aligntool.raid.members import array_of

# The record of an array that is being made: its plan, how far it came, and what it takes to undo each step.
#
# It is all that a resume knows: what it says must be on the disk before the step that it is about begins.
#
# Each record is a JSON file `arrays/UUID.json`, written anew beside the old one and put in its place by a
# rename. Where that folder forgets (a live system), the user is told, and nothing is lost but the way back.

STATE = Path("/var/lib/aligntool")
SCHEMA = "aligntool.record"
VERSION = 1
LARGEST = 16 << 20  # bytes; of an honest record a few files of the system are most

Trace = Mapping[str, str]
"""What a step found before it began, for undoing it: docs/crash-safety.md, "Arrays"."""


@dataclass(frozen=True, slots=True)
class Record:
    """`position`: the step that is next, or in the middle of which the work stopped where it has `begun`."""

    file: Path
    plan: Plan
    position: int = 0
    begun: bool = False
    forward: bool = True  # False: it is being taken back
    traces: Mapping[int, Trace] = field(default_factory=dict)

    def trace(self, index: int) -> Trace:
        return self.traces.get(index, {})


def record_file(state: Path, plan: Plan) -> Path:
    """Named by the array's UUID, which no two plans share; without an array by the plan's digest."""
    name = made.uuid.replace(":", "") if (made := array_of(plan.steps)) else digest(plan)[:32]
    return state / "arrays" / f"{name}.json"


def save(record: Record) -> None:
    """Durable when it returns. Raises OSError."""
    body = _body(record)
    text = json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"
    replace_file(record.file, text.encode(), mode=0o600)


def forget(record: Record) -> None:
    """The work is done, or taken back: nothing is unfinished any more. Raises OSError."""
    remove_file(record.file)


def find_records(state: Path = STATE) -> tuple[Record, ...]:
    """All of them. Raises Refused for one that cannot be read, naming it."""
    with failing_as(Refused, str(state)):
        files = sorted((state / "arrays").glob("*.json"))
    return tuple(read_record(file) for file in files)


def read_record(file: Path) -> Record:
    """Raises Refused: not readable, torn, changed, or of another version."""
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError("it is far too large")
        document = load_object(file.read_text(encoding="utf-8"))
        check_schema(document, SCHEMA, VERSION)
        said = document.pop("checksum", None)
        if said != _checksum(document):
            raise ValueError("it is damaged, or was changed by hand: its checksum does not fit")
        return _read(file, document)
    except PermissionError as error:
        raise Refused(f"{file}: {error.strerror}", hint="type the same after sudo") from error
    except (OSError, ValueError, Refused) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        hint = f"mdadm --examine shows what its drives hold; when nothing is needed of them: rm {file}"
        raise Refused(f"{file}: the record of an unfinished array cannot be read: {what}", hint=hint) from error


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


def _read(file: Path, document: dict[str, object]) -> Record:
    body = decode(_Body, document, exact=True)
    plan = from_json(json.dumps(body.plan))
    if not -1 <= body.position <= len(plan.steps):
        raise ValueError(f"it stands at step {body.position}, which the plan does not have")
    traces = {int(index): trace for index, trace in body.traces.items()}
    if any(not 0 <= index < len(plan.steps) for index in traces):
        raise ValueError("it knows of steps that the plan does not have")
    return Record(file, plan, body.position, body.begun, body.forward, traces)


def _checksum(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@contextmanager
def one_at_a_time(state: Path = STATE) -> Iterator[None]:
    """Let no other aligntool make or undo an array meanwhile. Makes the directory. Raise Refused."""
    try:
        (state / "arrays").mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(state)
        sync_folder(state.parent)
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        root = isinstance(error, PermissionError)
        raise Refused(f"{state}: {error.strerror}", hint="type the same after sudo" if root else "") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refused("another aligntool is making an array", hint="aligntool status") from None
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the system's files and the records are."""

    root: Path = Path("/")
    state: Path = STATE

    def of(self, name: str) -> Path:
        """Return the path of a file of the system, below the root."""
        return self.root / name.lstrip("/")
