"""Text output: nothing from a disk may control the terminal, and 80 columns are enough."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.report import Answer, Report
from aligntool.inventory import DiskKind, InFlight, Layer, TableLabel
from aligntool.render.audit import INTACT, audit_lines, table_rows
from aligntool.render.disk_map import _part, disk_bar_lines, map_lines
from aligntool.render.lines import (
    Style,
    cell_width,
    fit,
    folded,
    harmless,
    show,
    step_line,
    text_of,
    wants_color,
    wrapped,
)
from aligntool.render.prometheus import Run, audit_prometheus
from aligntool.units import Extent, format_start
from tests.audit.builders import judge, made_disk
from tests.audit.machines.captured import report as captured_report
from tests.thorough import examples

STRIP = 4  # lines of the whole disk above the first start: name, strip, labels, a blank one
HOSTILE = "\x1b]0;owned\x07\x1b[31m[red]bold[/red]\r\n\u202eevil\x9b2J\udcff"


def text(report: Report, *, width: int = 80, verbose: bool = True, quiet: bool = False) -> str:
    return "".join(text_of(audit_lines(report, width=width, verbose=verbose, quiet=quiet)))


def old_disk() -> Report:
    return judge(made_disk("63+80000 ntfs; 80063+90000 ext4; 8388608+90000", name="disk.img", kind=DiskKind.IMAGE,
                           physical=None, label=TableLabel.DOS))  # fmt: skip


def test_a_table_shows_sector_bytes_verdict_cause_cost_and_next_command() -> None:
    said = " ".join(text(old_disk()).split())
    for words in ("63", "31.50KiB", "3584B past a 4KiB boundary (assumed)", "Windows XP", "reads 8KiB and writes 8KiB",
                  "1/2 of the aligned write rate", "aligntool plan realign", "on the grid", "2 off"):  # fmt: skip
        assert words in said, words


def test_a_cause_that_several_findings_share_is_stated_once_with_their_number() -> None:
    said = " ".join(text(captured_report("sata-usb-and-sd-card")).split())
    assert said.count("the second track of the DOS geometry") == 1
    assert said.count("starts at sector 63") == 3 and "cause of all 10: the second track" in said


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    long = [line for line in text(old_disk(), width=width).splitlines() if cell_width(line) > width]
    assert long == []


def test_a_line_is_folded_between_words_and_a_command_stays_whole() -> None:
    line = (("  → ", Style.DIM), ("aligntool audit --sysroot a-long-name DISK", Style.TYPE), (" shows more", Style.DIM))
    for width, expected in (
        (80, ["  → aligntool audit --sysroot a-long-name DISK shows more"]),
        (50, ["  → aligntool audit --sysroot a-long-name DISK", "    shows more"]),
        (20, ["  → aligntool audit --sysroot a-long-name DISK", "    shows more"]),
    ):
        assert ["".join(text for text, _ in part).rstrip() for part in folded(line, width)] == expected
    glued = (("sda", Style.TITLE), (": one two", Style.PLAIN))
    assert ["".join(text for text, _ in part) for part in folded(glued, 8)] == ["sda: one", "  two"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            "the disks of this machine: aligntool audit",
            ["  → the disks of this", "    machine:", "    aligntool audit"],
        ),
        ("sudo aligntool audit --map /dev/sda", ["  → sudo aligntool audit --map /dev/sda"]),
        (
            "if it is not needed: sudo wipe x; then again",
            ["  → if it is not needed:", "    sudo wipe x; then", "    again"],
        ),
        ("name a disk, or a folder on a file system", ["  → name a disk, or a", "    folder on a file", "    system"]),
    ],
)
def test_the_words_of_a_next_step_are_folded_and_its_command_is_not(step: str, expected: list[str]) -> None:
    assert ["".join(text for text, _ in part).rstrip() for part in folded(step_line("  ", step), 24)] == expected


@settings(max_examples=examples(100))
@given(st.text(max_size=60))
def test_no_control_or_format_character_of_a_disk_reaches_the_terminal(name: str) -> None:
    disk = replace(made_disk("63+4096"), model=name + HOSTILE, name=name or "x")
    disk = replace(disk, partitions=(replace(disk.partitions[0], type_name=name + HOSTILE),))
    report = judge(disk)
    everything = (
        text(report)
        + "".join(text_of(map_lines(report, width=80)))
        + "".join(audit_prometheus(report, Run(0, 0), serials=True))
    )
    assert all(char.isprintable() or char == "\n" for char in everything)


def test_markup_in_a_label_is_shown_verbatim_in_coloured_output() -> None:
    stream = io.StringIO()
    report = judge(replace(made_disk("63+4096"), model=HOSTILE))
    show(audit_lines(report, width=200, verbose=True, quiet=False), stream, color=True)
    said = stream.getvalue()
    assert "[red]bold[/red]" in said
    allowed = re.sub(r"\x1b\[[0-9;]*m", "", said)  # what rich itself writes for its own colours
    assert all(char.isprintable() or char == "\n" for char in allowed)


def test_control_characters_are_shown_as_escapes() -> None:
    assert harmless("a\x1bb\u202ec\udcffd") == "a\\x1bb\\u202ec\\xffd"
    assert harmless("Straße 日本") == "Straße 日本"


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False)],
)
def test_colour_is_used_only_on_a_capable_terminal_unless_disabled(
    environment: dict[str, str], terminal: bool, colour: bool
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    assert wants_color(Stream(), environment) is colour


def test_quiet_prints_a_line_for_each_error_and_warning_and_otherwise_nothing() -> None:
    lines = text(old_disk(), verbose=False, quiet=True).splitlines()
    assert len(lines) == 2 and all(line.startswith("error: ") and line.endswith("[AT101]") for line in lines)
    assert text(judge(made_disk("2048+4096", physical=4096)), quiet=True) == ""


def test_more_than_four_disks_are_shown_in_one_line_each() -> None:
    fine = [made_disk("2048+4096; 8192+4096", name=f"sd{index}", physical=4096) for index in range(4)]
    bad = made_disk("63+4096; 8192+4096", name="sdbad", physical=4096)
    blank = made_disk("", name="nvme11n1", physical=4096)
    lines = text(judge(*fine, bad, blank), verbose=False).splitlines()
    assert lines[:2] == ["1 of 6 disks has misaligned partitions", f"{INTACT}."]
    rows = {line.split()[0]: line for line in lines[3:9]}
    assert [*rows] == ["sdbad", "sd0", "sd1", "sd2", "sd3", "nvme11n1"], "the worst first, the others as given"
    assert "  2 on the grid  " in rows["sd0"] and "  1 of 2 off  " in rows["sdbad"]
    assert "  no partitions  " in rows["nvme11n1"]
    assert max(map(len, rows.values())) <= 80
    assert "audit DISK" in lines[9] and not any(line.startswith("  # ") for line in lines)
    for shown, tables in ((text(judge(*fine, bad, blank), verbose=True), 5), (text(judge(*fine), verbose=False), 4)):
        assert sum(line.startswith("  # ") for line in shown.splitlines()) == tables


def test_the_first_row_and_the_first_command_are_about_the_same_disk() -> None:
    fine = [made_disk("2048+4096", name=f"sd{index}", physical=4096) for index in range(4)]
    whole = replace(made_disk(name="sdwhole", physical=4096), content=(Layer("ext4", Extent(0, 1 << 20)),))
    whole = replace(whole, limits=replace(whole.limits, alignment_offset=3584))
    lines = text(judge(*fine, whole, made_disk("63+4096", name="sdz", physical=4096)), verbose=False).splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["sdz", "sdwhole"], "the second has no command that moves it"
    assert next(line for line in lines if line.startswith("    → ")).endswith("plan realign /dev/sdz")


def test_loop_devices_of_snaps_are_shown_in_one_line() -> None:
    """Each snap is a squashfs on a loop device; a fresh Ubuntu desktop has more than four."""
    content = (Layer("squashfs", Extent(0, 1 << 20)),)
    snaps = [replace(made_disk(name=f"loop{number}", kind=DiskKind.LOOP), content=content) for number in range(6)]
    report = judge(made_disk("2048+4096", physical=4096), *snaps)
    said = text(report, verbose=False)
    assert (
        said.count("loop") == 3
        and "1 disk and 6 stacked devices: " in said
        and "6 loop devices with squashfs images" in said
        and "(loop0 to loop5)" in said
    )
    assert "sector" in said, "the one disk beside them is shown in full"
    assert all(f"loop{number}  " in text(report, verbose=True) for number in range(6))
    assert "loop0  " in text(judge(snaps[0]), verbose=False)


def test_a_move_in_flight_is_reported_in_the_first_line() -> None:
    flying = made_disk("2048+4096; 8192+4096", physical=4096)
    assert flying.table
    flying = replace(flying, table=replace(flying.table, in_flight=InFlight((1,), 0)))
    lines = text(judge(flying, made_disk("63+4096", name="sdb", physical=4096)), verbose=False).splitlines()
    assert lines[0] == "A move is in flight on sda: finish it or undo it first"


@pytest.mark.parametrize(
    ("start", "said"),
    [(0, "0B"), (512, "512B"), (63 * 512, "31.50KiB"), (128 * 512, "64KiB"), (2048 * 512, "1MiB"),
     (2049 * 512, "1.000MiB"), (212769 * 2048 * 512, "207.8GiB"), (10**12 // 512 * 512, "931.3GiB"),
     (2047 * 512, "1023.5KiB"), (63 * 512 + 1, "32257B")],
)  # fmt: skip
def test_a_start_in_bytes_is_exact_or_has_four_digits(start: int, said: str) -> None:
    assert format_start(start, 512) == said


def test_the_map_shows_the_start_at_its_place() -> None:
    report = judge(made_disk("63+80000", physical=4096))
    lines = "".join(text_of(map_lines(report, width=140))).splitlines()[STRIP:]
    assert "28672" in lines[1] and "32768" in lines[1]
    ruler, blocks = lines[2], lines[3]
    sector = ruler.index("|")
    assert ruler[sector + 16] == "|", "one sector is 16 cells"
    assert blocks.index("[") - sector == 14, "3584 of 4096 bytes are 14 of 16 cells"
    assert lines[4].strip().startswith("^") and lines[4].index("^") == blocks.index("[")
    assert "every 4KiB request touches one more physical sector" in lines[4]


def test_the_map_of_an_aligned_partition_shows_blocks_on_the_boundaries() -> None:
    lines = "".join(text_of(map_lines(judge(made_disk("2048+80000", physical=4096)), width=80))).splitlines()[STRIP:]
    assert [index for index, char in enumerate(lines[2]) if char == "|"] == [
        index for index, char in enumerate(lines[3]) if char == "["
    ]


def test_no_map_is_drawn_for_a_start_without_checks() -> None:
    """As for a partition in a table of which both copies are damaged."""
    report = judge(made_disk("63+80000", physical=4096))
    (judged,) = report.judged
    (verdict,) = judged.verdicts
    unchecked = replace(verdict, checks=(), answer=Answer.UNKNOWN, why="not read")
    bare = replace(report, judged=(replace(judged, verdicts=(unchecked,)),))
    assert [line for line in "".join(text_of(map_lines(bare, width=140))).splitlines() if line][STRIP:] == []


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_map_begins_with_the_whole_disk_to_scale(width: int) -> None:
    parts = "63+419361; 419840+1677720; 2098000+64"  # of 4,194,304 sectors: 10 %, 40 %, and next to nothing
    (judged,) = judge(made_disk(parts, size=2 << 30, physical=4096)).judged
    head, strip, labels, *_ = "".join(text_of(disk_bar_lines(judged, width=width))).splitlines()
    assert head.startswith(judged.disk.name) and head.endswith("2GiB") and len(head) == len(strip) == width
    first, second, third = (match.start() for match in re.finditer(r"\[", strip))
    assert strip[first:].startswith("[1=") and strip[third:].startswith("[3]")
    for cells, share in ((second - first, 0.1), (third - second, 0.4), (first, 0)):
        assert abs(cells - share * width) <= 2, "within two columns, which the smallest one needs"
    assert labels[first:].startswith("^204.8MiB " if width > 80 else "^ ") and len(labels) <= width
    assert "^" not in labels[second:third] and "…" not in labels


@pytest.mark.parametrize("width", [60, 80, 132])
@pytest.mark.parametrize("small", range(8))
def test_a_map_is_to_scale_or_says_that_it_is_not(small: int, width: int) -> None:
    """Of 2 GiB, every small partition has 32 KiB, and the last one has half of the disk."""
    parts = [f"{2048 * (at + 1)}+64" for at in range(small)]
    (judged,) = judge(made_disk("; ".join([*parts, "2097152+2097152"]), size=2 << 30, physical=4096)).judged
    head, strip, *_ = "".join(text_of(disk_bar_lines(judged, width=width))).splitlines()
    is_true = abs(strip.index(f"[{small + 1}=") - width / 2) < 2 and not small
    assert ("not to scale" in head) != is_true and len(head) == len(strip) == width


@pytest.mark.parametrize("width", [60, 80, 120])
def test_below_the_map_a_size_is_left_out_rather_than_cut(width: int) -> None:
    (judged,) = judge(made_disk("63+1000000 ext4; 1000063+200000 ext4; 1200064+8", size=1 << 30, physical=4096)).judged
    labels = list(text_of(disk_bar_lines(judged, width=width)))[2]
    assert "^ext4" in labels and "…" not in labels
    assert set(labels.split()) <= {"^ext4", "488.3MiB", "97.7MiB", "4KiB"}


def test_no_strip_is_drawn_for_more_partitions_than_columns() -> None:
    (judged,) = judge(made_disk("; ".join(f"{2048 * at}+8" for at in range(1, 91)), physical=4096)).judged
    assert list(disk_bar_lines(judged, width=80)) == []


def test_wide_characters_are_measured_as_in_terminals() -> None:
    assert cell_width("日本") == 4
    assert fit("日本語テキスト", 6) == "日本… " or cell_width(fit("日本語テキスト", 6)) == 6
    assert list(wrapped("aa bb cc", 5, "")) == ["aa bb", "cc"]
    assert list(wrapped("  - aa bb cc", 9, "    ")) == ["  - aa bb", "    cc"]


def test_a_part_of_a_disk_has_as_many_cells_as_columns() -> None:
    """A volume at the very end of a disk has none; with its complete name it exceeded the line."""
    assert [_part("12", width) for width in range(6)] == ["", "2", "12", "|12", "[12]", "[12=]"]


def test_devices_on_disks_are_not_counted_as_disks() -> None:
    disks = [made_disk("63+80000", physical=4096, name=f"sd{letter}") for letter in "ab"]
    devices = [
        made_disk("63+80000", physical=4096, name="md0", kind=DiskKind.MD),
        made_disk(name="dm-0", kind=DiskKind.DM),
    ]
    said = text(judge(*disks, *devices), verbose=False).splitlines()
    assert said[0] == "2 of 2 disks and 1 of 2 stacked devices have misaligned partitions"
    assert said[-2].startswith("2 disks and 2 stacked devices: ")


@pytest.mark.parametrize(
    ("width", "start"), [(60, "1  31.50KiB"), (80, "1       63  31.50KiB"), (120, "1       63  31.50KiB")]
)
def test_a_narrow_table_keeps_every_distance_whole(width: int, start: str) -> None:
    row = next(line for line in text(old_disk(), width=width, verbose=False).splitlines() if "31.50KiB" in line)
    assert start in row and "3584B past" in row and row.endswith("(assumed)")
    assert cell_width(row) <= width


def test_commands_that_are_left_out_are_counted() -> None:
    disks = [made_disk("63+80000", name=f"vd{letter}", physical=4096) for letter in "abcdefgh"]
    said = text(judge(*disks), verbose=False)
    assert said.count("aligntool plan realign") == 3 and "    … and 5 more; -v shows them\n" in said
    assert text(judge(*disks)).count("aligntool plan realign") == 8


@pytest.mark.parametrize(
    ("type_code", "type_name", "read", "words"),
    [
        ("0x83", "Linux", True, "unrecognised"),
        ("0x83", "Linux", False, "not read"),
        ("21686148-6449-6E6F-744E-656564454649", "BIOS boot", True, "BIOS boot"),
    ],
)
def test_the_type_in_the_table_is_not_shown_as_content(
    type_code: str, type_name: str, *, read: bool, words: str
) -> None:
    disk = made_disk("2048+20971520")
    part = replace(disk.partitions[0], type_code=type_code, type_name=type_name, content_read=read)
    ((*_, content, _),) = table_rows(judge(replace(disk, partitions=(part,))).judged[0])
    assert content == words
