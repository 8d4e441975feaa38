"""The page against a strict HTML parser, other tools' reports of the same disks, and hostile names."""

import re
import unicodedata
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Code, Finding, Repair, Severity, predict
from aligntool.commands import Command, Hint
from aligntool.inventory import Disk, Fault, InFlight, Inventory, Layer, Table, TableFault, TableLabel
from aligntool.raid.ceilings import known_rates
from aligntool.raid.running import arrays_of
from aligntool.recipes.drives import load_drives
from aligntool.render.lines import harmless
from aligntool.render.report.disks import Content, ceiling_chart, cost_words, headline
from aligntool.render.report.page import page_html
from aligntool.render.report.rows import MOST_FINE, Next, commands_of, next_steps
from aligntool.system import Manifest
from aligntool.units import KIB, Extent
from tests.audit.machines.captured import report
from tests.raid.builders import drive, layer, linked
from tests.render.report.pages import HOSTILE, array_machine, array_page, captured_page, content_of, named_page
from tests.thorough import sample, when_thorough

MACHINES = ("md-on-misaligned-partitions", "nvme-behind-switch", "sata-usb-and-sd-card", "lowest-aligned-7")
SVG = "{http://www.w3.org/2000/svg}"
ACTIVE = {"script", "iframe", "object", "embed", "form", "base", "link", "image", "use", "foreignObject", "a", "img"}


def parsed(page: str) -> ElementTree.Element:
    """Parse by the rules of the HTML standard; any parse error raises."""
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    assert isinstance(tree, ElementTree.Element)
    return tree


def words_of(tree: ElementTree.Element) -> str:
    return "".join(tree.itertext())


def articles(tree: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [one for one in tree.iter("article") if kind in one.attrib.get("class", "").split()]


def pages() -> list[str]:
    return [array_page(), *(captured_page(machine) for machine in MACHINES)]


@when_thorough("every report")
def test_every_page_is_html_without_a_single_parse_error() -> None:
    for page in pages():
        assert parsed(page).tag == "html"


def test_a_page_has_no_external_references() -> None:
    for page in pages():
        for element in parsed(page).iter():
            for name, value in element.attrib.items():
                assert not str(name).startswith("on"), (element.tag, name)
                assert name not in ("src", "srcset", "action", "style", "background", "poster")
                if name == "href":
                    assert value.startswith("#") or value == "data:,", value
        assert "@import" not in page and "url(" not in page


def test_ids_are_unique_and_every_reference_leads_to_one() -> None:
    for page in pages():
        tree = parsed(page)
        ids = [element.attrib["id"] for element in tree.iter() if "id" in element.attrib]
        assert len(ids) == len(set(ids))
        for element in tree.iter():
            named = element.attrib.get("aria-labelledby", "").split()
            named += [element.attrib["href"][1:]] if element.attrib.get("href", "").startswith("#") else []
            assert set(named) <= set(ids), named


def test_heading_levels_increase_by_one_and_a_single_h1_exists() -> None:
    for page in pages():
        levels = [int(element.tag[1]) for element in parsed(page).iter() if re.fullmatch(r"h\d", str(element.tag))]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(later <= before + 1 for before, later in pairwise(levels))


def test_every_table_has_a_caption_and_header_cells_with_a_scope() -> None:
    for page in pages():
        tables = list(parsed(page).iter("table"))
        assert tables
        for table in tables:
            assert words_of(next(table.iter("caption"))).strip()
            assert all("scope" in head.attrib for head in table.iter("th"))


def test_every_picture_has_a_title_and_a_description() -> None:
    for page in pages():
        pictures = [one for one in parsed(page).iter(f"{SVG}svg") if one.attrib.get("role") == "img"]
        assert pictures
        for picture in pictures:
            assert words_of(next(picture.iter(f"{SVG}title"))).strip()
            assert len(words_of(next(picture.iter(f"{SVG}desc")))) > 20


def disk_rows(tree: ElementTree.Element) -> list[tuple[list[str], ElementTree.Element]]:
    """Return the rows of disks: the names of the disks, and the article."""
    found = []
    for article in articles(tree, "disk"):
        listed = [words_of(line) for line in article.iter("p") if "disks with the same table" in words_of(line)]
        names = listed[0].partition(": ")[2].split(", ") if listed else [words_of(next(article.iter("h3")))]
        found.append((names, article))
    return found


def table_of(article: ElementTree.Element) -> list[list[str]]:
    return [[words_of(cell) for cell in row] for body in article.iter("tbody") for row in body]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_disk_partition_and_finding_is_on_the_page(machine: str) -> None:
    tree = parsed(captured_page(machine))
    found = report(machine)
    rows = {name: article for names, article in disk_rows(tree) for name in names}
    assert rows.keys() == {judged.disk.name for judged in found.judged}
    for judged in found.judged:
        shown = [row[0] for row in table_of(rows[judged.disk.name])]
        assert shown == [str(part.number) for part in judged.disk.partitions]
    heads = " ".join(words_of(head) for head in tree.iter("h4"))
    assert {finding.code.value for finding in found.findings} == set(re.findall(r"AT\d{3}", heads))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_finding_of_a_disk_is_in_the_row_of_that_disk(machine: str) -> None:
    found = report(machine)
    rows = {name: article for names, article in disk_rows(parsed(captured_page(machine))) for name in names}
    for finding in found.findings:
        if finding.severity is not Severity.INFO and finding.disk:
            article = rows[finding.disk]
            (summary,) = (one for one in article.iter("summary") if "row" in one.attrib.get("class", "").split())
            assert finding.code.value in words_of(summary)
            assert finding.summary.partition(finding.disk)[2].lstrip(": ") in words_of(article)


def test_a_row_has_the_tone_of_its_verdict_and_the_border_of_its_worst_finding() -> None:
    found = content_of(one_disk(1 << 20))
    warning = Finding(Code.GPT_BACKUP_DAMAGED, Severity.WARNING, "nvme1n1: damaged", "nvme1n1")
    tree = parsed(page_html(replace(found, report=replace(found.report, findings=(warning,)))))
    (summary,) = (one for one in tree.iter("summary") if "row" in one.attrib.get("class", "").split())
    (verdict,) = (one for one in summary if "verdict" in one.attrib.get("class", "").split())
    assert summary.attrib["class"] == "row warning" and verdict.attrib["class"] == "verdict good"


def test_a_backup_is_recommended_only_before_a_plan() -> None:
    assert "make a backup" in words_of(banner_of(parsed(page_html(content_of(one_disk(32256))))))
    assert "make a backup" not in words_of(banner_of(parsed(page_html(content_of(unknown_disk())))))


def test_equal_disks_share_a_row_and_disks_with_other_tables_do_not() -> None:
    names = [names for names, _ in disk_rows(parsed(captured_page("md-on-misaligned-partitions")))]
    assert ["vda", "vdb", "vdc"] in names and ["sda", "sdb", "sdc"] in names
    assert ["vdd"] in names, "the content of one of its partitions is not recognised"
    first, second = one_disk(32256).disks[0], one_disk(32256).disks[0]
    moved = replace(second.partitions[0], extent=Extent(32256, 2 << 20))
    for other, rows in ((second.partitions[0], 1), (moved, 2)):
        disks = (replace(first, name="sda"), replace(second, name="sdb", partitions=(other,)))
        assert len(disk_rows(parsed(page_html(content_of(Inventory(disks)))))) == rows


@pytest.mark.parametrize(
    ("changed", "in_partition", "rows"),
    [
        ({"serial": "S9", "wwn": "eui.9"}, {"node": "sdb1"}, 1),
        ({"firmware": "9"}, {}, 2),
        ({"queue_depth": 9}, {}, 2),
        ({}, {"content_hint": "xfs"}, 2),
        ({}, {"name": "home"}, 2),
        ({}, {"content": (layer("ext4", "backup"),)}, 2),
        ({}, {"mounted_at": ("/srv",)}, 2),
    ],
)
def test_disks_that_differ_in_what_the_page_shows_have_rows_of_their_own(
    changed: dict[str, Any], in_partition: dict[str, Any], rows: int
) -> None:
    first = replace(one_disk(32256).disks[0], name="sda")
    other = replace(first.partitions[0], **in_partition)
    second = replace(first, name="sdb", partitions=(other,), **changed)
    tree = parsed(page_html(content_of(Inventory((first, second)))))
    assert len(disk_rows(tree)) == rows


def test_disks_with_other_findings_have_rows_of_their_own() -> None:
    first = replace(one_disk(1 << 20).disks[0], name="sda")
    found = content_of(Inventory((first, replace(first, name="sdb"))))
    for words, rows in (("damaged", 1), ("lost", 2)):
        both = tuple(
            Finding(Code.GPT_BACKUP_DAMAGED, Severity.INFO, f"{name}: {said}", name, evidence=(f"seen on {name}1",))
            for name, said in (("sda", "damaged"), ("sdb", words))
        )
        tree = parsed(page_html(replace(found, report=replace(found.report, findings=both))))
        assert len(disk_rows(tree)) == rows


def test_the_link_of_each_of_several_equal_drives_is_shown_with_its_name() -> None:
    first, second = (linked(drive(number), 10**9) for number in (0, 1))
    page = words_of(parsed(page_html(content_of(Inventory((first, second))))))
    assert "path of nvme0n10000:00:00.0" in page and "path of nvme1n10000:01:00.0" in page


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_are_folded_unless_there_is_only_one_and_the_worst_come_first(machine: str) -> None:
    tree, found = parsed(captured_page(machine)), report(machine)
    worst = {
        judged.disk.name: min((one.severity.rank for one in found.findings if one.disk == judged.disk.name), default=2)
        for judged in found.judged
    }
    rows = disk_rows(tree)
    ranks = [worst[names[0]] for names, _ in rows]
    assert ranks == sorted(ranks)
    assert all((article[0].get("class") == "alone") is (len(rows) == 1) for _, article in rows)


def folded_names(tree: ElementTree.Element) -> list[str]:
    """Return the disks of the rows that are not seen at once."""
    folded = [one for one in tree.iter("details") if "more row" in words_of(one[0])]
    assert all(words_of(one[0]).endswith(" of disks, none with a problem") for one in folded)
    return [name for one in folded for names, _ in disk_rows(one) for name in names]


def sized(start: int, count: int) -> list[Disk]:
    """Return disks that no row merges."""
    (disk,) = one_disk(start).disks
    return [replace(disk, name=f"sd{at}-{start}", size=(1 << 30) + (at << 20), links=()) for at in range(count)]


def test_more_rows_than_fit_are_folded_into_one_line_if_all_are_fine() -> None:
    disks = sized(1 << 20, MOST_FINE + 3)
    tree = parsed(page_html(content_of(Inventory(tuple(disks)))))
    assert folded_names(tree) == [disk.name for disk in disks[MOST_FINE:]]
    assert len(disk_rows(tree)) == MOST_FINE + 3


def test_no_row_with_a_problem_is_folded() -> None:
    fine, off = sized(1 << 20, MOST_FINE + 3), sized(32256, MOST_FINE + 3)
    (unknown,) = unknown_disk().disks
    tree = parsed(page_html(content_of(Inventory((*fine, *off, replace(unknown, name="sdx"))))))
    assert sorted(folded_names(tree)) == sorted(disk.name for disk in fine)
    assert len(disk_rows(tree)) == 2 * MOST_FINE + 7


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_folded_of_a_machine_is_on_the_grid_without_a_warning(machine: str) -> None:
    found = report(machine)
    answers = {
        judged.disk.name: {verdict.answer for verdict in judged.verdicts if verdict.matters} for judged in found.judged
    }
    for name in folded_names(parsed(captured_page(machine))):
        assert answers[name] <= {Answer.ON}
        assert all(one.severity is Severity.INFO for one in found.findings if one.disk == name)


@pytest.mark.parametrize("machine", MACHINES)
def test_no_command_and_no_finding_is_on_the_page_twice(machine: str) -> None:
    tree = parsed(captured_page(machine))
    banner, *boxes = tree.iter("pre")
    commands = [line for one in boxes for line in words_of(one).splitlines()]
    alone = [one for names, article in disk_rows(tree) if len(names) == 1 for one in article.iter("pre")]
    assert all(words_of(banner) not in words_of(one).splitlines() for one in alone)
    assert words_of(banner) and len(commands) == len(set(commands))
    assert all(line.startswith(("sudo ", "aligntool ")) for line in commands)
    said = [words_of(line) for one in tree.iter("div") if "finding" in one.attrib.get("class", "").split()
            for line in one.iter("li") if " of a" in words_of(line)]  # fmt: skip
    assert len(said) == len(set(said))


def one_disk(start: int, size: int = 1 << 30) -> Inventory:
    disk = array_machine().disks[1]
    part = replace(disk.partitions[0], extent=Extent(start, 1 << 20), content=(), holders=())
    seen = ((1, part.extent),)
    disk = replace(disk, size=size, partitions=(part,), kernel_partitions=seen, links=(), holders=(), nvme=None)
    return Inventory((disk,))


def unknown_disk() -> Inventory:
    """Return the kernel's value for a stacked device whose members contradict each other."""
    (disk,) = one_disk(1 << 20).disks
    return Inventory((replace(disk, limits=replace(disk.limits, alignment_offset=-1)),))


@pytest.mark.parametrize(
    ("machine", "tone", "said"),
    [
        (one_disk(32256), "error", "1 of 1 partition misaligned"),
        (one_disk(1 << 20), "good", "OK: every partition of 1 disk starts on its boundaries"),
        (Inventory(()), "info", "No partition to judge"),
        (unknown_disk(), "warning", "Nothing could be judged"),
        (array_machine(), "error", "1 of 3 disks has misaligned partitions"),
    ],
    ids=["off", "on", "empty", "unknown", "several"],
)
def test_title_and_headline_state_the_machine_and_the_verdict(machine: Inventory, tone: str, said: str) -> None:
    tree = parsed(page_html(replace(content_of(machine), machine="server7")))
    (title,) = (one for one in tree.iter("title"))
    (headline,) = tree.iter("h1")
    assert words_of(title) == f"server7: {said} – aligntool"
    assert " ".join(words_of(headline).split()) == f"Storage report: server7 {said}"
    (banner,) = tree.iter("header")
    assert banner.attrib["class"] == f"banner {tone}"


def test_a_warning_prevents_the_ok_headline() -> None:
    found = content_of(one_disk(1 << 20))
    warning = Finding(Code.LINK_DEGRADED, Severity.WARNING, "a slow link", "nvme1n1")
    found = replace(found, report=replace(found.report, findings=(warning,)))
    text, tone = headline(found.report)
    assert (text, tone) == ("Every partition of 1 disk starts on its boundaries; 1 warning of another kind", "warning")


def banner_of(tree: ElementTree.Element) -> ElementTree.Element:
    (banner,) = tree.iter("header")
    return banner


@pytest.mark.parametrize("machine", MACHINES)
def test_the_banner_has_the_counts_and_a_bar_of_them(machine: str) -> None:
    banner, found = banner_of(parsed(captured_page(machine))), report(machine)
    counts = {answer: found.count_answers(answer) for answer in Answer}
    legend = [words_of(item).strip() for item in banner.iter("li")]
    assert legend[0].startswith(f"{sum(counts.values())} start")
    assert legend[1:4] == [
        f"{counts[answer]} {word}" for answer, word in zip(Answer, ("on", "off", "unknown"), strict=True)
    ]
    widths = {one.attrib["class"]: float(one.attrib["width"][:-1]) for one in banner.iter(f"{SVG}rect")}
    for answer, style in zip(Answer, ("good", "bad", "unknown"), strict=True):
        assert widths.get(style, 0) == pytest.approx(100 * counts[answer] / sum(counts.values()), abs=0.01)


def test_the_banner_has_the_predicted_cost_and_for_which_writes() -> None:
    said = words_of(banner_of(parsed(page_html(content_of(one_disk(32256))))))
    assert "Predicted: random 4KiB writes there run at 1/2 of the aligned rate" in said
    assert "Predicted" not in words_of(banner_of(parsed(page_html(content_of(one_disk(1 << 20))))))


def test_the_next_command_plans_the_move_or_finishes_the_one_in_flight() -> None:
    (box,) = banner_of(parsed(captured_page("md-on-misaligned-partitions"))).iter("pre")
    assert words_of(box) == "sudo aligntool plan realign /dev/vda"
    assert "vda" in disk_rows(parsed(captured_page("md-on-misaligned-partitions")))[0][0]
    off = Finding(Code.OFF_PHYSICAL, Severity.ERROR, "off", "sda", next="sudo aligntool plan realign /dev/sda")
    resume = Hint(Command("aligntool", ("resume", "/dev/sdb")))
    flight = Finding(Code.IN_FLIGHT, Severity.ERROR, "moving", "sdb", next=resume)
    found = replace(content_of(one_disk(32256)).report, findings=(off, flight))
    both = (
        ("to finish the move", "sudo aligntool resume /dev/sdb"),
        ("to undo it", "sudo aligntool rollback /dev/sdb"),
    )
    assert next_steps(found) == Next("sdb", "moving", both)
    planned = Next("sda", "", (("", "sudo aligntool plan realign /dev/sda"),))
    assert next_steps(replace(found, findings=(off,))) == planned
    assert next_steps(replace(found, findings=())) == Next()


def test_the_banner_of_a_move_in_flight_names_its_disk_and_both_ways_and_no_cost() -> None:
    (disk,) = one_disk(32256).disks
    flight = InFlight((1,), 1 << 20)
    moving = replace(disk, name="sdb", path="/dev/sdb", table=Table(TableLabel.GPT, 512, in_flight=flight))
    tree = parsed(page_html(content_of(Inventory((disk, moving)))))
    banner = banner_of(tree)
    said = " ".join(words_of(banner).split())
    assert [words_of(box).strip() for box in banner.iter("pre")] == [
        "sudo aligntool resume /dev/sdb",
        "sudo aligntool rollback /dev/sdb",
    ]
    assert "A move is in flight on sdb" in said and "sdb: a move of partitions is in flight" in said
    assert words_of(tree).count("entry 1 parked") == 1, "where the finding is, not in the banner as well"
    assert "Next for sdb, to finish the move:" in said and "Or to undo it:" in said and "Predicted" not in said
    names, article = disk_rows(tree)[0]
    assert names == ["sdb"] and "move in flight" in words_of(next(article.iter("summary")))


def test_the_banner_of_a_table_that_linux_does_not_read_has_the_reason_and_no_cost() -> None:
    (disk,) = one_disk(32256).disks
    fault = TableFault(Fault.GPT_PRIMARY_DAMAGED, "the primary header is gone", 512, hides=True)
    hurt = replace(disk, table=Table(TableLabel.GPT, 512, faults=(fault,)), kernel_partitions=())
    banner = banner_of(parsed(page_html(content_of(Inventory((hurt,))))))
    said = " ".join(words_of(banner).split())
    assert "Linux does not see these partitions" in said and "the primary header is gone" in said
    assert "docs/by-hand.md#a-damaged-partition-table" in said and "Predicted" not in said
    assert not list(banner.iter("pre")), "nothing to paste"


def test_a_cause_names_its_partitions_unless_it_explains_all() -> None:
    said = words_of(parsed(captured_page("lowest-aligned-7")))
    assert "Cause of partition 1: the first usable sector of a GPT" in said
    alone = words_of(parsed(page_html(content_of(one_disk(32256)))))
    assert re.search(r"Cause: the second track", alone)


def test_the_banner_has_the_range_of_predicted_costs() -> None:
    machine = report("lowest-aligned-7")
    assert "writes there run at 1/2 of the aligned rate" in cost_words(machine)
    at_page = replace(next(found for found in machine.findings if found.cost), cost=predict(16 * KIB))
    told = cost_words(replace(machine, findings=(*machine.findings, at_page)))
    assert "writes there run at 1/2 to 4/5 of the aligned rate" in told


def test_the_only_script_is_the_one_that_the_policy_names_and_its_buttons_are_hidden() -> None:
    tree = parsed(captured_page("md-on-misaligned-partitions"))
    (script,) = tree.iter("script")
    (policy,) = (one.attrib["content"] for one in tree.iter("meta") if "script-src" in one.attrib.get("content", ""))
    digest = b64encode(sha256(words_of(script).encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy and "unsafe" not in policy
    buttons = list(tree.iter("button"))
    assert len(buttons) == len(list(tree.iter("pre"))) and all("hidden" in one.attrib for one in buttons)


def test_commands_of_a_capture_are_for_the_captured_machine_and_without_that_prefix() -> None:
    said = words_of(parsed(captured_page("md-on-misaligned-partitions")))
    assert "Next for vda, on the captured machine" in said and "on the captured machine: sudo" not in said
    assert "sudo aligntool plan realign /dev/vdb" in said
    for heading, command in (
        ("Commands on the captured machine:", "sudo aligntool plan realign /dev/vdb"),
        ("To do with another program: these sections of the documentation:", "by hand, with mdadm"),
    ):
        assert re.search(rf"{heading}[^:]*{command}", said), heading


@pytest.mark.parametrize(("next_", "place"), [
    ("on the captured machine: sudo aligntool plan realign /dev/sda", ", on the captured machine"),
    ("aligntool audit --map --sysroot m.tar.xz sda", ""),
])  # fmt: skip
def test_a_command_for_the_capture_is_not_shown_as_one_for_the_captured_machine(next_: str, place: str) -> None:
    found = one_disk(32256)
    off = Finding(Code.OFF_PHYSICAL, Severity.ERROR, "off", "sda", next=next_)
    content = content_of(replace(found, captured=True, sysroot="m.tar.xz"))
    said = banner_of(parsed(page_html(replace(content, report=replace(content.report, findings=(off,))))))
    (asked,) = (each for each in said.iter("p") if each.attrib.get("class") == "asked")
    assert words_of(asked).strip().startswith(f"Next for sda{place}")
    assert ("on the captured machine" in words_of(said)) == bool(place)


def boxes_of(tree: ElementTree.Element) -> list[list[tuple[str, str]]]:
    """Return the stacks: the name and the class of each box."""
    return [
        [(words_of(box[0]), box.attrib.get("class", "")) for box in stack]
        for stack in tree.iter("ol")
        if stack.attrib.get("class") == "stack"
    ]


def test_a_stack_shows_the_misaligned_level_and_what_lies_on_it() -> None:
    """Of the captured machine: md0 (ext4) is on vda1 and vdb1, which start at sector 63; dm-0 is on md1, which is on
    the aligned vda2 and vdb2, and two volumes are on dm-0.
    """
    stacks = boxes_of(parsed(captured_page("md-on-misaligned-partitions")))
    assert [("vda1, vdb1", "error"), ("md0", "error"), ("ext4", "error")] in stacks
    aligned = [
        ("vda2, vdb2", "good"),
        ("md1", "good"),
        ("dm-0", "good"),
        ("dm-1, dm-2", "good"),
        ("ext4, swap", "good"),
    ]
    assert aligned in stacks


def test_a_stack_of_contents_flows_up_until_data_begin_on_the_grid() -> None:
    def stack(luks_data: int) -> list[list[tuple[str, str]]]:
        (disk,) = one_disk(32256).disks
        filesystem = Layer("ext4", Extent(luks_data, 1 << 19))
        luks = Layer("crypto_LUKS", Extent(32256, 1 << 20), version="2", data_start=luks_data, inner=(filesystem,))
        part = replace(disk.partitions[0], content=(luks,), content_read=True)
        return boxes_of(parsed(page_html(content_of(Inventory((replace(disk, partitions=(part,)),))))))

    ((partition, *above),) = stack(32256 + 65536)
    assert partition[1] == "error" and above == [("LUKS2", "error"), ("ext4", "error")]
    # The audit does not judge a partition whose data begin elsewhere, on the grid: its own box has no colour.
    assert [tone for _, tone in stack(65536)[0]] == ["", "good", "good"]


def test_the_verdict_cell_of_a_table_is_coloured() -> None:
    tree = parsed(captured_page("lowest-aligned-7"))
    cells = {words_of(row[0]): row[1].attrib["class"].split() for body in tree.iter("tbody") for row in body}
    assert "error" in cells["1"] and "warning" in cells["2"] and "good" in cells["5"] and cells["8"] == ["verdict"]


def test_firmware_temperature_labels_and_mount_points_are_on_the_page() -> None:
    disk = array_machine().disks[1]
    layer = Layer("ext4", Extent(0, 1 << 20), label="a label")
    part = replace(disk.partitions[0], content=(layer,), content_read=True, mounted_at=("/srv/a", "/srv/b"))
    found = content_of(Inventory((replace(disk, firmware="FW12", partitions=(part,)),)))
    said = words_of(parsed(page_html(replace(found, temperatures={disk.name: 38.85}))))
    for word in ("firmware FW12", "38.85 °C", 'label "a label"', "/srv/a, /srv/b"):
        assert word in said, word


def test_charts_precede_notes() -> None:
    tree = parsed(array_page())
    (result,) = (one for one in tree.iter("article") if one.attrib["aria-labelledby"] == "measured-1")
    kinds = [one.tag if one.tag != "div" else one.attrib["class"] for one in result]
    assert kinds.index("charts") < kinds.index("scroll") < kinds.index("ul")


def test_the_limiting_link_is_named_and_marked() -> None:
    # By hand: two drives of 3.94 GB/s share 3.94 GB/s, the third has 1.97 GB/s; a stripe gives each the minimum, 1.97.
    tree = parsed(array_page())
    said = words_of(tree)
    assert "5.91 GB/s" in said
    (branches,) = (one for one in tree.iter("div") if one.attrib.get("class") == "tree")
    marked = [
        item for item in branches.iter("li") if any("limits" in words_of(part) for part in item if part.tag == "span")
    ]
    assert len(marked) == 1
    below = [words_of(one).split()[0] for one in marked[0].iter("strong")]
    assert below[0] == "DMI" and {"nvme0n1", "nvme1n1"} <= set(below)
    assert "slower than possible: 8 GT/s x4, 3.94 GB/s" in said


def test_a_drive_slower_than_its_link_is_drawn_and_marked_as_the_limit() -> None:
    # The data sheet of the 400 GB Intel SSD 750 has 2.2 GB/s reading and 0.9 GB/s writing; the links carry 1.97 each.
    machine = array_machine()
    first = replace(machine.disks[0], model="INTEL SSDPEDMW400G4")
    machine = replace(machine, disks=(first, *machine.disks[1:]))
    known = {disk.name: load_drives().known(disk) for disk in machine.disks}
    rates = known_rates(known)
    found = audit(machine, known)
    (array,) = arrays_of(found, (), rates)
    chart = ceiling_chart(array, found, 1, rates)
    assert chart is not None
    shown = {bar.label: (bar.text, bar.kind, bar.note) for bar in chart.bars}
    assert shown["md0, writing"][0] == "2.70 GB/s"  # three times 0.9
    assert shown["nvme0n1 itself, reading"][:2] == ("2.20 GB/s", "plain")
    assert shown["nvme0n1 itself, writing"][:2] == ("900 MB/s", "bad")
    assert shown["nvme0n1 itself, writing"][2] == "bottleneck"
    assert chart.note == "nvme0n1 itself: known: Intel SSD 750 400 GB"
    tree = parsed(page_html(Content(found, (array,), rates=rates)))
    (branches,) = (one for one in tree.iter("div") if one.attrib.get("class") == "tree")
    bound = [words_of(one) for one in branches.iter("li") if not list(one.iter("ul")) and "limits md0" in words_of(one)]
    assert len(bound) == 1 and "nvme0n1" in bound[0]


def test_a_link_is_marked_as_slow_only_where_the_audit_reports_it() -> None:
    # Root ports of up to x4 with drives of x1 below: both ends together cannot do more.
    slow = {finding.disk for finding in report("nvme-behind-switch").findings if finding.code.value == "AT501"}
    assert words_of(parsed(captured_page("nvme-behind-switch"))).count("slower than possible") == len(slow)
    assert words_of(parsed(array_page())).count("slower than possible") == 1


def test_the_row_of_an_array_has_its_level_on_every_width() -> None:
    assert '<span class="model">md · raid0</span>' in array_page()


@sample(3)
@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_rendered_as_text_only(word: str) -> None:
    check_hostile(word)


@when_thorough("a report for each name")
@settings(max_examples=15)
@given(st.text(st.characters(), max_size=60))
def test_no_name_becomes_markup(word: str) -> None:
    check_hostile(word)


@cache
def usual_links() -> int:
    return sum(one.tag == "a" for one in parsed(named_page("usual")).iter())


def check_hostile(word: str) -> None:
    page = named_page(word)
    tree = parsed(page)
    tags = [str(element.tag).removeprefix(SVG) for element in tree.iter()]
    assert not (set(tags) - {"a", "link", "script"}) & ACTIVE
    assert tags.count("a") == usual_links() and tags.count("link") == 1  # the icon
    assert tags.count("script") == 1
    for element in tree.iter():
        assert not any(str(name).startswith("on") for name in element.attrib)
        assert "javascript:" not in element.attrib.get("href", "")
    hidden = {char for char in page if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")}
    assert hidden <= {"\n"}
    said = words_of(tree)
    assert harmless(word[:60]).strip() in said
    assert max((len(text) for text in tree.itertext() if "{" not in text), default=0) < 60_000


def test_the_page_of_a_capture_has_its_date_where_the_manifest_has_one() -> None:
    inventory = one_disk(1 << 20)
    dated = replace(inventory, manifest=Manifest(date="2026-11-23T10:20:30Z"))
    assert "captured on 2026-11-23 10:20 UTC" in words_of(parsed(page_html(content_of(dated))))
    assert "captured on" not in words_of(parsed(page_html(content_of(inventory))))


def test_a_row_of_equal_disks_has_the_commands_of_all_of_them() -> None:
    (part,) = one_disk(32256).disks
    disks = tuple(replace(part, name=f"sd{letter}", path=f"/dev/sd{letter}") for letter in "abc")
    tree = parsed(page_html(content_of(Inventory(disks))))
    commands = [words_of(one).splitlines() for one in tree.iter("pre")]
    wanted = [f"sudo aligntool plan realign /dev/sd{letter}" for letter in "abc"]
    assert commands == [wanted[:1], wanted]


def test_a_row_lists_the_command_at_the_top_with_its_others_and_what_each_covers() -> None:
    alone, shrunk = (f"sudo aligntool plan realign /dev/sda {options}" for options in ("-p 5", "--shrink"))
    found = replace(audit(one_disk(32256), {}).findings[0], next=alone)
    repair = Repair(1, "with-shrink", "there is not enough room", shrunk)
    assert commands_of([found], [repair], set(), {alone}, captured=False) == [
        ("Commands for partition 5 alone", [alone]),
        ("Commands for all misaligned partitions, after a file system is shrunk", [shrunk]),
    ]
    assert commands_of([found], [], set(), {alone}, captured=False) == []
