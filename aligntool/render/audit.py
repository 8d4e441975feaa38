"""Show an audit as text: the table of verdicts, facts, findings, possible repairs."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from aligntool.audit.arrays import has_data_on_grids, is_rebuilt, members_of
from aligntool.audit.drives import is_nothing_judged, targets_not_judged
from aligntool.audit.grids import FLOPPY_SIZES, STACKED
from aligntool.audit.report import (
    Answer,
    Check,
    Code,
    Finding,
    Judged,
    Repair,
    Report,
    Severity,
    Verdict,
    explanations,
)
from aligntool.audit.tables import hiding_codes, is_in_kernel
from aligntool.audit.wording import label_words, past_words, type_words
from aligntool.commands import Hint, is_by_hand, shell_word, split_step
from aligntool.contents.catalogue import kind_named
from aligntool.contents.md import MD
from aligntool.inventory import Disk, DiskKind, Layer, LinkHop, NvmeFacts, Partition, Role, Source, TableLabel
from aligntool.render.lines import (
    EMPTY,
    Line,
    Style,
    cell_width,
    columns,
    fit,
    fits,
    harmless,
    paragraph,
    plain,
    stacked,
    step_line,
    wrapped,
)
from aligntool.units import counted, format_about, format_size, format_start, listed

# The facts that a drive reports, for `-v`: firmware, queues, NVMe formats and buffers, links up to the
# processor.

Facts = Iterator[tuple[str, str]]
"""Pairs of a name and its text."""


def dim_lines(text: str, width: int, indent: str = "    ") -> Iterator[Line]:
    return paragraph(text, width, indent, Style.DIM)


PATH = "path"


def reported_facts(disk: Disk) -> Facts:
    """Yield the facts that the drive reports, and its links up to the processor."""
    limits = disk.limits
    yield from _facts_known(
        "drive",
        (
            ("firmware", disk.firmware),
            ("logical sector", _size(limits.logical_block_size)),
            ("rotating", None if disk.rotational is None else "yes" if disk.rotational else "no"),
            ("queue depth", disk.queue_depth),
            ("NUMA node", disk.numa_node),
            ("optimal I/O", _size(limits.optimal_io_size)),
            ("discard granularity", _size(limits.discard_granularity)),
            ("discard alignment", _size(limits.discard_alignment)),
            ("I/O boundary", _size(limits.chunk_size)),
            ("erase size", _size(disk.erase_size)),
        ),
    )
    if disk.nvme:
        yield from _nvme(disk.nvme)
    ata = disk.ata
    if ata:
        yield from _facts_known(
            "ATA IDENTIFY",
            (
                ("physical sector", _size(ata.physical_sector_size)),
                ("offset", _size(ata.alignment_offset)),
                ("rotation", f"{ata.rotation_rpm} rpm" if (ata.rotation_rpm or 0) > 1 else None),
                ("queue depth", ata.queue_depth),
                ("hybrid", "yes" if ata.hybrid else None),
            ),
        )
    for path in disk.links:
        yield PATH, " ← ".join(_link_words(hop) for hop in path)


def _facts_known(title: str, facts: Sequence[tuple[str, object]]) -> Facts:
    words = [f"{name} {value}" for name, value in facts if value is not None]
    if words:
        yield title, ", ".join(words)


def _nvme(nvme: NvmeFacts) -> Facts:
    formats = [
        f"{form.index}: {form.data_size}{f'+{form.metadata_size}' if form.metadata_size else ''} bytes,"
        f" performance {form.relative_performance}{' (in use)' if form.index == nvme.format_in_use else ''}"
        for form in nvme.formats
    ]
    if formats:
        yield "LBA formats", ", ".join(formats)
    yield from _facts_known(
        "NVMe",
        (
            ("write granularity NPWG", _size(nvme.preferred_write_granularity)),
            ("write alignment NPWA", _size(nvme.preferred_write_alignment)),
            ("deallocate granularity NPDG", _size(nvme.preferred_deallocate_granularity)),
            ("optimal write NOWS", _size(nvme.optimal_write_size)),
            ("I/O boundary NOIOB", _size(nvme.optimal_io_boundary)),
            ("atomic write", _size(nvme.atomic_write_unit)),
            ("atomic at power loss", _size(nvme.atomic_write_unit_power_fail)),
            ("largest transfer MDTS", _size(nvme.max_transfer)),
        ),
    )
    if nvme.multipath:
        yield "multipath", f"controllers {', '.join(nvme.controllers)}"
    if nvme.hmb_preferred:
        yield "host memory buffer", _host_memory_words(nvme)


def _host_memory_words(nvme: NvmeFacts) -> str:
    granted = "unknown without root" if nvme.hmb_granted is None else format_about(nvme.hmb_granted)
    if nvme.hmb_granted is None and nvme.hmb_enabled is not None:
        granted = "some (on)" if nvme.hmb_enabled else "nothing (off)"
    controller = nvme.controllers[0] if nvme.controllers else "nvmeN"
    sizes = (
        f"preferred {format_about(nvme.hmb_preferred or 0)}, minimum {format_about(nvme.hmb_minimum or 0)}"
    )
    ways = "set it with nvme.max_host_mem_size_mb= on the kernel command line, switch it with /sys/class/nvme"
    return f"{sizes}, granted {granted}; {ways}/{controller}/hmb"


def _link_words(hop: LinkHop) -> str:
    speed = f" {hop.speed_gts:g} GT/s x{hop.width}" if hop.speed_gts and hop.width else ""
    most = f" of {hop.max_speed_gts:g} GT/s x{hop.max_width}" if hop.max_speed_gts and hop.max_width else ""
    hidden = f" ← {hop.hidden_uplink} to the processor" if hop.hidden_uplink else ""
    return f"{hop.address} {hop.port}{speed}{most}{hidden}"


def _size(size: int | None) -> str | None:
    return format_size(size) if size else None


# Findings as text: grouped by code, worst first, each with cause, cost and the command to type next.

MOST_OF_A_KIND = 12
"""Most findings of one code that are shown; the rest are counted, and --json has all of them."""

MOST_STEPS = 3
"""Most commands that are shown for one code without -v."""

_STYLES = {Severity.ERROR: Style.BAD, Severity.WARNING: Style.DOUBT, Severity.INFO: Style.NOTE}
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "·"}


def by_code(report: Report) -> list[list[Finding]]:
    """Group the findings by code and severity, worst first."""
    groups: dict[tuple[Severity, Code], list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault((finding.severity, finding.code), []).append(finding)
    return list(groups.values())


def only_disk(report: Report) -> str | None:
    """Return the name of the only disk, which findings need not repeat, or None if there are several."""
    return report.judged[0].disk.name if len(report.judged) == 1 else None


def next_finding(report: Report) -> Finding | None:
    """Return the finding with the command to type first: one that finishes a move in flight, or one that
    hides the others, or is about damage, or plans to realign the worst disk, or follows the worst finding.
    None if no finding has a command.
    """
    moving = disks_in_flight(report)
    hiding = hiding_findings(report)
    shown = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    urgent = [finding for finding in shown if has_command(finding) or finding in hiding]

    def key(finding: Finding) -> tuple[bool, bool, int, bool, bool, bool]:
        severity = finding.severity.rank
        plans = " plan " in finding.next
        return (
            finding.disk not in moving,
            finding not in hiding,
            severity,
            not finding.is_damage,
            not plans,
            "--shrink" in finding.next,
        )

    return min(urgent, key=key, default=None)


def has_command(finding: Finding) -> bool:
    """Return whether a finding has a command that does more than explain it."""
    step = finding.next
    return not step.startswith("aligntool explain ") and bool(is_by_hand(step) or split_step(step)[1])


Urgency = tuple[bool, int, bool]


def urgency(report: Report) -> Mapping[str | None, Urgency]:
    """Return a key for each disk with findings, which sorts the disk of the next command first, then by
    severity, damage before misaligned starts.
    """
    first = next_finding(report)
    keys: dict[str | None, Urgency] = {}
    for finding in report.findings:
        is_first = first is not None and finding.disk == first.disk
        key = (not is_first, finding.severity.rank, not finding.is_damage)
        keys[finding.disk] = min(key, keys.get(finding.disk, key))
    return keys


NOT_URGENT = (True, Severity.INFO.rank, True)


_SHOWN_NOTES = (Code.NOT_SEEN, Code.FSTAB_WITHOUT_NOFAIL)  # the result is incomplete; a boot may stop


def finding_lines(report: Report, *, width: int, verbose: bool, quiet: bool) -> Iterator[Line]:
    hidden: list[Finding] = []
    hiding = hiding_findings(report)
    groups = sorted(by_code(report), key=lambda group: (group[0] not in hiding, not group[0].is_damage))
    for findings in groups:
        note = findings[0].severity is Severity.INFO
        if note and not verbose and (quiet or findings[0].code not in _SHOWN_NOTES):
            hidden += findings
        elif quiet:
            yield from (
                plain(f"{finding.severity.value}: {finding.summary} [{finding.code}]") for finding in findings
            )
        else:
            yield from _group_lines(findings, width=width, verbose=verbose, alone=only_disk(report))
    if hidden and not quiet:
        codes = ", ".join(sorted({finding.code.value for finding in hidden}))
        yield ((f"{counted(len(hidden), 'note')} ({codes}); -v shows them", Style.DIM),)
        yield EMPTY


def _group_lines(
    findings: Sequence[Finding], *, width: int, verbose: bool, alone: str | None
) -> Iterator[Line]:
    """Yield the findings of one code and severity."""
    severity = findings[0].severity
    code = findings[0].code
    kind = f"{_MARKS[severity]} {code} {severity.value}"
    yield from stacked(((kind, _STYLES[severity]), (f"  {explanations()[code].title}", Style.TITLE)), width)
    merged = merged_findings(findings, alone=alone)
    most = len(merged) if verbose else MOST_OF_A_KIND
    times = Counter(finding.cause for finding, _ in merged if finding.cause)
    for finding, summary in merged[:most]:
        yield from paragraph(f"  - {summary}", width)
        if finding.cause and times[finding.cause] == 1:
            yield from dim_lines(f"    cause: {finding.cause}", width, "      ")
        for evidence in finding.evidence:
            yield from dim_lines(f"    and: {evidence}", width, "      ")
    if len(merged) > most:
        yield ((f"    … and {len(merged) - most} more of this kind; --json lists every one", Style.DIM),)
    for cause in (cause for cause, number in times.items() if number > 1):
        number = sum(finding.cause == cause for finding in findings)
        of = f"all {number}" if number == len(findings) else f"{number} of these {len(findings)}"
        yield from dim_lines(f"  cause of {of}: {cause}", width, "    ")
    words = "; ".join(" ".join(row) for row in cost_rows(findings))
    if words:
        # below the last of several, it is not only that one's
        of = "  cost of each" if len(merged) > 1 else "    cost"
        yield from dim_lines(f"{of}, predicted: {words}", width, "      ")
    steps = list(dict.fromkeys(finding.next for finding in findings if finding.next))
    steps.sort(key=lambda step: (" plan " not in step, "--shrink" in step))
    shown = len(steps) if verbose else MOST_STEPS
    for step in steps[:shown]:
        yield from (step_line("    ", way) for way in ways_on(code, step))
    if len(steps) > shown:
        yield ((f"    … and {len(steps) - shown} more; -v shows them", Style.DIM),)
    yield EMPTY


def ways_on(code: Code, step: str) -> tuple[str, ...]:
    """Return the next command of a finding; of a move in flight also the one that undoes it."""
    undo = step.renamed("resume", "rollback") if isinstance(step, Hint) and code is Code.IN_FLIGHT else step
    return tuple(dict.fromkeys((step, undo)))


def merged_findings(findings: Sequence[Finding], *, alone: str | None) -> list[tuple[Finding, str]]:
    """Merge findings with the same words on several disks. `alone`: a disk that need not be named."""
    groups: dict[tuple[str, tuple[str, ...], str | None], list[Finding]] = {}
    for finding in findings:
        words = finding.summary.removeprefix(f"{finding.disk}: ").replace(f" of {finding.disk}", "", 1)
        groups.setdefault((words, finding.evidence, finding.cause), []).append(finding)
    merged = []
    for (words, _, _), group in groups.items():
        names = ", ".join(finding.disk or "" for finding in group[:MOST_OF_A_KIND])
        names += f" and {len(group) - MOST_OF_A_KIND} more" if len(group) > MOST_OF_A_KIND else ""
        one_name = words if group[0].disk == alone else group[0].summary
        merged.append((group[0], f"{names}: {words}" if len(group) > 1 and names else one_name))
    return merged


def cost_rows(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return the cost that the model predicts for the findings, row by row, or nothing if there is no
    prediction.
    """
    cost = next((finding.cost for finding in findings if finding.cost), None)
    if cost is None:
        return []
    request = format_size(cost.request)
    reads = format_size(cost.straddling_read)
    rows = [
        (f"random {request} writes", f"keep {cost.write_share} of the aligned write rate"),
        (f"of {request} requests", f"{cost.straddle_probability:.0%} straddle"),
        ("a straddling write", f"reads {reads} and writes {format_size(cost.straddling_written)}"),
        ("a straddling read", f"reads {format_size(cost.extra_read)} more"),
    ]
    if cost.write_amplification > 1:
        rows.append(("write amplification", f"is {cost.write_amplification:g} even when aligned"))
    return rows


# Possible repairs of misaligned partitions, below the table of an audit.

Repairs = Mapping[str, Sequence[Repair]]
"""The possible repairs, by disk name."""

MOST_ANSWERS = 12
"""Most different answers that are shown for a disk; --json has all of them."""

_WORDS = {
    "in-place": ("can be realigned in place", Style.GOOD),
    "with-shrink": ("can perhaps be realigned with a shrink", Style.DOUBT),
    "not": ("cannot be realigned", Style.BAD),
}


def repair_lines(repairs: Sequence[Repair], *, width: int) -> Iterator[Line]:
    """Yield each answer with its reason and command, once for all partitions that share it."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for repair in repairs:
        why = repair.why.removeprefix(f"partition {repair.partition} cannot be moved: ")
        groups.setdefault((repair.answer, why, repair.next), []).append(repair.partition)
    for (answer, why, command), numbers in list(groups.items())[:MOST_ANSWERS]:
        words, style = _WORDS[answer]
        shown = listed(numbers[:MOST_ANSWERS])
        who = f"partitions {shown}" if len(numbers) > 1 else f"partition {shown}"
        who += f" and {len(numbers) - MOST_ANSWERS} more" if len(numbers) > MOST_ANSWERS else ""
        yield from paragraph(f"  {who} {words}: {why}", width, style=style)
        if command and answer != "in-place":  # the finding has that command already
            yield step_line("    ", command)
    if len(groups) > MOST_ANSWERS:
        yield ((f"  … and {len(groups) - MOST_ANSWERS} more answers; --json lists every one", Style.DIM),)


# An audit as a table to read in ten seconds: disks, partitions, problems, commands.

FEW_DISKS = 4
"""Most disks that get a table each; if there are more, each gets a line."""

NO_REPAIRS: Repairs = {}

_ANSWERS = {Answer.ON: Style.GOOD, Answer.OFF: Style.BAD, Answer.UNKNOWN: Style.DOUBT}


def audit_lines(
    report: Report,
    *,
    width: int,
    verbose: bool,
    quiet: bool,
    repairs: Repairs = NO_REPAIRS,
    maps: Iterable[Line] = (),
) -> Iterator[Line]:
    """Yield the whole audit. `repairs`: possible repairs by disk name; `maps`: pictures of the disks."""
    if report.judged and not quiet:
        yield from stacked(verdict_line(report), width)
        if is_about_starts(report):
            yield from paragraph(f"{INTACT}.", width)
        yield EMPTY
    yield from maps
    if quiet:
        yield from finding_lines(report, width=width, verbose=False, quiet=True)
        return
    images = () if verbose else _squashfs_images(report)
    damages = damages_of_disks(report)
    disks = [judged for judged in report.judged if judged not in images]
    disks.sort(key=lambda judged: judged.disk.name not in damages)
    brief = len(disks) > FEW_DISKS and not verbose
    if brief:
        yield from _brief_lines(report, disks, width)
    for judged in () if brief else disks:
        yield from disk_lines(judged, width=width, damage=damages.get(judged.disk.name, ""))
        yield from repair_lines(repairs.get(judged.disk.name, ()), width=width)
        if verbose:
            for word, text in reported_facts(judged.disk):
                yield from dim_lines(f"  {word}: {text}", width)
        yield EMPTY
    if images:
        names = f"{images[0].disk.name} to {images[-1].disk.name}"
        yield (
            (f"{len(images)} loop devices with squashfs images, such as snaps ({names})", Style.PLAIN),
            ("; -v shows them", Style.DIM),
        )
        yield EMPTY
    if verbose and report.inventory.uplinks:
        for uplink in report.inventory.uplinks:
            rate = f"{format_about(uplink.bandwidth)}/s" if uplink.bandwidth else "bandwidth unknown"
            shared = f"in each direction, shared by {', '.join(uplink.members)}"
            yield from dim_lines(f"{uplink.name}: {rate} ({uplink.source}) {shared}", width)
        yield EMPTY
    if not report.judged:
        yield plain("No disks found.")
    yield from _array_lines(report, width)
    yield from finding_lines(report, width=width, verbose=verbose, quiet=False)
    yield from summary_lines(report, width)


def _array_lines(report: Report, width: int) -> Iterator[Line]:
    fine = list(fine_arrays(report))
    for words in fine:
        yield from paragraph(words, width, style=Style.GOOD)
    if fine:
        yield EMPTY


def fine_arrays(report: Report) -> Iterator[str]:
    """Yield a sentence on each md array without an error or a warning, if the data of every member were
    judged.
    """
    members = members_of(report.judged)
    problems = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    for disk in (judged.disk for judged in report.judged if judged.disk.array):
        facts = disk.array
        if facts is None or set(facts.members) - members.keys():
            continue
        found = [members[name] for name in facts.members if name not in facts.spares]
        drives = [member.disk.name for member in found]
        offsets = dict(facts.member_data_offsets)
        is_wrong = any(
            problem.disk == disk.name or (problem.disk in drives and problem.layer == MD.name)
            for problem in problems
        )
        is_on = found and all(has_data_on_grids(member, offsets.get(member.name)) for member in found)
        if is_wrong or not is_on:
            continue
        name = ", ".join(word for word in (facts.name, facts.level) if word)
        chunk = f", chunk of {format_size(facts.chunk)} as wanted" if facts.chunk else ""
        busy = "" if facts.sync_action in (None, "idle", "frozen") else f"; {facts.sync_action} runs"
        count = f"{counted(len(found), 'member')}, the data of each on its boundaries"
        about = {found.code for found in report.findings if found.disk == disk.name} - {Code.ARRAY_BUSY}
        codes = sorted(code.value for code in about)
        left = f"{counted(len(codes), 'note')}: {', '.join(codes)}" if codes else "nothing to repair"
        yield f"Array {disk.name} ({name}): {count}{chunk}; {left}{busy}"


def _squashfs_images(report: Report) -> Sequence[Judged]:
    """Return the loop devices of read-only images that are not misaligned, if there are several: a machine
    with snaps has dozens of them.
    """
    images = [
        judged
        for judged in report.judged
        if judged.disk.kind is DiskKind.LOOP
        and [kind_named(layer.kind).is_packed_image for layer in judged.disk.content] == [True]
        and all(verdict.answer is not Answer.OFF for verdict in judged.verdicts)
    ]
    return images if len(images) > 1 else ()


def _brief_lines(report: Report, disks: Sequence[Judged], width: int) -> Iterator[Line]:
    """Yield a line for each disk: name, verdict, description. The disk of the next command is the first."""
    keys = urgency(report)
    disks = sorted(disks, key=lambda judged: keys.get(judged.disk.name, NOT_URGENT))
    first = first_verdicts(report)
    verdicts = [
        (first[judged.disk.name], Style.BAD) if judged.disk.name in first else _disk_verdict(judged)
        for judged in disks
    ]
    names = max(cell_width(harmless(judged.disk.name)) for judged in disks)
    words = max(cell_width(harmless(text)) for text, _ in verdicts)
    words = min(words, max(width - names - 12, 24))
    for judged, (text, style) in zip(disks, verdicts, strict=True):
        description = fit(disk_words(judged.disk), max(width - names - words - 4, 8)).rstrip()
        yield (
            (fit(judged.disk.name, names) + "  ", Style.TITLE),
            (fit(text, words) + "  ", style),
            (description, Style.PLAIN),
        )
    yield (
        ("  → ", Style.DIM),
        (f"aligntool audit{_with_sysroot(report)} DISK", Style.TYPE),
        (" shows its partitions; -v shows those of every disk", Style.DIM),
    )
    yield EMPTY


def _with_sysroot(report: Report) -> str:
    return f" --sysroot {shell_word(report.inventory.sysroot)}" if report.inventory.sysroot else ""


def first_verdicts(report: Report) -> Mapping[str, str]:
    """Return what has to be known of a disk before its alignment, in a few words, by its name."""
    hidden = {finding.disk for finding in hiding_findings(report)}
    disks = {judged.disk.name: judged.disk for judged in report.judged if judged.disk.name in hidden}
    found = {
        name: "damaged table" if is_in_kernel(disk) else "not seen by Linux" for name, disk in disks.items()
    }
    found = damages_of_disks(report) | found
    return found | dict.fromkeys(disks_in_flight(report), "move in flight")


def damages_of_disks(report: Report) -> dict[str, str]:
    """Return what is damaged on each disk, in a few words, by its name: of several damages the first."""
    disks = {judged.disk.name: judged.disk for judged in report.judged}
    found: dict[str, str] = {}
    for finding in report.findings:
        if finding.is_damage and finding.disk in disks:
            found.setdefault(finding.disk, _damage_words(finding, disks[finding.disk]))
    return found


def _damage_words(finding: Finding, disk: Disk) -> str:
    """Return "degraded: 1 of 2 members missing" for an array, otherwise the title of the finding."""
    if finding.code is not Code.ARRAY_DEGRADED or disk.array is None:
        return explanations()[finding.code].title
    words = finding.summary.removeprefix(f"{disk.name}: {disk.array.level} ")
    return words.removeprefix("is ")


def _disk_verdict(judged: Judged) -> tuple[str, Style]:
    answers = [verdict.answer for verdict in judged.verdicts if verdict.matters]
    for answer, word in ((Answer.OFF, "off"), (Answer.UNKNOWN, "unknown")):
        count = answers.count(answer)
        if count:
            return f"{count} of {len(answers)} {word}", _ANSWERS[answer]
    return (f"{len(answers)} on the grid", Style.GOOD) if answers else ("no partitions", Style.DIM)


def disks_in_flight(report: Report) -> list[str]:
    """Return the names of the disks with a move in flight."""
    errors = (
        found
        for found in report.findings
        if found.severity is Severity.ERROR and found.code is Code.IN_FLIGHT
    )
    return list(dict.fromkeys(found.disk for found in errors if found.disk))


def hiding_findings(report: Report) -> list[Finding]:
    """Return the findings that hide all others: Linux shows no partition of their disks, or wrong ones."""
    codes = {judged.disk.name: hiding_codes(judged.disk) for judged in report.judged}
    return [
        finding
        for finding in report.findings
        if finding.severity is not Severity.INFO and finding.code in codes.get(finding.disk or "", ())
    ]


def _named(disks: Sequence[str]) -> str:
    return ", ".join(disks[:MOST_OF_A_KIND]) + (" ..." if len(disks) > MOST_OF_A_KIND else "")


def disk_lines(judged: Judged, *, width: int, damage: str = "") -> Iterator[Line]:
    disk = judged.disk
    yield from _title_lines(disk, width)
    if damage:
        yield from paragraph(f"  {damage}", width, style=Style.BAD)
    yield from dim_lines(f"  {geometry_words(judged)}", width)
    rows = table_rows(judged)
    if rows:
        yield from _table_lines(rows, width=width)
        note = whole_image_note(disk)
        if note:
            yield from dim_lines(f"  {note}", width)
        yield from _name_lines(disk, width)
    elif disk.table_read or disk.table:
        yield (("  no partitions", Style.DIM),)


def whole_image_note(disk: Disk) -> str:
    """Return what the verdict on an image without a table does not cover, or ""."""
    if disk.kind is not DiskKind.IMAGE or disk.table or disk.partitions or not disk.content:
        return ""
    if disk.size in FLOPPY_SIZES:
        return ""
    return "if this is the image of a partition, its start on its disk is not in the image and not judged"


def disk_words(disk: Disk) -> str:
    """Return "Samsung SSD 980 · 1TB · nvme · GPT table, 512-byte sectors"."""
    size = "size unknown" if disk.size is None else format_about(disk.size)
    facts = [model_words(disk), size, disk.kind.value, disk.mapping, table_words(disk)]
    return " · ".join(fact for fact in facts if fact)


def model_words(disk: Disk) -> str:
    """Return "Samsung SSD 980", or "" if neither vendor nor model is known."""
    if disk.vendor and disk.model and disk.model.startswith(disk.vendor):
        return disk.model
    return " ".join(word for word in (disk.vendor, disk.model) if word)


def _title_lines(disk: Disk, width: int) -> Iterator[Line]:
    lines = list(wrapped(f"{disk.name}  {disk_words(disk)}", width, "    "))
    first = lines[0].removeprefix(harmless(disk.name))
    if first == lines[0]:  # the name itself was wrapped
        yield ((lines[0], Style.TITLE),)
    else:
        yield ((disk.name, Style.TITLE), (first, Style.PLAIN))
    yield from (plain(line) for line in lines[1:])


def table_words(disk: Disk) -> str:
    """Return "GPT table, 512-byte sectors", or "" if the table is unknown."""
    if disk.table is None:
        return "no partition table" if disk.table_read and not disk.content else ""
    if disk.table.label is TableLabel.UNKNOWN:
        return "partitions as reported by the kernel"
    hybrid = "hybrid " if disk.table.hybrid else ""
    return f"{hybrid}{label_words(disk.table.label)} table, {disk.table.sector_size}-byte sectors"


def geometry_words(judged: Judged) -> str:
    """Return the grids that the disk requires, each with its source, then queue depth and PCIe link."""
    words = [
        f"{grid.kind} {format_size(grid.size)}{f'+{format_size(grid.phase)}' if grid.phase else ''}"
        f" ({grid.source})"
        for grid in judged.grids
        if grid.kind != "grain"
    ]
    disk = judged.disk
    if disk.queue_depth:
        words.append(f"queue depth {disk.queue_depth}")
    if disk.links and disk.links[0] and disk.links[0][0].speed_gts and disk.kind is DiskKind.NVME:
        words.append(f"PCIe {disk.links[0][0].speed_gts:g} GT/s x{disk.links[0][0].width}")
    return " · ".join(words)


def partition_names(partition: Partition) -> str:
    """Return the name in the table and the labels of file systems, if any: `"root", label "rootfs"`."""
    labels = (f'label "{layer.label}"' for layer in partition.content if layer.label)
    return ", ".join([*([f'"{partition.name}"'] if partition.name else []), *labels])


def _name_lines(disk: Disk, width: int) -> Iterator[Line]:
    whole = ", ".join(f'label "{layer.label}"' for layer in disk.content if layer.label)
    named: dict[str, list[int]] = {}
    for part in disk.partitions:
        named.setdefault(partition_names(part), []).append(part.number)
    words = [f"{listed(numbers)} {names}" for names, numbers in named.items() if names]
    words = [whole] if whole and not disk.partitions else words
    if words:
        yield from dim_lines(f"  names: {' · '.join(words)}", width)


Row = tuple[str, str, str, str, str, str, Verdict | None]


def table_rows(judged: Judged) -> list[Row]:
    """Return a row for each partition, or for the whole disk if it has no partitions: number, node, start in
    sectors and in bytes, size, content, verdict.
    """
    disk = judged.disk
    verdicts = judged.by_partition()
    rows = [_partition_row(disk, partition, verdicts.get(partition.number)) for partition in disk.partitions]
    if not rows and (whole := verdicts.get(None)):
        size = "size unknown" if disk.size is None else format_about(disk.size)
        return [("–", "", "0", "0B", size, _contents(disk.content, disk.content_hint), whole)]
    return rows


def _partition_row(disk: Disk, partition: Partition, verdict: Verdict | None) -> Row:
    sector_size = disk.sector_size
    start = partition.extent.start
    sector = str(start // sector_size) if start % sector_size == 0 else "–"
    content = (
        "extended"
        if partition.role is Role.EXTENDED
        else _contents(partition.content, partition.content_hint)
    )
    return (
        str(partition.number),
        partition.node or "",
        sector,
        format_start(start, sector_size),
        format_about(partition.extent.length),
        content or type_words(partition, brief=True),
        verdict,
    )


def _contents(layers: Sequence[Layer], hint: str | None) -> str:
    """Return the stack of layers, "md › LUKS", or `hint`, udev's name of the content, if none was
    recognised.
    """
    if not layers:
        return hint or ""
    names = []
    layer = layers[0]
    while True:
        names.append(kind_named(layer.kind).short_title(layer))
        if not layer.inner or len(names) == 4:
            return " › ".join(names)
        layer = layer.inner[0]


_HEADS = ("#", "node", "sector", "start", "size", "content")


def _table_lines(rows: Sequence[Row], *, width: int) -> Iterator[Line]:
    """Yield the table. On a narrow terminal the column of contents shrinks, then the verdicts are brief, and
    then the column of sectors is omitted.
    """
    table = ((*_HEADS, None), *rows)
    kept = [at for at in range(6) if at != 1 or any(row[1] for row in rows)]
    cells = [[str(row[at]) for at in kept] for row in table]
    brief = not fits(cells, width - _verdicts_width(rows, brief=False))
    room = width - _verdicts_width(rows, brief=brief)
    if not fits(cells, room):
        kept.remove(_HEADS.index("sector"))
        cells = [[str(row[at]) for at in kept] for row in table]
    left = [place for place, at in enumerate(kept) if at in (1, 5)]
    heads, *texts = columns(cells, left=left, wide=room)
    yield ((f"  {heads}  verdict", Style.DIM),)
    for text, row in zip(texts, rows, strict=True):
        yield ((f"  {text}  ", Style.PLAIN), *verdict_words(row[6], brief=brief))


def _verdicts_width(rows: Sequence[Row], *, brief: bool) -> int:
    """Return the width of the column of verdicts, with the spaces before it and before the row."""
    return 4 + max(len(verdict_text(row[6], brief=brief)) for row in rows)


def verdict_words(verdict: Verdict | None, *, brief: bool = False) -> Line:
    """Return the verdict in words, for a start off the grid with the distance. `brief`: for a narrow
    terminal.
    """
    if verdict is None:
        return (("–", Style.DIM),)
    if not verdict.matters and verdict.answer is not Answer.ON:
        return (("not judged" if verdict.answer is Answer.UNKNOWN else "does not matter", Style.DIM),)
    worst = worst_failed_check(verdict)
    if verdict.answer is not Answer.OFF or worst is None:
        return ((verdict.answer.value, _ANSWERS[verdict.answer]),)
    style = Style.BAD if worst.grid.severity is Severity.ERROR else Style.DOUBT
    assumed = " (assumed)" if worst.grid.source is Source.ASSUMED else ""
    if brief:
        return ((f"{format_size(worst.off_by)} past {format_size(worst.grid.size)}{assumed}", style),)
    return ((past_words(worst.off_by, worst.grid.size) + assumed, style),)


def verdict_text(verdict: Verdict | None, *, brief: bool = False) -> str:
    return "".join(text for text, _ in verdict_words(verdict, brief=brief))


def worst_failed_check(verdict: Verdict) -> Check | None:
    """Return the worst check that the start fails, or None if it fails none."""
    failed = [check for check in verdict.checks if not check.on]
    return min(failed, key=lambda check: check.grid.severity.rank, default=None)


INTACT = "Misalignment damages no data: it makes requests slower"


def is_about_starts(report: Report) -> bool:
    """Return whether the verdict on all disks is on misaligned partitions alone."""
    is_damaged = any(finding.is_damage for finding in report.findings)
    return bool(report.count_answers(Answer.OFF)) and not is_damaged and not first_verdicts(report)


def verdict_line(report: Report) -> Line:
    """Return the verdict on all disks in words, with the number of those that could not be judged."""
    ((words, style),) = _verdict(report)
    missing = {unseen.what for unseen in targets_not_judged(report)}
    if missing and style is Style.BAD:
        disks = [judged for judged in report.judged if judged.disk.name in missing]
        groups = [number for number, group in _groups(disks) if group]
        targets = len(missing - {judged.disk.name for judged in disks})
        groups += [counted(targets, "target")] if targets else []
        words += f"; {' and '.join(groups)} could not be judged"
    return ((words, style),)


def _verdict(report: Report) -> Line:
    disks = report.judged
    moving = disks_in_flight(report)
    if moving:
        return ((f"A move is in flight on {_named(moving)}: finish it or undo it first", Style.BAD),)
    hidden = {finding.disk for finding in hiding_findings(report)}
    if hidden:
        lost = [
            judged.disk.name
            for judged in disks
            if judged.disk.name in hidden and not is_in_kernel(judged.disk)
        ]
        kept = [judged.disk.name for judged in disks if judged.disk.name in hidden]
        which = "these partitions" if len(disks) == 1 else f"the partitions of {_named(lost or kept)}"
        if lost:
            return ((f"Linux does not see {which}", Style.BAD),)
        return ((f"Linux may not see {which} after a restart", Style.BAD),)
    damage = errors_words([finding for finding in report.findings if finding.is_damage], _rebuilt(report))
    ((words, style),) = _starts_verdict(report)
    if damage and is_nothing_judged(report):
        return ((damage, Style.BAD),)
    return ((f"{damage}; {_lower(words.removeprefix('OK: '))}", Style.BAD),) if damage else ((words, style),)


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


MOST_ERRORS = 2
"""Most kinds of errors in the headline; the rest are counted."""


def _rebuilt(report: Report) -> set[str]:
    """Return the names of the arrays whose lost members are all being rebuilt."""
    arrays = {disk.name: disk.array for disk in report.inventory.disks if disk.array}
    return {name for name, facts in arrays.items() if is_rebuilt(facts)}


def errors_words(findings: Sequence[Finding], rebuilt: Collection[str] = ()) -> str:
    """Return "1 array has lost a member; partitions overlap: sda", or "" without findings. `rebuilt`: the
    arrays whose lost members are all being rebuilt.
    """
    places: dict[tuple[Code, bool], list[str | None]] = {}
    for finding in findings:
        places.setdefault((finding.code, finding.disk in rebuilt), []).append(finding.disk)
    words = [
        error_words(code, [name for name in names if name], rebuilt=done)
        for (code, done), names in places.items()
    ]
    more = sum(len(names) for names in list(places.values())[MOST_ERRORS:])
    words = [*words[:MOST_ERRORS], *([counted(more, "more error")] if more else [])]
    return "; ".join([*words[:1], *map(_lower, words[1:])])


def error_words(code: Code, disks: Sequence[str], *, rebuilt: bool = False) -> str:
    """Return what an error is, with its disks. `rebuilt`: the lost members of these arrays are all being
    rebuilt.
    """
    names = list(dict.fromkeys(disks))
    if code is not Code.ARRAY_DEGRADED:
        return f"{explanations()[code].title}{names and ': '}{_named(names)}"
    verb = "has lost a member" if len(names) == 1 else "have lost members"
    if rebuilt:
        verb = "is being rebuilt" if len(names) == 1 else "are being rebuilt"
    return f"{counted(len(names), 'array')} {verb}: {_named(names)}"


def _starts_verdict(report: Report) -> Line:
    """Return the verdict on the starts of all disks."""
    disks = report.judged
    off = [
        disk for disk in disks if any(start.matters and start.answer is Answer.OFF for start in disk.verdicts)
    ]
    if off and len(disks) == 1:
        starts = [verdict.answer for verdict in off[0].verdicts if verdict.matters]
        if [verdict.partition for verdict in off[0].verdicts] == [None]:
            return (("The start is misaligned", Style.BAD),)
        return ((f"{starts.count(Answer.OFF)} of {counted(len(starts), 'partition')} misaligned", Style.BAD),)
    if off:
        counts = [(sum(disk in off for disk in group), words) for words, group in _groups(disks)]
        return ((misaligned_words(*counts), Style.BAD),)
    if is_nothing_judged(report):
        return (("Nothing could be judged", Style.DOUBT),)
    if report.count_answers(Answer.UNKNOWN) or targets_not_judged(report):
        return (("No partition is known to be misaligned; not all could be judged", Style.DOUBT),)
    errors = [found for found in report.findings if found.severity is Severity.ERROR and not found.is_damage]
    if errors:
        return ((f"No partition is misaligned; {_lower(errors_words(errors, _rebuilt(report)))}", Style.BAD),)
    if not report.count_answers(Answer.ON):
        return plain("No partition to judge")
    words = f"every partition of {counted_disks(disks)} starts on its boundaries"
    inside = data_off_words(report.findings)
    if inside:
        return ((f"E{words.removeprefix('e')}; {inside}", Style.DOUBT),)
    return ((f"OK: {words}", Style.GOOD),)


def data_off_words(findings: Sequence[Finding]) -> str:
    """Return how many contents have data off the grid although their partitions start on it, or ""."""
    found = [
        finding
        for finding in findings
        if finding.layer and finding.off_by and finding.severity is not Severity.INFO
    ]
    clusters = sum(finding.code is Code.CLUSTERS_OFF for finding in found)
    others = len(found) - clusters
    words = [f"the clusters of {counted(clusters, 'file system')}"] if clusters else []
    words += [f"the data of {counted(others, 'layer')}"] if others else []
    return f"{' and '.join(words)} are off" if words else ""


def misaligned_words(*counts: tuple[int, str]) -> str:
    """State how many of a whole, such as "3 disks", have misaligned partitions."""
    words = " and ".join(f"{number} of {whole}" for number, whole in counts if number)
    verb = "has" if sum(number for number, _ in counts) == 1 else "have"
    return f"{words} {verb} misaligned partitions"


def counted_disks(disks: Sequence[Judged]) -> str:
    """Return "3 disks and 2 stacked devices": what is on disks is no disk."""
    return " and ".join(words for words, _ in _groups(disks))


def _groups(disks: Sequence[Judged]) -> Iterator[tuple[str, Sequence[Judged]]]:
    """Yield the disks, then the devices on them, each group with its number in words."""
    above = [judged for judged in disks if judged.disk.kind in (*STACKED, DiskKind.LOOP)]
    drives = [judged for judged in disks if judged not in above]
    if drives or not above:
        yield counted(len(drives), "disk"), drives
    if above:
        kinds = sorted({judged.disk.kind.value for judged in above})
        yield counted(len(above), "stacked device" if drives else f"{'/'.join(kinds)} device"), above


def summary_lines(report: Report, width: int) -> Iterator[Line]:
    """Yield the number of disks, verdicts and problems: one line if it fits, otherwise two."""
    counts = {answer: report.count_answers(answer) for answer in Answer}
    errors = report.count(Severity.ERROR)
    warnings = report.count(Severity.WARNING)
    pieces = [(f"{counted_disks(report.judged)}: ", Style.TITLE)]
    on = counts[Answer.ON]
    off = counts[Answer.OFF]
    unknown = counts[Answer.UNKNOWN]
    for answer, words in (
        (Answer.ON, f"{counted(on, 'start')} on the grid, "),
        (Answer.OFF, f"{off} off, "),
        (Answer.UNKNOWN, f"{unknown} unknown"),
    ):
        pieces.append((words, _ANSWERS[answer] if counts[answer] else Style.DIM))
    problems = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    line = (*pieces, (f" · {problems}", Style.PLAIN))
    if sum(cell_width(harmless(text)) for text, _ in line) <= width:
        yield line
    else:
        yield from stacked(tuple(pieces), width)
        yield plain(f"  {problems}")
