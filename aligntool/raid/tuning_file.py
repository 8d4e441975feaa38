"""What a sweep measured, as a file, and whether it is about this array.

In: a Tuning, or the text of a file that anybody may have written. Out: text; a Tuning, or Refused with one sentence;
why a measurement does not count here. Alone because a figure that was measured on other drives, for another level or
another workload, is no evidence.

The file is JSON, described in docs/raid.md, "The result file".
"""

import json
from collections.abc import Mapping, Sequence

from aligntool.errors import Refused
from aligntool.inventory import Disk
from aligntool.plan import RaidGoal
from aligntool.raid.levels import LEVELS, WORKLOADS
from aligntool.raid.tuning import Identity, Sample, Tuning
from aligntool.strict_json import Table, as_object, read_table

SCHEMA = "aligntool.raid-tune"
VERSION = 1
LONGEST = 4 << 20  # bytes of a file


def tuning_text(tuning: Tuning, verdict: Mapping[str, object] | None = None) -> str:
    """`verdict` is for readers of the file; aligntool itself judges the samples anew."""
    body = as_object(tuning) | {"conditions": dict(tuning.conditions)}
    return json.dumps({"schema": SCHEMA, "version": VERSION, **body, "verdict": verdict}, indent=1) + "\n"


def parse_tuning(text: str) -> Tuning:
    """Raises Refused, naming what is wrong."""
    try:
        top = read_table(text)
        if top.word("schema") != SCHEMA:
            raise ValueError("it is no result of raid tune")
        if top.whole("version") != VERSION:
            raise ValueError(f"it has version {top.whole('version')}, and this aligntool reads {VERSION}")
        return _tuning(top)
    except ValueError as error:
        raise Refused(f"the measurement cannot be used: {error}", hint="aligntool raid tune -h") from None


def _tuning(top: Table) -> Tuning:
    tuning = Tuning(
        level=top.choice("level", tuple(LEVELS)),
        layout=top.word("layout"),
        workload=top.choice("workload", WORKLOADS),
        database_page=top.whole("database_page"),
        bitmap=top.word("bitmap"),
        members=tuple(_identity(each) for each in top.rows("members")),
        span=top.whole("span"),
        runtime_s=top.number("runtime_s"),
        complete=top.flag("complete"),
        conditions=tuple((name, str(said)) for name, said in top.table("conditions").values.items()),
        samples=tuple(_sample(each) for each in top.rows("samples")),
    )
    if len({(sample.round, sample.chunk, sample.shape) for sample in tuning.samples}) != len(tuning.samples):
        raise ValueError("a load is told twice for one array of one round")
    return tuning


def _identity(row: Table) -> Identity:
    return Identity(
        name=row.word("name"),
        model=row.maybe_word("model"),
        serial=row.maybe_word("serial"),
        wwn=row.maybe_word("wwn"),
        size=row.maybe_whole("size"),
        firmware=row.maybe_word("firmware"),
        read=row.maybe_whole("read"),
        write=row.maybe_whole("write"),
    )


def _sample(row: Table) -> Sample:
    chunk = row.whole("chunk")
    if not chunk:
        raise ValueError("a chunk of no bytes")
    return Sample(
        round=row.whole("round"),
        chunk=chunk,
        shape=row.word("shape"),
        read=row.whole("read"),
        write=row.whole("write"),
        cpu=row.number("cpu"),
    )


def why_not_here(
    tuning: Tuning, disks: Sequence[Disk], goal: RaidGoal, layout: str, bitmap: str
) -> tuple[str, ...]:
    """Every reason why it is not about this array; (): it is."""
    asked = (
        ("level", LEVELS[tuning.level].title, LEVELS[goal.level].title),
        ("layout", tuning.layout or "none", layout or "none"),
        ("workload", tuning.workload, goal.workload),
        ("bitmap", tuning.bitmap, bitmap),
    )
    reasons = [f"its {what} was {then}, and here it is {now}" for what, then, now in asked if then != now]
    if tuning.workload == "database" and tuning.database_page != goal.database_page:
        reasons.append(
            f"its database pages had {tuning.database_page} bytes, and here they have {goal.database_page}"
        )
    then = {member.key: member.name for member in tuning.members}
    now = {identity_of(disk).key: disk.name for disk in disks}
    strange = [name for key, name in now.items() if key not in then or not any(key)]
    gone = [name for key, name in then.items() if key not in now]
    if strange:
        reasons.append(f"{', '.join(strange)} took no part in it")
    if gone:
        reasons.append(f"{', '.join(gone)}, as it was called there, is not here")
    return tuple(reasons)


def identity_of(disk: Disk) -> Identity:
    return Identity(disk.name, disk.model, disk.serial, disk.wwn, disk.size, disk.firmware)
