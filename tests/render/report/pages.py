"""Machines for the page: a captured one, an array behind a chipset, and one on which every name is hostile."""

from dataclasses import replace
from functools import cache

from aligntool.audit.judge import audit
from aligntool.inventory import ArrayFacts, Disk, DiskKind, Inventory, IoLimits, Layer, Source, Uplink
from aligntool.raid.running import arrays_of
from aligntool.realign.planning import find_repairs, on_captured_machine
from aligntool.render.report.disks import Content, Measured
from aligntool.render.report.page import page_html
from aligntool.render.svg import Bar, BarChart, Chart, CurveChart, Mark, Point, RatioChart, Series
from aligntool.units import KIB, MIB, Extent
from tests.audit.machines.captured import report
from tests.raid.builders import SIZE, drive, linked

X4 = 3_938_000_000  # PCIe 3.0 x4, PCIE_SPEED2MBS_ENC in the kernel's pci.h

HOSTILE = (
    "</title></style></textarea><script>document.title='owned'</script>",
    "\"'><img src=http://127.0.0.1:9/x onerror=alert(1)>",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "a\x00b\x1b[31m\x07\ud800\udcff\ufffe",
    "\u202egnp.exe\u2066\u200b\u2028\x85",
    "]]><!--<svg/onload=alert(2)>--><![CDATA[",
    "javascript:alert(3)&lt;&#x3c;",
    "W" * 10_000,
    "",
)


def charts() -> tuple[Chart, ...]:
    """Return one chart of each kind, with all optional parts."""
    spans = tuple(2**step for step in range(7))
    known = (200_000, 201_000, 199_000, 200_500, 90_000, 89_000, 88_500)
    reads = tuple(
        Point(span, f"{span}GiB", value, f"{value:,}", value * 0.9, value * 1.1)
        for span, value in zip(spans, known, strict=True)
    )
    writes = tuple(Point(span, f"{span}GiB", 50_000, "50,000") for span in spans)
    rows = (
        Bar("SEQ1M Q8T1 read", 3400, "3,400 MB/s", 3300, 3450),
        Bar("RND4K Q1T1 read", 61, "61 MB/s", 60, 62, "doubt", "CPU-bound"),
    )
    ratios = (
        Bar("SEQ1M Q8T1 read", 0.5, "+0.50", 0.45, 0.55, "good", "faster"),
        Bar("RND4K Q1T1 read", -1.1, "−1.10", -1.2, -1.0, "bad", "slower"),
        Bar("RND4K Q32T1 read", 0.02, "+0.02", -0.05, 0.07, "unknown", "within the noise"),
    )
    return (
        BarChart("rates", "Sequential and random", "MB/s (10^6 bytes a second)", rows),
        RatioChart("ratios", "B against A", "A", "B", ratios),
        CurveChart(
            "span", "Span sweep", "span", "4 KiB random IOPS", (Series("read", reads), Series("write", writes)),
            mark=Mark(8, "knee at 8GiB"),
        ),
    )  # fmt: skip


def content_of(inventory: Inventory, measured: tuple[Measured, ...] = ()) -> Content:
    found = audit(inventory, {})
    answers = {judged.disk.name: find_repairs(judged) for judged in found.judged}
    return Content(found, arrays_of(found), answers, measured, "2026-11-21 20:00 UTC")


def array_machine() -> Inventory:
    """Return a RAID0 over two drives behind one DMI, and a third drive whose link is half as wide as possible."""
    first, second = (
        linked(drive(number, parts="63+9000 ext4 2048+1000000 raid" if number else "2048+1000000 raid"), X4, hidden=X4)
        for number in (0, 1)
    )
    third = linked(drive(2), X4 // 2, width=2)
    hop = replace(third.links[0][0], max_speed_gts=8.0, max_width=4, max_bandwidth=X4)
    port = replace(third.links[0][1], max_speed_gts=8.0, max_width=4, max_bandwidth=X4)
    third = replace(third, links=((hop, port),))
    members = ("nvme0n1p1", "nvme1n1p1", "nvme2n1")
    array = Disk(
        "md0", "/dev/md0", DiskKind.MD, 3 * SIZE, IoLimits(512, 4096, 512 * KIB, 3 * 512 * KIB, 0),
        array=ArrayFacts("raid0", 512 * KIB, members, tuple((name, MIB) for name in members), "1.2"),
        slaves=members, content_hint="xfs", mounted_at=("/srv/data",),
    )  # fmt: skip
    uplink = Uplink("DMI 3.0 x4", X4, Source.KNOWN, ("nvme0n1", "nvme1n1"))
    return Inventory((first, second, third, array), (uplink,))


@cache
def array_page() -> str:
    figures = (
        ("test", "MB/s", "range of MB/s", "p99.9 µs"),
        ("SEQ1M Q8T1 read", "3,400.0", "3,300.0–3,450.0", "1,200"),
    )
    shown = Measured("nvme0n1", "5 repeats, median with range", charts(), figures, ("a note",), (("kernel", "6.12"),))
    return page_html(content_of(array_machine(), (shown,)))


@cache
def captured_page(machine: str) -> str:
    found = report(machine)
    answers = {judged.disk.name: find_repairs(judged) for judged in found.judged}
    found, repairs = on_captured_machine(found, answers)
    return page_html(Content(found, arrays_of(found), repairs))


def named_machine(word: str) -> Inventory:
    """Return a machine on which everything that a stranger can name has this name."""
    named = []
    place = word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")  # a path is bytes
    for disk in array_machine().disks:
        layer = Layer("ext4", Extent(0, MIB), label=word, uuid=word, version=word, problems=(word,))
        parts = tuple(
            replace(
                part, name=word, type_name=word, uuid=word, content=(layer,), content_read=True, flags=(word,),
                mounted_at=(place,),
            )
            for part in disk.partitions
        )  # fmt: skip
        links = tuple(tuple(replace(hop, name=word) for hop in way) for way in disk.links)
        named.append(
            replace(
                disk, model=word, vendor=word, serial=word, firmware=word, wwn=word, partitions=parts, links=links,
                content_hint=word, mounted_at=(place,),
            )
        )  # fmt: skip
    return Inventory(tuple(named), (Uplink(word, X4, Source.KNOWN, ("nvme0n1", "nvme1n1")),))


def named_page(word: str) -> str:
    bars = (Bar(word, 1, word, note=word), Bar(word, 2, word))
    drawn: tuple[Chart, ...] = (
        BarChart("rates", word, word, bars, note=word),
        RatioChart("ratios", word, word, word, bars),
        CurveChart("span", word, word, word, (Series(word, (Point(1, word, 1, word), Point(2, word, 2, word))),),
                   mark=Mark(1, word)),
    )  # fmt: skip
    shown = Measured(word, word, drawn, ((word, word), (word, word)), (word,), ((word, word),))
    return page_html(content_of(named_machine(word), (shown,)))
