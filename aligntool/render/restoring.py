"""A partition table in a few lines, where one is about to be written over another.

In: partitions. Out: lines. Alone because nothing else shows a table by itself.
"""

from collections.abc import Iterator, Sequence

from aligntool.inventory import Partition
from aligntool.render.lines import Line, Style, plain


def table_lines(title: str, partitions: Sequence[Partition]) -> Iterator[Line]:
    yield ((f"{title}:", Style.TITLE),)
    if not partitions:
        yield plain("  no partitions")
    for part in partitions:
        what = part.name or part.type_name or part.type_code
        yield plain(f"  {part.number}: bytes {part.extent.start} to {part.extent.end - 1}, {what}")
