"""The page against a strict HTML parser, against what other tools say of the same disks, and against hostile names."""

import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.judge import audit
from aligntool.raid.chunks import known_rates
from aligntool.raid.running import arrays_of
from aligntool.recipes.drives import load_drives
from aligntool.render.lines import harmless
from aligntool.render.report.disks import Content, ceiling_chart
from aligntool.render.report.page import page_html
from tests.machines.captured import report
from tests.render.report.pages import HOSTILE, array_machine, array_page, captured_page, named_page

MACHINES = ("md-on-misaligned-partitions", "nvme-behind-switch", "sata-usb-and-sd-card", "lowest-aligned-7")
SVG = "{http://www.w3.org/2000/svg}"
ACTIVE = {"script", "iframe", "object", "embed", "form", "base", "link", "image", "use", "foreignObject", "a", "img"}


def parsed(page: str) -> ElementTree.Element:
    """By the rules of the HTML standard; any parse error raises."""
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    assert isinstance(tree, ElementTree.Element)
    return tree


def words_of(tree: ElementTree.Element) -> str:
    return "".join(tree.itertext())


def pages() -> list[str]:
    return [array_page(), *(captured_page(machine) for machine in MACHINES)]


def test_every_page_is_html_without_a_single_parse_error() -> None:
    for page in pages():
        assert parsed(page).tag == "html"


def test_nothing_in_a_page_leads_outside() -> None:
    for page in pages():
        for element in parsed(page).iter():
            for name, value in element.attrib.items():
                assert not str(name).startswith("on"), (element.tag, name)
                assert name not in ("src", "srcset", "action", "style", "background", "poster")
                if name == "href":
                    assert value.startswith("#") or value == "data:,", value
        assert "@import" not in page and "url(" not in page


def test_ids_are_given_once_and_every_reference_leads_to_one() -> None:
    for page in pages():
        tree = parsed(page)
        ids = [element.attrib["id"] for element in tree.iter() if "id" in element.attrib]
        assert len(ids) == len(set(ids))
        for element in tree.iter():
            named = element.attrib.get("aria-labelledby", "").split()
            named += [element.attrib["href"][1:]] if element.attrib.get("href", "").startswith("#") else []
            assert set(named) <= set(ids), named


def test_headings_go_down_one_step_at_a_time_and_there_is_one_first() -> None:
    for page in pages():
        levels = [int(element.tag[1]) for element in parsed(page).iter() if re.fullmatch(r"h\d", str(element.tag))]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(later <= before + 1 for before, later in pairwise(levels))


def test_every_table_has_a_caption_and_heads_with_a_scope() -> None:
    for page in pages():
        tables = list(parsed(page).iter("table"))
        assert tables
        for table in tables:
            assert words_of(next(table.iter("caption"))).strip()
            assert all("scope" in head.attrib for head in table.iter("th"))


def test_every_picture_says_in_words_what_it_shows() -> None:
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
    disks = [article for article in tree.iter("article") if article.attrib.get("class") == "disk"]
    assert [words_of(next(disk.iter("h3"))) for disk in disks] == [one.disk.name for one in found.judged]
    for article, judged in zip(disks, found.judged, strict=True):
        shown = [words_of(row[0]) for body in article.iter("tbody") for row in body if len(row) > 2]
        expected = [str(part.number) for part in judged.disk.partitions]
        assert shown == (expected or shown)
    heads = " ".join(words_of(head) for head in tree.iter("h3"))
    assert {finding.code.value for finding in found.findings} == set(re.findall(r"AT\d{3}", heads))


def test_the_link_that_binds_is_named_and_marked() -> None:
    # By hand: two drives of 3.94 GB/s share 3.94 GB/s, the third has 1.97 GB/s; a stripe gives each the least, 1.97.
    tree = parsed(array_page())
    said = words_of(tree)
    assert "5.91 GB/s" in said
    (branches,) = (one for one in tree.iter("div") if one.attrib.get("class") == "tree")
    marked = [
        item for item in branches.iter("li") if any("binds" in words_of(part) for part in item if part.tag == "span")
    ]
    assert len(marked) == 1
    below = [words_of(one).split()[0] for one in marked[0].iter("strong")]
    assert below[0] == "DMI" and {"nvme0n1", "nvme1n1"} <= set(below)
    assert "slower than it could be: 8 GT/s x4, 3.94 GB/s" in said


def test_a_drive_that_is_slower_than_its_link_is_drawn_and_binds() -> None:
    # The data sheet of the 400 GB Intel SSD 750 says 2.2 GB/s reading and 0.9 GB/s writing; the links carry 1.97 each.
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
    assert shown["nvme0n1 itself, writing"][2] == "binds"
    assert chart.note == "nvme0n1 itself: known: Intel SSD 750 400 GB"
    tree = parsed(page_html(Content(found, (array,), rates=rates)))
    (branches,) = (one for one in tree.iter("div") if one.attrib.get("class") == "tree")
    bound = [words_of(one) for one in branches.iter("li") if not list(one.iter("ul")) and "binds md0" in words_of(one)]
    assert len(bound) == 1 and "nvme0n1" in bound[0]


def test_a_link_is_called_slow_where_the_audit_says_so_and_nowhere_else() -> None:
    # Root ports of up to x4 with drives of x1 below: both ends together can do no more than they do.
    slow = {finding.disk for finding in report("nvme-behind-switch").findings if finding.code.value == "AT501"}
    assert words_of(parsed(captured_page("nvme-behind-switch"))).count("slower than it could be") == len(slow)
    assert words_of(parsed(array_page())).count("slower than it could be") == 1


@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_text_and_nothing_else(word: str) -> None:
    check_hostile(word)


@settings(max_examples=15)
@given(st.text(st.characters(), max_size=60))
def test_no_name_becomes_markup(word: str) -> None:
    check_hostile(word)


def check_hostile(word: str) -> None:
    page = named_page(word)
    tree = parsed(page)
    tags = [str(element.tag).removeprefix(SVG) for element in tree.iter()]
    assert not (set(tags) - {"a", "link"}) & ACTIVE
    assert tags.count("a") == 8 and tags.count("link") == 1  # the skip link, the parts, the icon
    for element in tree.iter():
        assert not any(str(name).startswith("on") for name in element.attrib)
        assert "javascript:" not in element.attrib.get("href", "")
    hidden = {char for char in page if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")}
    assert hidden <= {"\n"}
    said = words_of(tree)
    assert harmless(word[:60]).strip() in said
    assert max((len(text) for text in tree.itertext() if "{" not in text), default=0) < 60_000
