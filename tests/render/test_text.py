"""What people read: nothing from a disk may act on the terminal, and 80 columns are enough."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.report import Answer, Report
from aligntool.inventory import DiskKind, TableLabel
from aligntool.render.audit import audit_lines
from aligntool.render.disk_map import map_lines, strip_lines
from aligntool.render.lines import cell_width, fit, harmless, show, text_of, wants_color, wrapped
from aligntool.render.prometheus import Run, audit_prometheus
from tests.audit.made import judge, made_disk
from tests.thorough import examples

STRIP = 4  # lines of the whole disk above the first start: name, strip, labels, a blank one
HOSTILE = "\x1b]0;owned\x07\x1b[31m[red]bold[/red]\r\n\u202eevil\x9b2J\udcff"


def text(report: Report, *, width: int = 80, verbose: bool = True, quiet: bool = False) -> str:
    return "".join(text_of(audit_lines(report, width=width, verbose=verbose, quiet=quiet)))


def old_disk() -> Report:
    return judge(made_disk("63+80000 ntfs; 80063+90000 ext4; 8388608+90000", name="disk.img", kind=DiskKind.IMAGE,
                           physical=None, label=TableLabel.DOS))  # fmt: skip


def test_a_table_names_sector_bytes_verdict_cause_cost_and_next_command() -> None:
    said = " ".join(text(old_disk()).split())
    for words in ("63", "32256B", "off 4KiB? by 3584B", "Windows XP", "1/2 of the aligned write rate",
                  "reads 8KiB and writes 8KiB", "aligntool plan realign", "on the grid", "2 off"):  # fmt: skip
        assert words in said, words


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    long = [line for line in text(old_disk(), width=width).splitlines() if cell_width(line) > width]
    assert long == []


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


def test_markup_in_a_label_is_shown_and_not_obeyed_in_colour() -> None:
    stream = io.StringIO()
    report = judge(replace(made_disk("63+4096"), model=HOSTILE))
    show(audit_lines(report, width=200, verbose=True, quiet=False), stream, color=True)
    said = stream.getvalue()
    assert "[red]bold[/red]" in said
    allowed = re.sub(r"\x1b\[[0-9;]*m", "", said)  # what rich itself writes for its own colours
    assert all(char.isprintable() or char == "\n" for char in allowed)


def test_escapes_show_what_was_there() -> None:
    assert harmless("a\x1bb\u202ec\udcffd") == "a\\x1bb\\u202ec\\xffd"
    assert harmless("Straße 日本") == "Straße 日本"


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False)],
)
def test_colour_only_on_a_terminal_that_wants_it(environment: dict[str, str], terminal: bool, colour: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    assert wants_color(Stream(), environment) is colour


def test_quiet_is_a_line_for_each_error_and_warning_and_nothing_when_all_is_well() -> None:
    lines = text(old_disk(), verbose=False, quiet=True).splitlines()
    assert len(lines) == 2 and all(line.startswith("error: ") and line.endswith("[AT101]") for line in lines)
    assert text(judge(made_disk("2048+4096", physical=4096)), quiet=True) == ""


def test_many_disks_that_are_fine_are_counted_and_not_listed() -> None:
    fine = [made_disk("2048+4096", name=f"sd{index}", physical=4096) for index in range(40)]
    bad = made_disk("63+4096", name="sdbad", physical=4096)
    said = text(judge(*fine, bad), verbose=False)
    assert "40 more disks" in said and "sdbad" in said and "sd17 " not in said
    assert "sd17" in text(judge(*fine, bad), verbose=True)


def test_the_map_draws_the_start_where_it_lies() -> None:
    report = judge(made_disk("63+80000", physical=4096))
    lines = "".join(text_of(map_lines(report, width=140))).splitlines()[STRIP:]
    assert "28672" in lines[1] and "32768" in lines[1]
    ruler, blocks = lines[2], lines[3]
    sector = ruler.index("|")
    assert ruler[sector + 16] == "|", "one sector is 16 cells"
    assert blocks.index("[") - sector == 14, "3584 of 4096 bytes are 14 of 16 cells"
    assert lines[4].strip().startswith("^") and lines[4].index("^") == blocks.index("[")
    assert "every 4KiB request touches one unit more" in lines[4]


def test_the_map_of_an_aligned_partition_draws_blocks_on_the_boundaries() -> None:
    lines = "".join(text_of(map_lines(judge(made_disk("2048+80000", physical=4096)), width=80))).splitlines()[STRIP:]
    assert [index for index, char in enumerate(lines[2]) if char == "|"] == [
        index for index, char in enumerate(lines[3]) if char == "["
    ]


def test_the_map_of_a_start_that_was_checked_against_nothing_has_a_title_and_no_drawing() -> None:
    """As of a partition in a table of which both copies are damaged."""
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
    head, strip, labels, *_ = "".join(text_of(strip_lines(judged, width=width))).splitlines()
    assert head.startswith(judged.disk.name) and head.endswith("2GiB") and len(head) == len(strip) == width
    first, second, third = (match.start() for match in re.finditer(r"\[", strip))
    assert strip[first:].startswith("[1=") and strip[third:].startswith("[3]")
    for cells, share in ((second - first, 0.1), (third - second, 0.4), (first, 0)):
        assert abs(cells - share * width) <= 2, "within two columns, which the smallest one needs"
    assert labels[first:].startswith("^204.") and len(labels) <= width
    assert "^" not in labels[second:third]


def test_there_is_no_strip_of_more_partitions_than_columns() -> None:
    (judged,) = judge(made_disk("; ".join(f"{2048 * at}+8" for at in range(1, 91)), physical=4096)).judged
    assert list(strip_lines(judged, width=80)) == []


def test_wide_characters_are_measured_as_terminals_do() -> None:
    assert cell_width("日本") == 4
    assert fit("日本語テキスト", 6) == "日本… " or cell_width(fit("日本語テキスト", 6)) == 6
    assert list(wrapped("aa bb cc", 5, "")) == ["aa bb", "cc"]
    assert list(wrapped("  - aa bb cc", 9, "    ")) == ["  - aa bb", "    cc"]
