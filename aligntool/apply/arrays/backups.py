"""The copies that a work keeps of the files that it changes: one of each file, as it was before the work."""

from collections.abc import Iterator

from aligntool.apply.arrays.editing import backup_of
from aligntool.apply.arrays.record import Record
from aligntool.apply.arrays.site import Site
from aligntool.plan import EditFile, FileStep, Said, WriteFile


def is_kept(step: FileStep, record: Record) -> bool:
    """What the file was before this work is kept by an earlier step of it."""
    others = [(record.plan.steps[at], trace) for at, trace in record.traces.items()]
    return any(
        isinstance(other, EditFile | WriteFile) and other.path == step.path and "after" in trace
        for other, trace in others
    )


def kept_words(record: Record, site: Site) -> Iterator[Said]:
    """Where to find what each file was before, once all is done."""
    for at, trace in sorted(record.traces.items()):
        step = record.plan.steps[at]
        if isinstance(step, EditFile | WriteFile) and (backup := backup_of(step, site, trace)):
            yield Said(f"what {step.path} was before is kept as {backup}")
