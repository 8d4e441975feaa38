"""Whether misaligned partitions can be mended, under the table of an audit.

In: the answers of the planner. Out: lines. Alone because partitions with the same answer are told in one breath.
"""

from collections.abc import Iterator, Mapping, Sequence

from aligntool.realign import Mend
from aligntool.render.lines import Line, Style, wrapped

Mends = Mapping[str, Sequence[Mend]]
"""The answers, by the disk's name."""

MOST_ANSWERS = 12
"""So many different answers are written out for a disk; --json has them all."""

_WORDS = {
    "in-place": ("can be mended in place", Style.GOOD),
    "with-shrink": ("can be mended only with a shrink", Style.DOUBT),
    "not": ("cannot be mended", Style.BAD),
}


def mend_lines(mends: Sequence[Mend], *, width: int) -> Iterator[Line]:
    """One answer a line, with why; and what to type, once for those who share it."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for mend in mends:
        groups.setdefault((mend.answer, mend.why, mend.next), []).append(mend.partition)
    for (answer, why, command), numbers in list(groups.items())[:MOST_ANSWERS]:
        words, style = _WORDS[answer]
        who = f"partition {numbers[0]}" if len(numbers) == 1 else f"partitions {_listed(numbers)}"
        for line in wrapped(f"  {who} {words}: {why}", width, "    "):
            yield ((line, style),)
        if answer != "in-place":  # the finding has that command already
            yield (("    → ", Style.DIM), (command, Style.TYPE))
    if len(groups) > MOST_ANSWERS:
        yield ((f"  … and {len(groups) - MOST_ANSWERS} more answers; --json lists every one", Style.DIM),)


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:MOST_ANSWERS])
    return shown if len(numbers) <= MOST_ANSWERS else f"{shown} and {len(numbers) - MOST_ANSWERS} more"
