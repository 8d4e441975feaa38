"""The page against a strict HTML parser, other tools' reports of the same disks, and hostile names."""

import re
import unicodedata
from dataclasses import replace
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.judge import audit
from aligntool.audit.report import Code, Finding, Severity
from aligntool.inventory import DiskKind, Inventory, Layer
from aligntool.raid.ceilings import known_rates
from aligntool.raid.running import arrays_of
from aligntool.recipes.drives import load_drives
from aligntool.render.lines import harmless
from aligntool.render.report.disks import Content, ceiling_chart, headline
from aligntool.render.report.page import page_html
from aligntool.units import Extent
from tests.machines.captured import report
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


@pytest.mark.parametrize("machine", MACHINES)
def test_every_disk_partition_and_finding_is_on_the_page(machine: str) -> None:
    tree = parsed(captured_page(machine))
    found = report(machine)
    disks = {words_of(next(article.iter("h3"))): article for article in articles(tree, "disk")}
    assert len(disks) == len(found.judged)
    for judged in found.judged:
        article = disks[judged.disk.name]
        shown = [words_of(row[0]) for body in article.iter("tbody") for row in body if len(row) > 2]
        expected = [str(part.number) for part in judged.disk.partitions]
        assert shown == (expected or shown)
    heads = " ".join(words_of(head) for head in tree.iter("h3"))
    assert {finding.code.value for finding in found.findings} == set(re.findall(r"AT\d{3}", heads))


@pytest.mark.parametrize("machine", MACHINES)
def test_disks_without_errors_and_warnings_are_folded_below_the_others(machine: str) -> None:
    tree, found = parsed(captured_page(machine)), report(machine)
    bad = {one.disk for one in found.findings if one.severity.value != "info"}
    shown = [(words_of(next(one.iter("h3"))), one[0].tag == "details") for one in articles(tree, "disk")]
    assert all(folded is (name not in bad) for name, folded in shown)
    assert [folded for _, folded in shown] == sorted(folded for _, folded in shown)
    assert all((one[0].tag == "details") is ("info" in one.attrib["class"]) for one in articles(tree, "finding"))


def test_loop_devices_without_a_table_are_folded_into_one_line() -> None:
    loops = [replace(array_machine().disks[0], name=f"loop{at}", kind=DiskKind.LOOP, partitions=()) for at in range(3)]
    machine = replace(array_machine(), disks=(*array_machine().disks, *loops), uplinks=())
    tree = parsed(page_html(content_of(machine)))
    (folded,) = (one for one in tree.iter("details") if words_of(one[0]).startswith("3 loop devices"))
    assert [words_of(next(one.iter("h3"))) for one in articles(folded, "disk")] == ["loop0", "loop1", "loop2"]


def one_disk(start: int, size: int = 1 << 30) -> Inventory:
    disk = array_machine().disks[1]
    part = replace(disk.partitions[0], extent=Extent(start, 1 << 20), content=(), holders=())
    return Inventory((replace(disk, size=size, partitions=(part,), links=(), holders=(), nvme=None),))


def unknown_disk() -> Inventory:
    """Return the kernel's value for a stacked device whose members contradict each other."""
    (disk,) = one_disk(1 << 20).disks
    return Inventory((replace(disk, limits=replace(disk.limits, alignment_offset=-1)),))


@pytest.mark.parametrize(
    ("machine", "tone", "said"),
    [
        (
            one_disk(32256),
            "error",
            "1 of 1 partition misaligned; random 4KiB writes there keep 1/2 of their rate (predicted)",
        ),
        (one_disk(1 << 20), "good", "OK: every partition of 1 disk starts on its boundaries"),
        (Inventory(()), "info", "No partition to judge"),
        (unknown_disk(), "warning", "Nothing could be judged"),
        (
            array_machine(),
            "error",
            "1 of 3 disks has misaligned partitions; random 4KiB writes there keep 1/2 of their rate (predicted)",
        ),
    ],
    ids=["off", "on", "empty", "unknown", "several"],
)
def test_title_and_headline_state_the_machine_and_the_verdict(machine: Inventory, tone: str, said: str) -> None:
    tree = parsed(page_html(replace(content_of(machine), machine="server7")))
    (title,) = (one for one in tree.iter("title"))
    (headline,) = tree.iter("h1")
    assert words_of(title) == f"server7: {said} – aligntool"
    assert " ".join(words_of(headline).split()) == f"Storage report: server7 {said}"
    assert headline.attrib["class"] == f"headline {tone}"


def test_a_warning_prevents_the_ok_headline() -> None:
    found = content_of(one_disk(1 << 20))
    warning = Finding(Code.LINK_DEGRADED, Severity.WARNING, "a slow link", "nvme1n1")
    found = replace(found, report=replace(found.report, findings=(warning,)))
    text, tone = headline(found.report)
    assert (text, tone) == ("Every partition of 1 disk starts on its boundaries; 1 warning of another kind", "warning")


def test_tiles_link_to_the_items_that_they_count() -> None:
    for machine in MACHINES:
        tree, found = parsed(captured_page(machine)), report(machine)
        ids = {one.attrib["id"]: one for one in tree.iter() if "id" in one.attrib}
        (tiles,) = (one for one in tree.iter("ul") if one.attrib.get("class") == "tiles")
        for tile in tiles:
            count, word = words_of(tile).split(maxsplit=1)
            links = [one.attrib["href"][1:] for one in tile.iter("a")]
            assert bool(links) == (count != "0"), words_of(tile)
            if word in ("errors", "warnings", "notes") and links:
                severity = {"errors": Severity.ERROR, "warnings": Severity.WARNING, "notes": Severity.INFO}[word]
                assert int(count) == found.count(severity)
                assert links[0].endswith(f"-{severity.value}") and ids[links[0]].tag == "h3"
            if word == "off the grid" and links:
                assert links[0].startswith("at1")


def test_commands_are_grouped_one_per_line_without_the_prefix_of_the_machine() -> None:
    tree = parsed(captured_page("md-on-misaligned-partitions"))
    blocks = [words_of(one).splitlines() for one in tree.iter("pre")]
    assert {"sudo aligntool plan realign /dev/vda", "sudo aligntool plan realign /dev/vdb"} <= set(blocks[0])
    every = [line for block in blocks for line in block]
    assert len(every) == len(set(every)) and all(line.startswith(("sudo ", "by hand, ")) for line in every)
    assert "On the captured machine" in words_of(tree)


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
    assert not (set(tags) - {"a", "link"}) & ACTIVE
    assert tags.count("a") == usual_links() and tags.count("link") == 1  # the icon
    for element in tree.iter():
        assert not any(str(name).startswith("on") for name in element.attrib)
        assert "javascript:" not in element.attrib.get("href", "")
    hidden = {char for char in page if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")}
    assert hidden <= {"\n"}
    said = words_of(tree)
    assert harmless(word[:60]).strip() in said
    assert max((len(text) for text in tree.itertext() if "{" not in text), default=0) < 60_000
