"""Rows of the drive database for people."""

from collections.abc import Iterator, Sequence

from aligntool.inventory import KnownGeometry
from aligntool.render.lines import EMPTY, Line, Style, plain, wrapped
from aligntool.units import format_size, significant

_SIZES = (
    ("physical sector", "physical_block_size"),
    ("NAND page", "page_size"),
    ("indirection unit", "indirection_unit"),
    ("erase block or allocation unit", "erase_block"),
)


def row_lines(rows: Sequence[KnownGeometry]) -> Iterator[Line]:
    """Every row in a line: its name and what it knows."""
    for row in rows:
        facts = [f"{name} {format_size(value)}" for name, field in _SIZES if (value := getattr(row, field))]
        yield ((row.row, Style.TITLE), (f"  {', '.join(facts) or row.note or ''}", Style.PLAIN))


def drive_lines(rows: Sequence[KnownGeometry], *, width: int) -> Iterator[Line]:
    for row in rows:
        yield ((row.row, Style.TITLE), (f"  {row.source}, confidence {row.confidence}", Style.NOTE))
        for name, field in _SIZES:
            value: int | None = getattr(row, field)
            if value:
                yield plain(f"  {name}: {format_size(value)}")
        if row.dram is not None:
            yield plain(f"  DRAM: {'yes' if row.dram else 'no'}")
        yield from _rates(row)
        if row.hmb:
            yield plain("  works from a host memory buffer (HMB)")
        for limit in row.distrust:
            yield plain(f"  its {limit} is no grid")
        if row.hybrid:
            yield plain("  hybrid: a rotating drive with a flash cache")
        if row.note:
            for line in wrapped(f"  note: {row.note}", width, "    "):
                yield plain(line)
        for line in wrapped(f"  source: {row.citation}", width, "    "):
            yield ((line, Style.DIM),)
        yield EMPTY


def _rates(row: KnownGeometry) -> Iterator[Line]:
    for does, rate in (("reads", row.read_rate), ("writes", row.write_rate)):
        if rate:
            yield plain(f"  {does} in order at most {significant(rate / 10**6)} MB/s, says its data sheet")
