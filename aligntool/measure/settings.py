"""Measure settings of a running array: set each to several values in turn, run loads, restore all of them."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from aligntool import __version__
from aligntool.audit.arrays import members_of
from aligntool.audit.report import Report
from aligntool.commands import typed
from aligntool.errors import Refused, Stopped, failing_as
from aligntool.inventory import ArrayFacts, Disk
from aligntool.linux.lock import inhibit_sleep
from aligntool.measure.arrays import defer_signals, job_of, ramped, rate_of
from aligntool.measure.fio import fill_job, run_job
from aligntool.measure.run import Cell, Runs, SweepProgress, made_file
from aligntool.measure.schedule import OVERHEAD_S, Target, TargetKind
from aligntool.measure.targets import block_name, mount_of
from aligntool.raid.levels import data_members, level_of
from aligntool.raid.measured import Identity, Load, choose, identity_of, loads_of, span_of, sweep_order
from aligntool.raid.settings import (
    REQUESTS,
    SCHEDULER,
    TRIED,
    Machine,
    SettingSample,
    SettingsTuning,
    bitmap_words,
    loads_for,
    reading_loads,
    values_to_try,
)
from aligntool.raid.steps_settings import Attributes, value_in
from aligntool.units import MIB

# The restoration.

_RESTORE = 'trap "" HUP INT TERM; cat; while [ $# -gt 0 ]; do printf %s "$2" >"$1"; shift 2; done'


@contextmanager
def restored(values: Mapping[str, str]) -> Iterator[None]:
    """Write these values back to their files afterwards, however the block ends. A shell does it, which waits
    for the end of a pipe, so that they are also restored if this process is killed. Raises Stopped.
    """
    words = [word for pair in values.items() for word in pair]
    with failing_as(Refused, "the shell that restores the settings cannot be started"):
        shell = subprocess.Popen(
            ("/bin/sh", "-c", _RESTORE, "sh", *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with defer_signals():
            shell.communicate()
            wrong = [f"{path}: {value}" for path, value in values.items() if value_in(path) != value]
            if wrong:
                raise Stopped(f"these settings could not be restored to: {'; '.join(wrong)}", hint="")


# The plan.


@dataclass(frozen=True, slots=True)
class SettingsSweep:
    """The plan of a sweep over settings. Sizes in bytes, times in seconds."""

    name: str  # the kernel's, of the array
    path: str
    uuid: str
    level: str
    members: tuple[str, ...]  # kernel names of drives or partitions
    identities: tuple[Identity, ...]
    workload: str
    database_page: int
    folder: str  # a file in it is written to and read; "": the array itself is read
    span: int
    repeats: int
    runtime_s: float
    now: dict[str, str]
    tried: dict[str, tuple[str, ...]]  # values by setting
    loads: dict[str, tuple[Load, ...]]
    page: int  # of memory
    bitmap: str  # as `bitmap_words` returns it

    @property
    def cells(self) -> int:
        return self.repeats * sum(len(values) * len(self.loads[name]) for name, values in self.tried.items())

    @property
    def seconds(self) -> float:
        return self.cells * (ramped(self.runtime_s) + OVERHEAD_S)


def plan_settings(
    report: Report,
    disk: Disk,
    *,
    workload: str,
    database_page: int,
    target: Target | None,
    wanted: tuple[str, ...],
    repeats: int,
    runtime_s: float,
    span: int | None,
) -> SettingsSweep:
    """Return the plan of a sweep. `target`: the folder for a file; None: the array is only read. `wanted`:
    the settings to try; () all. Raises Refused.
    """
    facts = disk.array
    if facts is None or not facts.uuid:
        raise Refused(f"the UUID of {disk.path} is unknown", hint=typed("mdadm --detail", disk.path))
    _refuse_busy(disk, facts)
    size = disk.size or 0
    if target:
        _refuse_elsewhere(target, disk)
        size = (target.free or 0) // 2
    loads = loads_of(workload, database_page)
    places = members_of(report.judged)
    drives = [places[name].disk for name in facts.members if name in places]
    attributes = Attributes(disk.name, facts.members)
    here = Machine(os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
                   os.sysconf("SC_PAGE_SIZE"))  # fmt: skip
    readable = ((name, attributes.now(name)) for name in TRIED)
    now = {name: value for name, value in readable if value}
    of_each = {name: loads_for(name, loads if target else reading_loads(loads)) for name in now}
    tried = {
        name: tuple(values_to_try(name, value, attributes.offered(name), len(facts.members), here))
        for name, value in now.items()
        if of_each[name] and (not wanted or name in wanted)
    }
    tried = {name: values for name, values in tried.items() if len(values) > 1}
    if not tried:
        text = f"none of the requested settings of {disk.path} can be measured in this way"
        raise Refused(text, hint="--write-in DIR measures writes, to a file on the array")
    level = level_of(facts.level)
    data = max(data_members(level, len(facts.members), facts.layout or ""), 1)
    room = span_of(size, data, span)
    if room < 8 * MIB:
        raise Refused(f"{disk.path} has too little room to measure", hint="--span 64MiB, or more free space")
    return SettingsSweep(
        name=disk.name,
        path=disk.path,
        uuid=facts.uuid,
        level=facts.level,
        members=facts.members,
        identities=tuple(map(identity_of, drives)),
        workload=workload,
        database_page=database_page,
        folder=target.path if target else "",
        span=room,
        repeats=repeats,
        runtime_s=runtime_s,
        now=now,
        tried=tried,
        loads=of_each,
        page=here.page,
        bitmap=bitmap_words(facts),
    )


def _refuse_busy(disk: Disk, facts: ArrayFacts) -> None:
    """Raise Refused for an array whose rates would not be those of normal operation."""
    busy = facts.sync_action not in (None, "idle", "frozen")
    if facts.degraded or busy or facts.state in ("broken", "suspended"):
        why = f"it is {facts.sync_action}ing" if busy else "a member is missing"
        raise Refused(f"{disk.path} is not measured now: {why}", hint=typed("mdadm --detail", disk.path))


def _refuse_elsewhere(target: Target, disk: Disk) -> None:
    """Raise Refused unless files of the folder are on the array itself, or on a partition of it."""
    found = block_name(target, mount_of(target.path)) if target.kind is TargetKind.FOLDER else None
    if found not in {disk.name, *(part.node for part in disk.partitions)}:
        text = f"{target.named} is not a folder of a file system that is directly on {disk.path}"
        raise Refused(text, hint=typed("findmnt", disk.path))
    if not target.direct:
        raise Refused(f"the file system of {target.named} has no direct I/O", hint="omit --write-in")


# The sweep.


class SettingsRun:
    """A running sweep, with what it has measured so far."""

    def __init__(self, sweep: SettingsSweep) -> None:
        self._sweep = sweep
        self._attributes = Attributes(sweep.name, sweep.members)
        self._samples: list[SettingSample] = []
        self._before: dict[str, str] = {}
        self._fio = ""
        self._runs: Runs | None = None
        self.wrote = False  # settings were changed

    @property
    def complete(self) -> bool:
        return self._runs is not None and self._runs.complete

    def run(self, tell: SweepProgress) -> None:
        """Measure everything, one change at a time: a value that is clearly faster stays while the next
        setting is tried. Raises Refused, Stopped or KeyboardInterrupt, after all settings are restored.
        """
        sweep = self._sweep
        runs = self._runs = Runs(sweep.cells, tell, expected_s=sweep.seconds)
        with ExitStack() as stack:
            stack.enter_context(inhibit_sleep("measuring settings of an array"))
            path = sweep.path
            if sweep.folder:
                path = stack.enter_context(made_file(sweep.folder, sweep.span))
                runs.say("the file is filled")
                run_job(fill_job(path, sweep.span))
            stack.enter_context(restored(self._attributes.values()))
            self.wrote = True
            for run in runs.measure(self._cells(path, runs)):
                rates = (rate_of(run.measured.read), rate_of(run.measured.write))
                self._samples.append(SettingSample(*run.key, *rates, run.measured.thread_cpu))
                self._fio = run.measured.fio_version

    def _cells(self, path: str, runs: Runs) -> Iterator[Cell[tuple[int, str, str, str]]]:
        sweep = self._sweep
        for name, values in sweep.tried.items():
            now = self._attributes.now(name) or ""
            self._before[name] = now
            taken = tuple(value for value in values if value == now or self._attributes.set(name, value))
            runs.skip((len(values) - len(taken)) * len(sweep.loads[name]) * sweep.repeats)
            for number, value in sweep_order(taken, sweep.repeats):
                self._set(name, value)
                for load in sweep.loads[name]:
                    job = job_of(load, path, sweep.span, sweep.runtime_s)
                    words = f"round {number + 1}, {name} {value}: {load.name}"
                    yield Cell((number, name, value, load.name), words, job)
                if self._attributes.now(name) != value:
                    raise Stopped(f"another program has changed {name} of {sweep.path} meanwhile", hint="")
            samples = [sample for sample in self._samples if sample.setting == name]
            self._set(name, choose(samples, now).faster or now)

    def _set(self, name: str, value: str) -> None:
        sweep = self._sweep
        if not self._attributes.set(name, value):
            raise Stopped(f"{name} of {sweep.path} cannot be set to {value}", hint="")
        if name == SCHEDULER and value == self._before[name] and REQUESTS in sweep.now:
            self._attributes.set(REQUESTS, sweep.now[REQUESTS])  # a scheduler brings its own

    def tuning(self) -> SettingsTuning:
        """Return what was measured, as the value to save."""
        sweep = self._sweep
        return SettingsTuning(
            array=sweep.uuid,
            level=sweep.level,
            members=sweep.identities,
            workload=sweep.workload,
            database_page=sweep.database_page,
            target="file" if sweep.folder else "array",
            span=sweep.span,
            runtime_s=sweep.runtime_s,
            complete=self.complete,
            conditions={"aligntool": __version__, "kernel": os.uname().release, "fio": self._fio},
            before=self._before,
            samples=tuple(self._samples),
        )
