"""The page in a real Chromium: no console output, no request, inside its window, and valid by axe-core."""

from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from aligntool.inventory import Inventory
from aligntool.render.report.page import page_html
from aligntool.units import Extent
from tests.render.report.browser import asked, browse, on_phone
from tests.render.report.pages import HOSTILE, array_machine, array_page, captured_page, content_of, named_page
from tests.render.report.test_page import MACHINES, one_disk
from tests.thorough import when_thorough

pytestmark = pytest.mark.needs_tools("chromium")

MACHINE = "nvme-behind-switch"
PHONE = 500  # the narrowest window of Chromium; the body is then squeezed to 360 pixels


def test_the_page_has_no_console_output_and_sends_no_request() -> None:
    seen = browse(array_page())
    assert seen.console == ()
    assert seen.requests == ()
    assert "Storage report" in seen.tree


def test_a_page_of_hostile_names_has_no_console_output_and_sends_no_request() -> None:
    seen = browse(named_page("".join(HOSTILE)))
    assert seen.console == ()
    assert seen.requests == ()
    assert "<title>1 of 3 disks has misaligned partitions – aligntool</title>" in seen.tree


LEAK = "<img src='http://127.0.0.1:9/leak.png'><script>document.title = 'owned'</script><p style='color:red'>x</p>"


def test_injected_markup_is_blocked_by_the_content_security_policy() -> None:
    """Console and network are really monitored: without the policy the same leak is detected."""
    page = array_page().replace("<footer>", LEAK + "<footer>")
    shut = browse(page)
    assert shut.requests == ()
    assert "owned" not in shut.tree.split("</title>")[0]
    assert len(shut.console) >= 3  # the picture, the script and the style, each refused
    opened = browse(page.replace("Content-Security-Policy", "Content-Of-Nothing"))
    assert opened.requests == ("http://127.0.0.1:9/leak.png",)
    assert "owned" in opened.tree.split("</title>")[0]


AXE = """
const found = await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']});
const texts = [];
for (const picture of document.querySelectorAll('svg[role=img]')) {
  const edge = picture.getBoundingClientRect();
  for (const text of picture.querySelectorAll('text')) {
    const place = text.getBoundingClientRect();
    const out = [place.right - edge.right, edge.left - place.left, place.bottom - edge.bottom];
    if (place.width && Math.max(...out) > 1.5)
      texts.push(picture.id + ' ' + text.textContent);
  }
}
if (innerWidth === 500) document.body.style.maxWidth = '360px';
const room = Math.min(innerWidth, document.body.getBoundingClientRect().right);
const wide = [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > room + 1
  && !one.closest('.scroll table, pre.scroll code, .skip, .unseen, svg svg')).map(one => one.outerHTML.slice(0, 90));
say({
  wide,
  broken: found.violations.map(one => one.id + ': ' + one.nodes.map(node => node.html).slice(0, 2).join(' ')),
  checked: found.passes.map(one => one.id),
  outside: texts,
  dark: matchMedia('(prefers-color-scheme: dark)').matches,
});
"""


def examined(page: str, *, width: int, dark: bool) -> dict[str, Any]:
    """Return what AXE reports of a page with everything opened."""
    axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    opened = page.replace("</body>", f"<script>{axe}</script></body>").replace("<details", "<details open")
    answer = asked(opened, AXE, width=width, dark=dark)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (PHONE, True),
        (1200, False),
        *(pytest.param(*each, marks=when_thorough("opens a browser")) for each in ((PHONE, False), (1200, True))),
    ],
    ids=["phone, dark", "desktop, light", "phone, light", "desktop, dark"],
)
def test_axe_finds_nothing_and_no_text_overflows_its_picture_or_the_window(width: int, dark: bool) -> None:
    answer = examined(array_page() if width == PHONE else captured_page(MACHINE), width=width, dark=dark)
    assert answer.get("broken") == [], answer
    assert {"color-contrast", "document-title", "region", "html-has-lang"} <= set(answer["checked"])
    assert answer["outside"] == []
    assert answer["wide"] == []
    assert answer["dark"] is dark


SCREEN = 800


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_needs_two_screens(machine: str) -> None:
    """Before rows of equal disks, md-on-misaligned-partitions was 17,078 pixels tall."""
    script = "say([document.documentElement.scrollHeight, document.querySelector('header').offsetHeight])"
    answer = asked(captured_page(machine), script, width=1280, height=SCREEN)
    assert isinstance(answer, list)
    tall, banner = answer
    assert tall <= 2 * SCREEN and banner <= SCREEN / 2


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_with_seven_problems_needs_little_more_than_two_screens_of_a_phone(machine: str) -> None:
    """Each further row with a problem needs two lines more: none is folded."""
    script = (
        "document.body.style.maxWidth = '390px'; say([document.documentElement.scrollHeight,"
        " document.querySelectorAll('.disk').length - document.querySelectorAll('.more-rows .disk').length])"
    )
    answer = asked(captured_page(machine), script, width=PHONE, height=SCREEN)
    assert isinstance(answer, list)
    tall, rows = answer
    assert tall <= 2.3 * SCREEN + 65 * max(rows - 7, 0)


OVERLAPS = """
document.querySelectorAll('details').forEach(one => one.open = true);
const found = [], seen = [];
for (const picture of document.querySelectorAll('svg[role=img]')) {
  const texts = [...picture.querySelectorAll('text')].map(one => [one.textContent, one.getBoundingClientRect()]);
  const drawn = texts.filter(([_, place]) => place.width);
  seen.push(...drawn);
  drawn.forEach(([text, a], at) => drawn.slice(at + 1).forEach(([other, b]) => {
    const shared = [Math.min(a.right, b.right) - Math.max(a.left, b.left),
                    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
    if (Math.min(...shared) > 1.5)
      found.push(text + ' / ' + other);
  }));
}
say([seen.length > 3, found]);
"""


@pytest.mark.parametrize("width", [PHONE, 1280])
@pytest.mark.parametrize("machine", ["md-on-misaligned-partitions", "lowest-aligned-7"])
def test_no_two_words_of_a_picture_overlap(machine: str, width: int) -> None:
    assert asked(captured_page(machine), OVERLAPS, width=width) == [True, []]


NUMBERED = """
const map = document.querySelector('svg[aria-labelledby^=map]');
const texts = [...map.querySelectorAll('text')].filter(one => one.getBoundingClientRect().width);
say(texts.map(one => one.textContent).filter(one => /^[0-9]$|…/.test(one)).sort());
"""


def test_each_partition_of_a_map_has_its_number_where_it_has_room_and_no_size_is_cut() -> None:
    page = captured_page("lowest-aligned-7")
    assert asked(page, NUMBERED, width=1280) == ["0", "1", "2", "3", "5", "6", "7", "8"]


BESIDE = """
const page = document.body.getBoundingClientRect();
const cells = [...document.querySelectorAll('.row > *')].filter(one => one.checkVisibility());
say([cells.length > 0, cells.filter(one => one.getBoundingClientRect().right > page.right).length]);
"""


@pytest.mark.parametrize("width", [PHONE, 740, 900])
def test_no_part_of_a_row_is_outside_of_the_page(width: int) -> None:
    assert asked(captured_page("md-on-misaligned-partitions"), BESIDE, width=width) == [True, 0]


CUT = """
const inner = phone.contentDocument;
inner.querySelectorAll('details').forEach(one => one.open = true);
const tables = [...inner.querySelectorAll('.scroll:has(table)')];
const cut = tables.filter(one => one.scrollWidth > one.clientWidth).map(one => one.getAttribute('aria-label'));
say([tables.length > 0, cut, inner.documentElement.scrollWidth]);
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_no_table_of_a_machine_is_cut_on_a_phone(machine: str) -> None:
    assert asked(on_phone(captured_page(machine)), CUT) == [True, [], 390]


@pytest.mark.parametrize(("width", "seen"), [(PHONE, False), (1280, True)])
def test_the_only_disk_is_open_where_there_is_room(width: int, seen: bool) -> None:
    script = "say(document.querySelector('.disk table').checkVisibility())"
    assert asked(captured_page("lowest-aligned-7"), script, width=width) is seen


@pytest.mark.parametrize(("parts", "starts"), [(4, 4), (12, 1), (12, 12), (128, 8)])
def test_a_disk_of_many_partitions_needs_two_screens(parts: int, starts: int) -> None:
    disk = array_machine().disks[1]
    made = tuple(
        replace(
            disk.partitions[0], number=number + 1, content=(), holders=(),
            extent=Extent((2048 * (number + 1) + number % starts % 7 + 1) * 512, 1 << 19),
        )
        for number in range(parts)
    )  # fmt: skip
    seen = tuple((part.number, part.extent) for part in made)
    disk = replace(disk, partitions=made, kernel_partitions=seen, links=(), holders=())
    page = page_html(content_of(Inventory((disk,))))
    tall = asked(page, "say(document.documentElement.scrollHeight)", width=1280, height=SCREEN)
    assert isinstance(tall, int) and tall <= 2 * SCREEN


HIDDEN = """
const inside = [...document.querySelectorAll('details > :not(summary)')];
const hidden = inside.filter(one => !one.checkVisibility());
say([inside.length, hidden.length, hidden.filter(one => !one.closest('.aside, .quiet, .general')).length]);
"""


def test_everything_folded_is_printed_but_facts_and_general_explanations() -> None:
    page = captured_page("md-on-misaligned-partitions")
    folded = asked(page, HIDDEN)
    printed = asked(page.replace("@media print", "@media all"), HIDDEN)
    assert isinstance(folded, list) and folded[1] > 50
    assert isinstance(printed, list) and 0 < printed[1] < folded[1] and printed[2] == 0


def test_what_is_folded_in_print_has_no_finding() -> None:
    page = captured_page("md-on-misaligned-partitions")
    found = "document.querySelectorAll(':is(.quiet, .general, .aside) .finding').length"
    assert asked(page, f"say({found})") == 0


def test_a_disk_without_a_finding_is_printed_as_one_line() -> None:
    (fine,), (off,) = one_disk(1 << 20).disks, one_disk(32256).disks
    disks = replace(fine, name="sda", path="/dev/sda"), replace(off, name="sdb", path="/dev/sdb")
    page = page_html(content_of(Inventory(disks))).replace("@media print", "@media all")
    script = """
    say([...document.querySelectorAll('article.disk')].map(row => [
      row.querySelector('h3').textContent, row.querySelector('table').checkVisibility(),
    ]));
    """
    assert asked(page, script) == [["sdb", True], ["sda", False]]


def test_what_the_reader_opened_is_printed() -> None:
    page = captured_page("md-on-misaligned-partitions").replace("@media print", "@media all")
    opened = "document.querySelectorAll('details').forEach(one => one.open = true);"
    printed = asked(page, opened + HIDDEN)
    assert isinstance(printed, list) and printed[1] == 0
