"""Plan the alignment and span experiments and compute their verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd, lcm, log
from statistics import median

from aligntool.audit.report import CONFIDENT, units_touched
from aligntool.errors import Refused
from aligntool.measure.fio import NEAR_A_CORE, Job, Pattern
from aligntool.measure.results import Conditions, busy_machine_text, lowest_drives
from aligntool.measure.unit_design import (
    FALSE_LINE_RATE,
    LEAST_RUNS,
    RandomSource,
    holm,
    loss_p_value,
    welch_p_value,
)
from aligntool.units import KIB, MIB, Extent, align_up, format_about, format_size

# How far the cached part of a drive's mapping table reaches: random reads over doubling spans, and the knee
# beyond which they are slower.

BLOCK = 4 * KIB
SMALLEST_SPAN = 64 * MIB
FALLEN = 0.9  # of the rate over the smaller spans: the cost of a table that is in memory for 9 requests in 10
FEWEST_BEFORE = 2  # spans that agree with each other; with fewer, no full rate is known
STEP = 0.7  # of the rate over the smaller spans: a fall by a third, with an allowance for noise
STEADY = 0.2  # of their median: how much those spans may differ
WHOLE_DRIVE_FACTOR = 5 / 4  # times the largest span: a drive that is no larger counts as measured completely
RESAMPLES = 200
BYTES_PER_MAP_BYTE = 1024  # bytes of the drive for each byte of its mapping table: 4 bytes for each 4 KiB
_FLAT = "no knee"

Curve = Mapping[int, Sequence[float]]
"""Span in bytes -> requests per second of each repeat."""


@dataclass(frozen=True, slots=True)
class Knee:
    """A knee: `below` is the largest span at the full rate, `above` the next larger span, which is slower. If
    both are None, there is no knee or it is unknown, and `why` states the reason.
    """

    below: int | None = None
    above: int | None = None
    share: float = 1.0  # of the full rate, at the span above
    confidence: float = 0.0
    why: str = ""

    @property
    def found(self) -> bool:
        return self.below is not None

    @property
    def flat(self) -> bool:
        """Whether the rate is the same over every measured span."""
        return not self.found and self.why.startswith(_FLAT)

    @property
    def sure(self) -> bool:
        """Whether the confidence reaches the level that a probe requires for a unit."""
        return self.confidence >= CONFIDENT

    @property
    def words(self) -> str:
        """The verdict as text, with "perhaps" if it is not sure."""
        if self.below is not None and self.above is not None:
            place = f"knee between {format_about(self.below)} and {format_about(self.above)}"
            return place if self.sure else f"perhaps a {place}"
        return f"perhaps {self.why}" if self.flat and not self.sure else self.why


def spans_of(size: int, smallest: int = SMALLEST_SPAN) -> tuple[int, ...]:
    """Return the spans to measure: doubling from `smallest` on, and last the whole size."""
    spans = []
    span = smallest
    while span < size:
        spans.append(span)
        span *= 2
    whole = size // BLOCK * BLOCK
    if not spans or whole > spans[-1] * WHOLE_DRIVE_FACTOR:
        spans.append(whole)
    return tuple(spans)


def span_within_knee(knee: Knee) -> int | None:
    """Return the span in bytes at the middle of the knee, to measure next, or None if the knee is narrow
    enough.
    """
    if knee.below is None or knee.above is None or knee.above < knee.below * 3 // 2:
        return None
    return (knee.below + knee.above) // 2 // BLOCK * BLOCK


def jobs_of(
    spans: Sequence[int], path: str, start: int, *, write: bool, runtime_s: float, repeat: int
) -> Iterator[tuple[int, Job]]:
    """Yield the jobs of one repeat, from byte `start` of the path on. Every second repeat runs from the
    largest span to the smallest, so that heat does not affect one end alone.
    """
    pattern = Pattern.RANDOM_WRITE if write else Pattern.RANDOM_READ
    for span in spans if repeat % 2 == 0 else reversed(spans):
        yield (
            span,
            Job(
                name="span",
                path=path,
                pattern=pattern,
                block=BLOCK,
                span=span,
                offset=start,
                depth=32,
                runtime_s=runtime_s,
                ramp_s=runtime_s / 4,
            ),
        )


def knee_of(curve: Curve, cpu: Curve, seen: Conditions, rng: RandomSource) -> Knee:
    """Return the knee of a measurement; `cpu` is that of `cpu_bound_spans`."""
    return doubt_rotating(doubt_limited_by_cpu(find_knee(curve, rng), cpu, seen), seen)


def find_knee(curve: Curve, rng: RandomSource, *, resamples: int = RESAMPLES) -> Knee:
    """Return the knee of a curve; its confidence is the share of resampled curves (bootstrap over the
    repeats) with the same answer.

    If noise leaves that in doubt, a fall by a third or more at one place, from spans that agree with each
    other, is a knee too: noise that leaves those spans within STEADY of each other cannot cause it.
    """
    if min(map(len, curve.values()), default=0) < LEAST_RUNS:
        return Knee(why=f"can't tell: fewer than {LEAST_RUNS} repeats of every span")
    knee = _find_fall(curve, rng, resamples)
    return knee if knee.sure else _find_step(curve, rng, resamples) or knee


def _find_fall(curve: Curve, rng: RandomSource, resamples: int) -> Knee:
    knee = _knee({span: median(rates) for span, rates in curve.items()})
    if knee.below is not None and knee.above is not None and max(curve[knee.above]) >= min(curve[knee.below]):
        return Knee(share=knee.share, why="can't tell: the repeats before and after the knee overlap")
    same = 0
    for _ in range(resamples):
        other = _knee({span: median(rng.choices(rates, k=len(rates))) for span, rates in curve.items()})
        same += (other.below, other.above, other.why) == (knee.below, knee.above, knee.why)
    return Knee(knee.below, knee.above, knee.share, same / resamples, knee.why)


def _find_step(curve: Curve, rng: RandomSource, resamples: int) -> Knee | None:
    """Return the knee at the place that best splits the curve into two levels, or None if that is not a
    step.
    """
    spans = sorted(curve)
    medians = [median(curve[span]) for span in spans]
    split = _best_split(medians)
    full = median(medians[:split] or [0.0])
    smaller = medians[:split]
    if split < FEWEST_BEFORE or median(medians[split:]) > STEP * full:
        return None
    if min(smaller) < (1 - STEADY) * full or max(smaller) > (1 + STEADY) * full:
        return None
    if max(medians[split:]) > (1 - STEADY) * full:
        return None
    before = [rate for span in spans[:split] for rate in curve[span]]
    after = [rate for span in spans[split:] for rate in curve[span]]
    # any of the places could have been the best split
    p_value = welch_p_value(before, after) * (len(spans) - 1)
    resampled = (
        [median(rng.choices(curve[span], k=len(curve[span]))) for span in spans] for _ in range(resamples)
    )
    same = sum(_best_split(rates) == split for rates in resampled)
    share = medians[split] / full
    confidence = max(0.0, min(same / resamples, 1 - p_value))
    return Knee(spans[split - 1], spans[split], share, confidence, "")


def _best_split(rates: Sequence[float]) -> int:
    """Return how many of the first values form one level, so that the logarithms fit two levels best (by
    least squares).
    """
    logs = [log(max(rate, 1e-9)) for rate in rates]
    errors = [
        (_squared_error(logs[:split]) + _squared_error(logs[split:]), split) for split in range(1, len(logs))
    ]
    return min(errors, default=(0.0, 0))[1]


def _squared_error(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def cpu_bound_spans(cpu: Curve) -> tuple[int, ...]:
    """Return the spans over which fio's thread had no time left; `cpu`: percent of a core in each repeat."""
    return tuple(span for span, shares in sorted(cpu.items()) if shares and median(shares) >= NEAR_A_CORE)


def doubt_limited_by_cpu(knee: Knee, cpu: Curve, seen: Conditions) -> Knee:
    """Return a flat knee as unknown if the processor or other programs limited the rates: equal rates over
    every span then say nothing about the drive.
    """
    bound = (
        "CPU-bound, the drive may be faster over small spans"
        if cpu_bound_spans(cpu)
        else busy_machine_text(seen)
    )
    return replace(knee, confidence=0.0, why=f"can't tell: {bound}") if knee.flat and bound else knee


def doubt_rotating(knee: Knee, seen: Conditions) -> Knee:
    """Return the knee of a rotating disk as unknown: its arm moves further over a larger span and takes
    longer.
    """
    rotating = [drive.name for drive in lowest_drives(seen.drives) if drive.rotational]
    if not knee.found or not rotating:
        return knee
    why = (
        f"can't tell: the kernel reports {rotating[0]} as rotating; such disks are slower over larger spans"
        " anyway"
    )
    return Knee(share=knee.share, why=why)


def _knee(rates: Mapping[int, float]) -> Knee:
    spans = sorted(rates)
    full: list[float] = []
    for index, span in enumerate(spans):
        if full and rates[span] < FALLEN * median(full):
            share = rates[span] / median(full)
            if len(full) < FEWEST_BEFORE:
                return Knee(share=share, why="can't tell: the rate over the smallest spans is not steady")
            recovered = [larger for larger in spans[index:] if rates[larger] >= FALLEN * median(full)]
            if recovered:
                return Knee(share=share, why="can't tell: the rate falls and rises again")
            return Knee(spans[index - 1], span, share, 0.0, "")
        full.append(rates[span])
    if spans and min(full) * FALLEN > 0 and max(full) * FALLEN > min(full):
        return Knee(why="can't tell: the rates differ, but without a clear fall")
    return Knee(why=f"{_FLAT} up to {format_about(spans[-1] if spans else 0)}")


def mapped_bytes(host_memory: int) -> int:
    """Return how many bytes of the drive the mapping table in a buffer of `host_memory` bytes covers."""
    return host_memory * BYTES_PER_MAP_BYTE


# The starts on the disk from which the same load is run, to compare them.

OLD_START = 63 * KIB // 2  # sector 63 of 512 bytes, the former start of the first partition
RESIDUES = 8  # of a unit that are tried at most
RANDOM_BLOCK = 4 * KIB
SEQUENTIAL_BLOCK = 128 * KIB
_OLD_TITLE = "as sector 63"
# from the aligned start to the control, which is as well aligned: any difference there is noise
_CONTROL = MIB


@dataclass(frozen=True, slots=True)
class Place:
    """A start to measure from, in bytes of the disk."""

    title: str
    start: int
    residue: int  # bytes past the last boundary of the unit
    control: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    pattern: Pattern
    block: int  # bytes
    depth: int

    @property
    def title(self) -> str:
        kind = "sequential" if self.pattern.sequential else "random"
        verb = "write" if self.pattern.writes else "read"
        return f"{kind} {verb}, {format_size(self.block)} QD{self.depth}"


@dataclass(frozen=True, slots=True)
class Run:
    load: Load
    place: Place
    job: Job


def loads_of(*, writes: bool, depth: int) -> tuple[Load, ...]:
    kinds = [(Pattern.RANDOM_READ, RANDOM_BLOCK), (Pattern.RANDOM_WRITE, RANDOM_BLOCK)]
    kinds += [(Pattern.READ, SEQUENTIAL_BLOCK), (Pattern.WRITE, SEQUENTIAL_BLOCK)]
    return tuple(Load(pattern, block, depth) for pattern, block in kinds if writes or not pattern.writes)


MOST_RUNS = 10_000
"""Most runs that a result may have: at a second each they take hours."""


def refuse_too_small(size: int, unit: int, sector: int, only: int | None) -> None:
    """Raise Refused if `size` bytes are too few at any place on the disk, before a file is filled in vain."""
    places_of(Extent(lcm(MIB, unit), size), unit, sector, only)


def places_of(
    room: Extent, unit: int, sector: int, only: int | None = None, *, every: bool = False
) -> tuple[Place, ...]:
    """Return the starts to measure: an aligned one, a control that is as well aligned, sector 63, and the
    residues of the unit.

    `room`: bytes of the disk. Sector 63 is omitted if sectors are larger than 512 bytes. `only`: this start
    of a disk instead of sector 63 and the residues. `every`: the residues of all sectors, not of each eighth
    of the unit. Raises Refused if no start is misaligned, or if there is too little room.
    """
    base = align_up(max(room.start, 1), lcm(MIB, unit))
    control = base + align_up(_CONTROL, unit)
    places = [Place("aligned, as 2048", base, 0), Place("as well aligned", control, 0, control=True)]
    places += (
        _misaligned_places(base, unit, sector, every=every)
        if only is None
        else [_single_place(only, base, unit, sector)]
    )
    if len(places) == 2:
        hint = f"--unit {format_size(4 * max(unit, sector))} for a larger one"
        why = f"because sectors are {format_size(sector)}"
        raise Refused(f"every start is on the boundary of a unit of {format_size(unit)}, {why}", hint=hint)
    last = max(place.start for place in places)
    if last + 16 * SEQUENTIAL_BLOCK > room.end:
        # enough for these starts wherever the room begins
        enough = max(256 * MIB, align_up(last - base + lcm(MIB, unit) + 16 * SEQUENTIAL_BLOCK, MIB))
        hint = f"name something larger, or use --size {format_size(enough)} for a folder"
        raise Refused(f"{format_size(room.length)} is too small to start at several places", hint=hint)
    return tuple(places)


def _misaligned_places(base: int, unit: int, sector: int, *, every: bool) -> Iterator[Place]:
    old = OLD_START % unit if OLD_START % sector == 0 else 0
    if old:
        yield Place(_OLD_TITLE, base + OLD_START, old)
    step = sector if every else max(sector, unit // RESIDUES)
    for residue in range(step, unit, step):
        if residue != old:
            yield Place(f"{format_size(residue)} past", base + residue, residue)


def _single_place(start: int, base: int, unit: int, sector: int) -> Place:
    if start % sector:
        raise Refused(f"no partition can start at {format_size(start)}: sectors are {format_size(sector)}")
    if start % unit == 0:
        words = (
            f"{format_size(start)} is on the boundary of a unit of {format_size(unit)}, like the aligned"
            " start"
        )
        raise Refused(words, hint="--start 32256 is sector 63; without --start all of them are tried")
    title = _OLD_TITLE if start == OLD_START else f"at {format_size(start)}"
    return Place(title, base + (start if start < MIB else start % unit), start % unit)


def refuse_too_many(runs: int) -> None:
    """Raise Refused if there are more runs than a result may have."""
    if runs > MOST_RUNS:
        hint = "use fewer --repeats, or omit --every to try only each eighth of the unit"
        raise Refused(f"that is {runs} runs, but a result holds at most {MOST_RUNS}", hint=hint)


def runs_of(
    places: Sequence[Place],
    loads: Sequence[Load],
    room: Extent,
    path: str,
    shift: int,
    runtime_s: float,
    repeat: int,
) -> Iterator[Run]:
    """Yield the runs of one repeat: every load from every start. The starts take turns, and each repeat
    begins with another start.

    `shift`: the byte of the disk at which the file or device at `path` begins.
    """
    length = room.end - max(place.start for place in places)
    for load in loads:
        turn = repeat % len(places)
        span = length // load.block * load.block
        for place in (*places[turn:], *places[:turn]):
            yield Run(
                load,
                place,
                Job(
                    name="alignment",
                    path=path,
                    pattern=load.pattern,
                    block=load.block,
                    span=span,
                    offset=place.start - shift,
                    depth=load.depth,
                    runtime_s=runtime_s,
                ),
            )


# The cost of a misaligned start: the same load from several starts, predicted and measured.

RATE_THRESHOLD = 0.95  # of the aligned rate: a start that keeps more loses too little to be worth a move


class AlignmentVerdict(StrEnum):
    """The verdicts on a start, and on all of them."""

    MATTERS = "matters here"
    DOES_NOT = "does not matter here"
    NOT_FOR_READS = "does not matter for reads; writes were not measured"  # of all rows together only
    CANNOT_TELL = "can't tell"


@dataclass(frozen=True, slots=True)
class Rate:
    """One run: requests per second, and the percent of a core that fio's thread used (None: an older file
    lacks it).
    """

    load: Load
    place: Place
    repeat: int
    iops: float
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One load from one start, compared with the aligned one. Ratios are of pairs of runs of the same
    repeat.
    """

    load: Load
    place: Place
    predicted: float  # of the aligned rate
    ratio: float  # median
    low: float
    high: float
    noise: tuple[float, float]  # lowest and highest ratio of the control, which is as well aligned
    word: AlignmentVerdict
    why: str
    cpu: float | None = None  # percent of a core, median of the runs
    aligned_cpu: float | None = None

    @property
    def cpu_bound(self) -> bool:
        """Whether fio's thread had no time left: it cannot submit more requests then, whatever the start."""
        return max(self.cpu or 0, self.aligned_cpu or 0) >= NEAR_A_CORE


def predicted(load: Load, residue: int, unit: int) -> float:
    """Return the remaining share of the aligned rate if a request costs the number of units that it touches.

    For random writes of r bytes this is the article's 1/(1 + p), with p the share of requests that straddle a
    boundary: for r = 4 KiB it is 1/2 with a unit of 4 KiB, 4/5 with 16 KiB, 8/9 with 32 KiB.
    """
    return _touched(load.block, 0, unit) / _touched(load.block, residue, unit)


def _touched(block: int, residue: int, unit: int) -> float:
    """Return the number of units that a request touches, on average over consecutive requests."""
    period = unit // gcd(block, unit)
    return sum(units_touched(block, unit, residue + index * block) for index in range(period)) / period


def judge_rates(rates: Sequence[Rate], unit: int) -> tuple[Row, ...]:
    """Return one row for each load and each start except the aligned one."""
    rows: list[tuple[Row, list[float]]] = []
    for load in dict.fromkeys(rate.load for rate in rates):
        of_load = [rate for rate in rates if rate.load == load]
        places = list(dict.fromkeys(sorted((rate.place for rate in of_load), key=lambda place: place.start)))
        aligned = next((place for place in places if not place.residue and not place.control), None)
        control = next((place for place in places if place.control), None)
        if aligned is None or control is None:
            continue
        noise = _ratios(of_load, control, aligned)
        rows += [_judged_row(of_load, place, aligned, unit, noise) for place in places if place.residue]
    return _without_chance_losses(rows)


def doubt_rows_of_busy_machine(rows: Sequence[Row], seen: Conditions) -> tuple[Row, ...]:
    """Return the rows, with "does not matter" as "can't tell" if the machine was busy: a busy machine makes
    all starts equally fast, too.
    """
    why = busy_machine_text(seen)
    if not why:
        return tuple(rows)
    return tuple(
        replace(row, word=AlignmentVerdict.CANNOT_TELL, why=why)
        if row.word is AlignmentVerdict.DOES_NOT
        else row
        for row in rows
    )


def _without_chance_losses(rows: Sequence[tuple[Row, Sequence[float]]]) -> tuple[Row, ...]:
    """Return the rows, with each loss that may be chance as "can't tell".

    Of 36 rows one may lose in every repeat by chance. A loss must therefore be significant among so many rows
    (a one-sided t-test of the logarithms, Holm's correction), and a load that loses from one start must also
    lose from starts that are off more boundaries.
    """
    measured = [ratios for _, ratios in rows if len(ratios) >= LEAST_RUNS]
    p_values = iter(holm([loss_p_value(ratios) for ratios in measured]))
    checked = []
    for row, ratios in rows:
        p_value = next(p_values) if len(ratios) >= LEAST_RUNS else 1.0
        if row.word is AlignmentVerdict.MATTERS and p_value > FALSE_LINE_RATE:
            why = (
                f"slower in every repeat, but among {len(measured)} rows that is chance in {p_value:.0%} of"
                " cases"
            )
            row = replace(row, word=AlignmentVerdict.CANNOT_TELL, why=why)
        elif row.word is AlignmentVerdict.MATTERS and (
            other := _contradiction(row, [listed for listed, _ in rows])
        ):
            why = (
                f"the start {other.place.title} is off every boundary that this one is off, and loses nothing"
            )
            row = replace(row, word=AlignmentVerdict.CANNOT_TELL, why=why)
        checked.append(row)
    return tuple(checked)


def _contradiction(row: Row, rows: Sequence[Row]) -> Row | None:
    """Return a row that loses nothing although its start is off all boundaries that the start of `row` is
    off, or None.

    A start off some power of two is off all larger ones, too: 6 KiB is off every boundary that 4 KiB is off.
    """
    power = row.place.residue & -row.place.residue
    worse = (
        other
        for other in rows
        if other.load == row.load and other.place.residue & -other.place.residue <= power
    )
    return next((other for other in worse if other.ratio >= RATE_THRESHOLD), None)


def _ratios(rates: Sequence[Rate], place: Place, aligned: Place) -> list[float]:
    """Return the ratios of the rates from `place` to those from `aligned`, one for each repeat that has
    both.
    """
    by_repeat = {rate.repeat: rate.iops for rate in rates if rate.place == aligned}
    known = (rate for rate in rates if rate.place == place and by_repeat.get(rate.repeat, 0) > 0)
    return sorted(rate.iops / by_repeat[rate.repeat] for rate in known)


def _judged_row(
    rates: Sequence[Rate], place: Place, aligned: Place, unit: int, noise: Sequence[float]
) -> tuple[Row, list[float]]:
    """Return the row of a start with its ratios. Equal rates that the processor limits do not show that the
    drive is equally fast.
    """
    load = rates[0].load
    ratios = _ratios(rates, place, aligned)
    used = [
        [rate.cpu for rate in rates if rate.place == start and rate.cpu is not None]
        for start in (place, aligned)
    ]
    cpu, aligned_cpu = (median(percents) if percents else None for percents in used)
    row = Row(
        load,
        place,
        predicted(load, place.residue, unit),
        0.0,
        0.0,
        0.0,
        (0.0, 0.0),
        AlignmentVerdict.CANNOT_TELL,
        f"fewer than {LEAST_RUNS} repeats",
        cpu,
        aligned_cpu,
    )
    if min(len(ratios), len(noise)) < LEAST_RUNS:
        return row, ratios
    word, why = _verdict(ratios, noise)
    if word is AlignmentVerdict.DOES_NOT and row.cpu_bound:
        word = AlignmentVerdict.CANNOT_TELL
        why = "CPU-bound: the drive may be faster, and may then differ"
    ends = (noise[0], noise[-1])
    row = replace(row, ratio=median(ratios), low=ratios[0], high=ratios[-1], noise=ends, word=word, why=why)
    return row, ratios


def _verdict(ratios: Sequence[float], noise: Sequence[float]) -> tuple[AlignmentVerdict, str]:
    """Return the verdict on ratios, and its reason. Every repeat must agree, and a loss must be larger than
    the difference among the repeats and than that of two aligned starts.
    """
    lost = 1 - median(ratios)
    scatter = max(noise[-1] - noise[0], ratios[-1] - ratios[0])
    if ratios[-1] < min(RATE_THRESHOLD, noise[0]) and lost > scatter:
        return (
            AlignmentVerdict.MATTERS,
            f"every repeat is slower, by {lost:.0%}, than two aligned starts differ",
        )
    if noise[0] < RATE_THRESHOLD or noise[-1] > 1 / RATE_THRESHOLD:
        return (
            AlignmentVerdict.CANNOT_TELL,
            f"two aligned starts also differ, {noise[0]:.2f} to {noise[-1]:.2f}",
        )
    if ratios[0] > RATE_THRESHOLD:
        return (
            AlignmentVerdict.DOES_NOT,
            f"every repeat keeps more than {RATE_THRESHOLD:.0%} of the aligned rate",
        )
    return AlignmentVerdict.CANNOT_TELL, "the repeats do not agree; more or longer repeats might"


def overall_verdict(rows: Sequence[Row]) -> AlignmentVerdict:
    """Return the verdict over all rows: whether any load loses from any start."""
    words = {row.word for row in rows}
    if AlignmentVerdict.MATTERS in words:
        return AlignmentVerdict.MATTERS
    if words != {AlignmentVerdict.DOES_NOT}:
        return AlignmentVerdict.CANNOT_TELL
    return (
        AlignmentVerdict.DOES_NOT
        if any(row.load.pattern.writes for row in rows)
        else AlignmentVerdict.NOT_FOR_READS
    )


def matters_for(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the titles of the loads that lose from a start."""
    return tuple(dict.fromkeys(row.load.title for row in rows if row.word is AlignmentVerdict.MATTERS))


def overall_text(rows: Sequence[Row]) -> str:
    """Return the verdict over all rows as text, with the loads for which alignment matters."""
    return ": ".join(word for word in (overall_verdict(rows).value, "; ".join(matters_for(rows))) if word)
