"""Settings of a running array: what is tried, what was measured, and the udev rule that keeps them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from aligntool.audit.arrays import REDUNDANT
from aligntool.documents import WIRE, as_object, check_schema, decode, load_object
from aligntool.errors import Refusal, Refused
from aligntool.inventory import ARRAY_SETTINGS, MEMBER_SETTINGS, ArrayFacts, Disk, rule_path
from aligntool.raid.boot import BACKUP
from aligntool.raid.chunks import Evidence
from aligntool.raid.levels import WORKLOADS
from aligntool.raid.measured import Choice, Identity, Load, choose, identity_of, in_order
from aligntool.steps import ApplySettings, SettingChange, WriteFile
from aligntool.units import KIB, MIB, format_size

# What is tried. A setting is named by its place in sysfs, below its device, as in a udev rule.

WORKERS = "md/group_thread_cnt"
CACHE = "md/stripe_cache_size"
SCHEDULER = "queue/scheduler"
REQUESTS = "queue/nr_requests"
READ_AHEAD = "queue/read_ahead_kb"
TRIED = (WORKERS, CACHE, SCHEDULER, REQUESTS, READ_AHEAD)
"""In this order: a scheduler brings its own nr_requests."""
_VALUES = {
    WORKERS: (0, 2, 4, 8),
    CACHE: (256, 1024, 4096, 8192),
    REQUESTS: (64, 256, 1024),
    READ_AHEAD: (128, 512, 2048, 8192),
}
_SHARE_OF_MEMORY = 8  # the stripe cache may take this part of it
_CACHED = (
    Load("read", MIB, 1, cached=True),
    Load("read", MIB, 1, threads=4, cached=True),
    Load("randread", 16 * KIB, 1, threads=4, cached=True),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What limits the values that are worth a try. Memory and pages in bytes."""

    processors: int
    memory: int
    page: int


def cache_memory(value: int, members: int, page: int) -> int:
    """Return the memory of a stripe cache (Documentation/admin-guide/md.rst, stripe_cache_size)."""
    return value * members * page


def values_to_try(name: str, now: str, offered: Sequence[str], members: int, here: Machine) -> list[str]:
    """Return the values of a setting, with the present one. `offered`: by the kernel, for a scheduler."""
    numbers = _VALUES.get(name, ())
    if name == WORKERS:
        numbers = tuple(number for number in numbers if number <= here.processors)
    if name == CACHE:
        most = here.memory // _SHARE_OF_MEMORY
        numbers = tuple(number for number in numbers if cache_memory(number, members, here.page) <= most)
    return in_order((now, *offered, *map(str, numbers)))


def reading_loads(loads: Sequence[Load]) -> tuple[Load, ...]:
    """Return the loads without writes: mixed ones only read."""
    only_read = {"randrw": "randread"}
    changed = (replace(load, pattern=only_read.get(load.pattern, load.pattern)) for load in loads)
    return tuple(dict.fromkeys(replace(load, read_share=100) for load in changed if not load.writes))


def loads_for(name: str, loads: Sequence[Load]) -> tuple[Load, ...]:
    """Return the loads that a setting can affect. Only reads through the page cache read ahead; reads of an
    array that lacks no member do not use its stripe cache (raid5.c, chunk_aligned_read).
    """
    if name == READ_AHEAD:
        return _CACHED
    writes = any(load.writes for load in loads)
    return tuple(loads) if writes or name not in (WORKERS, CACHE) else ()


def bitmap_words(facts: ArrayFacts) -> str:
    """Return the write-intent bitmap of an array and what a bit of it covers; "" if it is unknown, or there
    is nothing to resynchronise.
    """
    if facts.level not in REDUNDANT or facts.bitmap is None:
        return ""
    if facts.bitmap == "none":
        return "no bitmap"
    each = f", {format_size(facts.bitmap_chunk)} per bit" if facts.bitmap_chunk else ""
    return f"{facts.bitmap} bitmap{each}"


# The result file.

SCHEMA = "aligntool.raid-settings"
VERSION = 1
_VALUE = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True, slots=True)
class SettingSample:
    """The result of one load with one value of a setting. Rates in bytes per second."""

    round: int
    setting: str
    value: str
    load: str = field(metadata={WIRE: "shape"})
    read: int
    write: int
    cpu: float = 0.0  # per cent of one core for each thread of fio

    @property
    def rate(self) -> int:
        return self.read + self.write


@dataclass(frozen=True, slots=True)
class SettingsTuning:
    """The samples of a sweep over settings, with the array and the conditions under which they were taken."""

    array: str  # its UUID
    level: str
    members: tuple[Identity, ...]
    workload: str
    database_page: int
    target: str  # what the loads were on: "array", or "file"
    span: int  # bytes that the loads were confined to
    runtime_s: float
    complete: bool
    conditions: dict[str, str]
    before: dict[str, str]  # each setting as it was when other values of it were tried
    samples: tuple[SettingSample, ...]


def choices(tuning: SettingsTuning) -> dict[str, Choice[str]]:
    """Return the choice of each setting that was tried."""
    found = {}
    for name, now in tuning.before.items():
        samples = [sample for sample in tuning.samples if sample.setting == name]
        found[name] = choose(samples, now, what="value", known_as="as it was")
    return found


def faster(tuning: SettingsTuning) -> dict[str, str]:
    """Return the settings of which another value was clearly faster, with that value."""
    found = choices(tuning).items()
    return {name: choice.faster for name, choice in found if choice.faster}


def settings_text(tuning: SettingsTuning) -> str:
    """Return the result file. `verdict` is for its readers; aligntool itself evaluates the samples again."""
    verdict = {
        name: {"verdict": choice.verdict.value, "value": choice.value, "reason": choice.reason}
        for name, choice in choices(tuning).items()
    }
    body = as_object(tuning) | {"verdict": verdict}
    return json.dumps({"schema": SCHEMA, "version": VERSION, **body}, indent=1) + "\n"


def parse_settings(text: str, name: str = "the measurement") -> SettingsTuning:
    """Read a result. `name`: that of its file. Raises Refused with what is wrong in it."""
    try:
        document = load_object(text)
        check_schema(document, SCHEMA, VERSION)
        tuning = decode(SettingsTuning, document)
        _check(tuning)
        return tuning
    except ValueError as error:
        raise Refused(
            f"{name} is not a result of raid tune on an array: {error}", hint="aligntool raid tune -h"
        ) from None


def _check(tuning: SettingsTuning) -> None:
    samples = tuning.samples
    named = {*tuning.before.items(), *((sample.setting, sample.value) for sample in samples)}
    odd = [f"{name}={value}" for name, value in named if name not in TRIED or not _VALUE.fullmatch(value)]
    if odd or tuning.workload not in WORKLOADS:
        raise ValueError(f"unknown setting or workload: {', '.join((*odd, tuning.workload)):.80}")
    if len({(one.round, one.setting, one.value, one.load) for one in samples}) != len(samples):
        raise ValueError("it has the same load twice for one value in one round")


# The udev rule. 63-md-raid-arrays.rules imports MD_UUID, once the array runs; 60-persistent-storage.rules the
# content of a member. What the queue of a partition is, is known by its drive only: "..".

MARK = "# Settings of an md array, as measured by aligntool raid tune."
_ASSIGNED = re.compile(r'ATTR\{(?:\.\./)?([a-z]+/[a-z_]+)\}="([^"]*)"')


def rule_lines(uuid: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the rule that gives an array and its members these settings whenever they appear."""
    event = 'ACTION=="add|change", SUBSYSTEM=="block"'
    member = f'ENV{{ID_FS_TYPE}}=="linux_raid_member", ENV{{ID_FS_UUID}}=="{UUID(uuid.replace(":", ""))}"'
    array = f'KERNEL=="md*", ENV{{DEVTYPE}}=="disk", ENV{{MD_UUID}}=="{uuid}"'
    lines = [MARK, "# To drop them, remove this file: they end with the next boot."]
    for matches, names, up in (
        (array, ARRAY_SETTINGS, ""),
        (f'{member}, ENV{{DEVTYPE}}=="disk"', MEMBER_SETTINGS, ""),
        (f'{member}, ENV{{DEVTYPE}}=="partition"', MEMBER_SETTINGS, "../"),
    ):
        kept = [f'ATTR{{{up}{name}}}="{settings[name]}"' for name in names if name in settings]
        lines += [", ".join((event, matches, *kept))] if kept else []
    return tuple(lines)


def kept_settings(rule: str | None) -> dict[str, str] | None:
    """Return the settings in the text of a rule; None if there is none, or if it is not aligntool's own."""
    if rule is None or not rule.startswith(MARK):
        return None
    lines = (line for line in rule.splitlines() if not line.startswith("#"))
    found = (pair for line in lines for pair in _ASSIGNED.findall(line))
    return {name: value for name, value in found if name in TRIED and _VALUE.fullmatch(value)}


# How a measurement is kept: `raid persist --tuned`.


def refuse_tuned(facts: ArrayFacts, drives: Sequence[Disk], text: str, root: str) -> Iterator[Refusal]:
    """Yield why a measurement cannot be kept for an array. Raises Refused if it is not one."""
    tuning = parse_settings(text)
    path = rule_path(tuning.array)
    if root:
        why = "settings are kept for the running system, in which they were measured"
        yield Refusal("invalid-option", "--tuned", why, "omit --root, or do it in that system")
    if tuning.array != facts.uuid:
        why = f"it was measured on the array with UUID {tuning.array}, and this one has {facts.uuid}"
        yield Refusal("invalid-option", "--tuned", why, "aligntool raid show")
    elif {one.key for one in tuning.members} != {identity_of(disk).key for disk in drives}:
        why = "it was measured with other drives in the array"
        yield Refusal("invalid-option", "--tuned", why, "measure again: aligntool raid tune -h")
    elif facts.rule is not None and kept_settings(facts.rule) is None:
        yield Refusal("file-conflict", path, f"{path} was not written by aligntool", "move it away first")


def settings_steps(facts: ArrayFacts, path: str, text: str) -> Iterator[WriteFile | ApplySettings]:
    """Yield the rule with what a measurement found to be faster, besides what is kept already, and the change
    of the settings that differ now. `text`: of the measurement; "": of none.
    """
    uuid = facts.uuid or ""
    wanted = {**(kept_settings(facts.rule) or {}), **(faster(parse_settings(text)) if text else {})}
    lines = rule_lines(uuid, wanted) if wanted else ()
    if text and wanted and facts.rule != "".join(f"{line}\n" for line in lines):
        yield WriteFile(rule_path(uuid), lines, rule_path(uuid) + BACKUP)
    now = dict(facts.settings)
    order = sorted(wanted.items(), key=lambda item: TRIED.index(item[0]))
    changes = [
        SettingChange(name, now[name], value) for name, value in order if now.get(name, value) != value
    ]
    if changes:
        yield ApplySettings(uuid, path, tuple(changes))


def settings_notes(facts: ArrayFacts, text: str) -> Iterator[str]:
    """Yield what is kept and why, a sentence each."""
    tuning = parse_settings(text)
    better = faster(tuning)
    for name, choice in choices(tuning).items():
        if name in better:
            memory = f"; it takes {choice.value} pages of memory for each of {len(facts.members)} members"
            reason = f"{choice.reason} ({Evidence.MEASURED}){memory if name == CACHE else ''}"
            yield f"{name} {choice.value}: {reason}"
    if not better:
        yield "no setting was clearly faster in the measurement, so none is changed"


def kept_words(facts: ArrayFacts) -> Iterator[str]:
    """Yield which settings are kept, and which of them differ now, a sentence each."""
    now = dict(facts.settings)
    kept = kept_settings(facts.rule) or {}
    same = [f"{name} {value}" for name, value in kept.items() if now.get(name) == value]
    if same:
        yield f"kept settings: {', '.join(same)}"
    for name, value in kept.items():
        if now.get(name) != value:
            yield f"{name} is {now.get(name, 'unknown')}, but {value} is kept"
