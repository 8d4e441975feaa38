"""Errors about more than slow requests come before misaligned starts: in the headline, the rows, the next command."""

from dataclasses import replace
from typing import Any

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Code, Finding, Report, Severity
from aligntool.inventory import ArrayFacts, Disk, Inventory
from aligntool.render.audit import INTACT, audit_lines, damages_of_disks, next_finding, verdict_line
from aligntool.render.lines import Style
from aligntool.render.report.page import page_html
from tests.audit.array_builders import array, drive
from tests.audit.builders import made_disk
from tests.render.report.pages import content_of

OFF = made_disk("63+20971520", name="sdz", physical=4096)


def degraded(level: str, number: int, lost: int = 1) -> tuple[Disk, ...]:
    drives = [drive(number * 10 + at) for at in range(3 if level == "raid5" else 2)]
    found = array(drives, level, degraded=lost)
    assert isinstance(found.array, ArrayFacts)
    return (*drives, replace(found, name=f"md{number}", path=f"/dev/md{number}"))


MIRROR = degraded("raid1", 1)
PARITY = degraded("raid5", 2)


def judge(*disks: Disk) -> Report:
    return audit(Inventory(disks), {})


def text_of(report: Report, width: int = 80) -> list[str]:
    lines = audit_lines(report, width=width, verbose=False, quiet=False)
    return ["".join(text for text, _ in line) for line in lines]


@pytest.mark.parametrize(
    ("disks", "said"),
    [
        (MIRROR, "1 array has lost a member: md1; every partition of 2 disks and 1 stacked device"),
        ((*MIRROR, *PARITY, OFF), "2 arrays have lost members: md1, md2; 1 of 6 disks has misaligned partitions"),
    ],
)
def test_the_headline_names_an_array_that_lost_a_member_first(disks: tuple[Disk, ...], said: str) -> None:
    ((words, style),) = verdict_line(judge(*disks))
    assert words.startswith(said) and style is Style.BAD


def rebuilt(level: str, number: int, lost: int = 1, **words: Any) -> tuple[Disk, ...]:
    """As md.rst and md.c have it: the state of a member with a slot that is not in sync is "spare"."""
    *drives, found = degraded(level, number, lost)
    assert found.array
    states = tuple((name, "in_sync" if at else "spare") for at, name in enumerate(found.array.members))
    words = {"sync_action": "recover", "member_states": states, "spares": (), **words}
    return (*drives, replace(found, array=replace(found.array, **words)))


@pytest.mark.parametrize(
    ("disks", "headline", "row"),
    [
        (rebuilt("raid1", 3), "1 array is being rebuilt: md3", "degraded: 1 of 2 members being rebuilt"),
        (rebuilt("raid1", 3, sync_action="idle"), "1 array has lost a member: md3", "degraded: 1 of 2 members missing"),
        (rebuilt("raid5", 3, 2), "1 array has lost a member: md3", "degraded: 2 of 3 members missing or being rebuilt"),
        (rebuilt("raid1", 3, state="broken"), "1 array has lost a member: md3", "has failed: it has lost more"),
        (
            (*rebuilt("raid1", 3), *MIRROR, *rebuilt("raid1", 4)),
            "2 arrays are being rebuilt: md3, md4; 1 array has lost a member: md1",
            "degraded: 1 of 2 members being rebuilt",
        ),
    ],
)
def test_an_array_that_is_being_rebuilt_says_so(disks: tuple[Disk, ...], headline: str, row: str) -> None:
    report = judge(*disks)
    ((words, style),) = verdict_line(report)
    assert words.startswith(headline) and style is Style.BAD
    assert damages_of_disks(report)["md3"].startswith(row)


def test_the_row_of_a_degraded_array_says_so_and_is_before_slow_disks() -> None:
    said = text_of(judge(OFF, *MIRROR, *PARITY))
    assert not any(INTACT in line for line in said)
    rows = [line for line in said if line.startswith(("md", "sdz", "nvme"))]
    assert rows[0].startswith("md1       degraded: 1 of 2 members missing")
    assert rows[1].startswith("md2       degraded: 1 of 3 members missing")
    assert rows[2].startswith("sdz       1 of 1 off")


def test_a_machine_of_few_disks_shows_the_damage_with_the_array() -> None:
    said = text_of(judge(OFF, *MIRROR))
    at = next(number for number, line in enumerate(said) if line.startswith("md1 "))
    assert said[at + 1] == "  degraded: 1 of 2 members missing"


def test_the_next_command_is_that_of_the_damage() -> None:
    found = next_finding(judge(OFF, *MIRROR))
    assert found and (found.code, found.disk) == (Code.ARRAY_DEGRADED, "md1")


def test_the_first_error_that_is_listed_is_the_damage() -> None:
    errors = [line.split()[1] for line in text_of(judge(OFF, *MIRROR)) if line.startswith("✗")]
    assert errors[:2] == ["AT601", "AT101"]


def test_other_errors_have_their_title_in_the_headline_and_the_rest_are_counted() -> None:
    report = judge(OFF, *MIRROR)
    kinds = (Code.OVERLAP, Code.GPT_PRIMARY_DAMAGED, Code.BEYOND_END)
    errors = tuple(Finding(code, Severity.ERROR, "words", "sdz") for code in kinds)
    ((words, _),) = verdict_line(replace(report, findings=errors))
    assert words.startswith("Partitions overlap: sdz; the primary GPT is damaged: sdz; 1 more error; 1 of 3 disks")


def test_the_page_shows_a_degraded_array_in_the_colour_of_errors() -> None:
    page = page_html(content_of(Inventory((OFF, *MIRROR))))
    row = page.partition('<h3 id="disk-md1">')[2].partition("</summary>")[0]
    assert '<span class="verdict error">degraded: 1 of 2 members missing' in row
    assert 'class="bad"' in row and 'class="good"' not in row
    assert page.index('id="disk-md1"') < page.index('id="disk-sdz"')
    assert "mdadm --detail" in page.partition("</header>")[0]
