"""Compare two fleets: which machines became worse or better, are unclear, new, or gone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from aligntool.audit.fleet import ErrorCount, Machine, natural_key
from aligntool.documents import check_schema, decode, load_object
from aligntool.errors import Refused

FLEET_SCHEMA = "aligntool.fleet"
FLEET_VERSION = 1


@dataclass(frozen=True, slots=True, order=True)
class State:
    """The result of a machine. A greater one is worse: the first field that differs decides."""

    not_audited: bool
    off_grid: int
    errors: int
    unknown: int
    warnings: int


class Change(StrEnum):
    """What happened to a machine between two reports, the most urgent first."""

    WORSE = "worse"
    UNCLEAR = "unclear"
    NEW = "new"
    BETTER = "better"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ChangedMachine:
    """A machine that changed. `before`, `after`: None if it is new or gone. `errors`: how many more errors of
    a code it has.
    """

    machine: str
    change: Change
    before: State | None
    after: State | None
    errors: tuple[ErrorCount, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetChanges:
    """The machines that changed since an older report, which is `since` as given; the most urgent first."""

    since: str
    machines: tuple[ChangedMachine, ...]
    unchanged: int

    def count(self, change: Change) -> int:
        return sum(each.change is change for each in self.machines)


def state_of(machine: Machine) -> State:
    return State(machine.why is not None, machine.off_grid, machine.errors, machine.unknown, machine.warnings)


def states_of(machines: Iterable[Machine]) -> dict[str, State]:
    """Return the state of each machine by its name; of several with one name, the worst."""
    states: dict[str, State] = {}
    for machine in machines:
        state = state_of(machine)
        states[machine.name] = max(states.get(machine.name, state), state)
    return states


def new_errors(before: Iterable[Machine], after: Iterable[Machine]) -> dict[str, tuple[ErrorCount, ...]]:
    """Return how many more errors of a code each machine has, by its name; nothing for one whose errors are
    not known by their codes, as in the report of an older version.
    """
    old = _errors_of(before)
    more: dict[str, Counter[str]] = {}
    for name, errors in _errors_of(after).items():
        known = old.get(name)
        if errors is not None and known is not None:
            more[name] = errors - known
    return {
        name: tuple(ErrorCount(code, count) for code, count in sorted(each.items()))
        for name, each in more.items()
        if each
    }


def _errors_of(machines: Iterable[Machine]) -> dict[str, Counter[str] | None]:
    """Return the errors of each code by the name of the machine; of several with one name, the most. None:
    not known.
    """
    found: dict[str, Counter[str] | None] = {}
    for machine in machines:
        errors = Counter({each.code: each.count for each in machine.error_codes})
        known = found.get(machine.name, Counter[str]())
        is_known = machine.why is None and errors.total() == machine.errors
        found[machine.name] = known | errors if is_known and known is not None else None
    return found


def compare_fleets(
    since: str,
    before: Mapping[str, State],
    after: Mapping[str, State],
    errors: Mapping[str, tuple[ErrorCount, ...]] = MappingProxyType({}),
) -> FleetChanges:
    """Compare two fleets by the names of their machines. `errors`: of `new_errors`."""
    changed = [
        ChangedMachine(
            name,
            _change_of(before.get(name), after.get(name), new_error=name in errors),
            before.get(name),
            after.get(name),
            errors.get(name, ()),
        )
        for name in sorted(before.keys() | after.keys(), key=natural_key)
        if before.get(name) != after.get(name) or name in errors
    ]
    changed.sort(key=lambda each: each.after or _NO_FINDINGS, reverse=True)  # stable, as the next one
    changed.sort(key=lambda each: list(Change).index(each.change))
    return FleetChanges(since, tuple(changed), len(before.keys() | after.keys()) - len(changed))


_NO_FINDINGS = State(False, 0, 0, 0, 0)


def _change_of(before: State | None, after: State | None, *, new_error: bool = False) -> Change:
    """Return what happened to a machine that changed. It is better only if it was audited before, no number
    rose, and no error is new: what is unknown now may be misaligned.
    """
    if before is None:
        return Change.NEW
    if after is None:
        return Change.GONE
    if after > before:
        return Change.WORSE
    if (
        new_error
        or before.not_audited
        or any(new > old for old, new in zip(_counts(before), _counts(after), strict=True))
    ):
        return Change.UNCLEAR
    return Change.BETTER


def _counts(state: State) -> tuple[int, ...]:
    return state.off_grid, state.errors, state.unknown, state.warnings


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """Return the machines of a document that `aligntool fleet --json` wrote. `name`: of the file, for
    messages. Raises Refused for any other document.
    """
    try:
        found = load_object(text)
        check_schema(found, FLEET_SCHEMA, FLEET_VERSION)
        return decode(tuple[Machine, ...], found.get("machines"), "machines")
    except ValueError as error:
        raise Refused(f"{name} is not a report of aligntool fleet --json: {error}") from None
