"""Under which conditions something was measured, as words for the page.

In: what was kept with the figures. Out: a word and what is to be said under it. Alone because results and experiments
keep the same.
"""

from collections.abc import Iterator

from aligntool.bench.conditions import Conditions
from aligntool.units import format_about


def condition_rows(seen: Conditions) -> Iterator[tuple[str, str]]:
    """What is not known is left out."""
    for drive in seen.drives:
        facts = [
            drive.model, f"firmware {drive.firmware}" if drive.firmware else "", drive.array_level,
            f"link {drive.link}" if drive.link else "",
            f"scheduler {drive.scheduler}" if drive.scheduler else "",
            f"queue depth {drive.queue_depth}" if drive.queue_depth else "",
            _degrees(drive.temperature_c, drive.temperature_after_c),
        ]  # fmt: skip
        yield drive.name, ", ".join(fact for fact in facts if fact) or "nothing known"
    yield from ((word, text) for word, text in _machine(seen) if text)


def _machine(seen: Conditions) -> Iterator[tuple[str, str]]:
    yield "kernel", seen.kernel
    yield "processor", f"{seen.processor or ''} {f'({seen.cores} cores)' if seen.cores else ''}".strip()
    yield "governor", seen.governor or ""
    room = f", {format_about(seen.free)} free" if seen.free is not None else ""
    yield "file system", f"{seen.filesystem}{room}" if seen.filesystem else ""
    if seen.kernel:  # of an older file nothing is known
        yield "caches", "dropped" if seen.caches_dropped else "not dropped"
    yield "fio", seen.fio


def _degrees(before: float | None, after: float | None) -> str:
    if before is None:
        return ""
    return f"{before:g} °C" if after is None else f"{before:g} → {after:g} °C"
