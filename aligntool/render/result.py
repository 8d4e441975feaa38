"""What became of a plan: the partitions that moved, as the disk shows them now.

In: the plan, and the disk judged anew. Out: a line for each. Alone because it is the answer to "did it work?", and is
taken from the disk and not from the plan.
"""

from collections.abc import Iterator

from aligntool.audit import Judged
from aligntool.plan import Plan
from aligntool.render.lines import Line, Style
from aligntool.render.steps import sector_words
from aligntool.render.table import verdict_words
from aligntool.units import format_size


def result_lines(plan: Plan, judged: Judged) -> Iterator[Line]:
    parts = {partition.number: partition for partition in judged.disk.partitions}
    verdicts = judged.by_partition()
    for place in plan.places:
        if place.before == place.after:
            continue
        part = parts.get(place.number)
        if part is None:
            yield ((f"partition {place.number} is not in the table", Style.BAD),)
            continue
        start, sector_size = part.extent.start, judged.disk.sector_size
        words = (
            f"partition {place.number}: sector {sector_words(start, sector_size)} ({format_size(start)}), "
        )
        yield ((words, Style.PLAIN), *verdict_words(verdicts.get(place.number)))
