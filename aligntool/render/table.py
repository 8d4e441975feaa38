"""An audit as a table that a person reads in ten seconds: disks, their partitions, what is wrong, what to type."""

from collections.abc import Iterator, Sequence

from aligntool.audit import Answer, Grid, GridKind, Judged, Report, Severity, Verdict
from aligntool.inventory import Disk, DiskKind, Layer, Partition, Role, Source, TableLabel
from aligntool.render.facts import fact_lines, uplink_lines
from aligntool.render.findings import finding_lines
from aligntool.render.lines import EMPTY, Line, Style, cell_width, fit, harmless, plain, wrapped
from aligntool.render.mending import Mends, mend_lines
from aligntool.units import format_about, format_size

FEW_DISKS = 24
"""Up to so many disks, each gets its table; beyond, only those that are not simply fine."""

_NO_MENDS: Mends = {}

_ANSWERS = {Answer.ON: Style.GOOD, Answer.OFF: Style.BAD, Answer.UNKNOWN: Style.DOUBT}


def audit_lines(
    report: Report, *, width: int, verbose: bool, quiet: bool, mends: Mends = _NO_MENDS
) -> Iterator[Line]:
    """`mends`: whether what is off can be mended, by the disk's name."""
    if quiet:
        yield from finding_lines(report, width=width, verbose=False, quiet=True)
        return
    shown, fine = _split(report, verbose=verbose)
    for judged in shown:
        yield from disk_lines(judged, width=width)
        yield from mend_lines(mends.get(judged.disk.name, ()), width=width)
        if verbose:
            yield from fact_lines(judged.disk, width=width)
        yield EMPTY
    if fine:
        yield (
            (f"{len(fine)} more disks with every partition on the grid", Style.GOOD),
            ("; -v shows them", Style.DIM),
        )
        yield EMPTY
    if verbose and report.inventory.uplinks:
        yield from uplink_lines(report.inventory, width=width)
        yield EMPTY
    if not report.judged:
        yield plain("No disks found.")
    yield from finding_lines(report, width=width, verbose=verbose, quiet=False)
    yield summary_line(report)


def _split(report: Report, *, verbose: bool) -> tuple[Sequence[Judged], Sequence[Judged]]:
    """Disks to show and disks to count."""
    if verbose or len(report.judged) <= FEW_DISKS:
        return report.judged, ()
    troubled = {finding.disk for finding in report.findings if finding.severity is not Severity.INFO}
    shown = [judged for judged in report.judged if judged.disk.name in troubled]
    return shown, [judged for judged in report.judged if judged.disk.name not in troubled]


def disk_lines(judged: Judged, *, width: int) -> Iterator[Line]:
    disk = judged.disk
    yield from _title(disk, width)
    for text in wrapped(f"  {geometry_words(judged)}", width, "    "):
        yield ((text, Style.DIM),)
    verdicts = judged.by_partition()
    rows = [row_of(disk, partition, verdicts.get(partition.number)) for partition in disk.partitions]
    if not rows and (whole := verdicts.get(None)):
        rows = [("–", "", "0", "0B", _about(disk.size), _contents(disk.content, disk.content_hint), whole)]
    if rows:
        yield from _rows(rows, width=width)
        yield from _name_lines(disk, width)
    elif disk.table_read or disk.table:
        yield (("  no partitions", Style.DIM),)


def _title(disk: Disk, width: int) -> Iterator[Line]:
    words = [word for word in (disk.vendor, disk.model) if word]
    if disk.vendor and disk.model and disk.model.startswith(disk.vendor):
        words = [disk.model]
    facts = [" ".join(words), _about(disk.size), disk.kind.value, disk.mapping or "", table_words(disk)]
    rest = " · ".join(fact for fact in facts if fact)
    lines = list(wrapped(f"{disk.name}  {rest}", width, "    "))
    first = lines[0].removeprefix(harmless(disk.name))
    if first == lines[0]:  # the name itself was wrapped
        yield ((lines[0], Style.TITLE),)
    else:
        yield ((disk.name, Style.TITLE), (first, Style.PLAIN))
    yield from (plain(line) for line in lines[1:])


def table_words(disk: Disk) -> str:
    """ "gpt table, 512-byte sectors"."""
    if disk.table is None:
        return "no partition table" if disk.table_read and not disk.content else ""
    if disk.table.label is TableLabel.UNKNOWN:
        return "partitions as the kernel has them"
    hybrid = "hybrid " if disk.table.hybrid else ""
    return f"{hybrid}{disk.table.label} table, {disk.table.sector_size}-byte sectors"


def geometry_words(judged: Judged) -> str:
    """The grids that count, each with where it comes from."""
    words = [_grid_words(grid) for grid in judged.grids if grid.kind is not GridKind.GRAIN]
    disk = judged.disk
    if disk.queue_depth:
        words.append(f"queue depth {disk.queue_depth}")
    if disk.links and disk.links[0] and disk.links[0][0].speed_gts and disk.kind is DiskKind.NVME:
        hop = disk.links[0][0]
        words.append(f"PCIe {hop.speed_gts:g} GT/s x{hop.width}")
    return " · ".join(words)


def _grid_words(grid: Grid) -> str:
    shift = f"+{format_size(grid.phase)}" if grid.phase else ""
    return f"{grid.kind} {format_size(grid.size)}{shift} ({grid.source})"


def names_of(partition: Partition) -> str:
    """The name in the table and the label in the file system, each where there is one: `"root", label "rootfs"`."""
    labels = (f'label "{layer.label}"' for layer in partition.content if layer.label)
    return ", ".join([*([f'"{partition.name}"'] if partition.name else []), *labels])


def _name_lines(disk: Disk, width: int) -> Iterator[Line]:
    whole = ", ".join(f'label "{layer.label}"' for layer in disk.content if layer.label)
    words = [f"{part.number} {names}" for part in disk.partitions if (names := names_of(part))]
    words = [whole] if whole and not disk.partitions else words
    for text in wrapped(f"  names: {' · '.join(words)}", width, "    ") if words else ():
        yield ((text, Style.DIM),)


Row = tuple[str, str, str, str, str, str, Verdict | None]


def row_of(disk: Disk, partition: Partition, verdict: Verdict | None) -> Row:
    """Number, node, start in sectors and in bytes, size, content, verdict."""
    sector_size = disk.sector_size
    start = partition.extent.start
    sector = str(start // sector_size) if start % sector_size == 0 else "–"
    content = (
        "extended"
        if partition.role is Role.EXTENDED
        else _contents(partition.content, partition.content_hint)
    )
    return (
        str(partition.number), partition.node or "", sector, format_size(start), format_about(partition.extent.length),
        content or partition.type_name, verdict,
    )  # fmt: skip


def _contents(layers: Sequence[Layer], hint: str | None) -> str:
    """The stack in a word: "md 1.2 › crypto_LUKS", or what the udev database says."""
    if not layers:
        return hint or ""
    names, layer = [], layers[0]
    while True:
        names.append(
            layer.version if layer.kind == "vfat" and layer.version else _SHORT.get(layer.kind, layer.kind)
        )
        if not layer.inner or len(names) == 4:
            return " › ".join(names)
        layer = layer.inner[0]


_SHORT = {"linux_raid_member": "md", "crypto_LUKS": "LUKS", "LVM2_member": "LVM", "zfs_member": "ZFS"}
_HEADS = ("#", "node", "sector", "start", "size", "content")


def _rows(rows: Sequence[Row], *, width: int) -> Iterator[Line]:
    """Columns as wide as what is in them; the content gives way on a narrow terminal."""
    has_nodes = any(row[1] for row in rows)
    texts = [tuple(harmless(str(cell)) for cell in row[:6]) for row in rows]
    widths = [max(cell_width(cell) for cell in column) for column in zip(_HEADS, *texts, strict=True)]
    if not has_nodes:
        widths[1] = 0
    room = width - sum(widths[:5]) - 2 * sum(1 for size in widths[:5] if size) - 2 - 24
    widths[5] = max(min(widths[5], room), 8)
    yield ((_cells(_HEADS, widths) + "  verdict", Style.DIM),)
    for text, row in zip(texts, rows, strict=True):
        yield ((_cells(text, widths) + "  ", Style.PLAIN), *verdict_words(row[6]))


def _cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    right = (True, False, True, True, True, False)
    shown = [
        fit(cell, size, right=align) for cell, size, align in zip(cells, widths, right, strict=True) if size
    ]  # fmt: skip
    return "  " + "  ".join(shown)


def verdict_words(verdict: Verdict | None) -> Line:
    if verdict is None:
        return (("–", Style.DIM),)
    if not verdict.matters and verdict.answer is not Answer.ON:
        return (("not judged" if verdict.answer is Answer.UNKNOWN else "does not matter", Style.DIM),)
    style = _ANSWERS[verdict.answer]
    if verdict.answer is not Answer.OFF:
        return ((verdict.answer.value, style),)
    failed = [check for check in verdict.checks if not check.on]
    worst = min(failed, key=lambda check: check.grid.severity.rank)
    style = style if worst.grid.severity is Severity.ERROR else Style.DOUBT
    return ((f"off {_short_grid(worst.grid)} by {format_size(worst.off_by)}", style),)


def _short_grid(grid: Grid) -> str:
    mark = "?" if grid.source is Source.ASSUMED else ""
    return f"{format_size(grid.size)}{mark}"


def _about(size: int | None) -> str:
    return "size unknown" if size is None else format_about(size)


def summary_line(report: Report) -> Line:
    disks = len(report.judged)
    counts = {answer: report.count_answers(answer) for answer in Answer}
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    return (
        (f"{_plural(disks, 'disk')}: ", Style.TITLE),
        (f"{counts[Answer.ON]} on the grid", Style.GOOD if counts[Answer.ON] else Style.DIM),
        (", ", Style.PLAIN),
        (f"{counts[Answer.OFF]} off", Style.BAD if counts[Answer.OFF] else Style.DIM),
        (", ", Style.PLAIN),
        (f"{counts[Answer.UNKNOWN]} unknown", Style.DOUBT if counts[Answer.UNKNOWN] else Style.DIM),
        (f" · {_plural(errors, 'error')}, {_plural(warnings, 'warning')}", Style.PLAIN),
    )


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
