"""Arrays: each rule on both sides of its limit, and arrays without findings."""

from dataclasses import replace

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Finding, Report, explanations
from aligntool.inventory import Disk, DiskKind, Inventory, KnownGeometry, Layer, Source, TableCopy, TableCopyState
from aligntool.render.audit import audit_lines, fine_arrays
from aligntool.render.lines import text_of
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.array_builders import LEVELS, array, drive, finding_codes, machine, system
from tests.audit.builders import made_disk

PAGE = KnownGeometry(Source.KNOWN, "a drive of large pages", "a data sheet", "high", page_size=96 * KIB)


def report(inventory: Inventory, known: tuple[KnownGeometry, ...] = ()) -> Report:
    rows = {disk.name: known for disk in inventory.disks if disk.array is None}
    return audit(inventory, rows)


@pytest.mark.parametrize("level", LEVELS)
def test_a_healthy_array_has_only_the_note_that_parity_passes_no_discards(level: str) -> None:
    found = report(machine(level, system()))
    assert finding_codes(found) == ([("AT607", "info")] if level in ("raid5", "raid6") else [])
    assert not [one for one in found.findings if one.severity.value != "info"], found.findings


@pytest.mark.parametrize("level", LEVELS)
def test_a_healthy_array_has_a_line_of_its_own(level: str) -> None:
    chunk = ", chunk of 64KiB as wanted" if level != "raid1" else ""
    members = f"{LEVELS[level]} members, the data of each on its boundaries"
    left = "1 note: AT607" if level in ("raid5", "raid6") else "nothing to repair"
    said = [f"Array md127 (any:data, {level}): {members}{chunk}; {left}"]
    assert [*fine_arrays(report(machine(level, system())))] == said
    lines = audit_lines(report(machine(level, system())), width=60, verbose=False, quiet=False)
    text = " ".join("".join(text_of(lines)).split())
    assert said[0] in text


@pytest.mark.parametrize(
    "facts",
    [{"degraded": 1}, {"member_data_offsets": ()}, {"member_data_offsets": (("nvme0n1p1", 512), ("nvme1n1p1", MIB))},
     {"bitmap": "none", "policy": "resync"}, {"members": ("nvme0n1p1", "gone")}],
)  # fmt: skip
def test_an_array_with_a_problem_or_that_was_not_judged_has_no_such_line(facts: dict[str, object]) -> None:
    assert not [*fine_arrays(report(machine("raid1", system(), **facts)))]


def test_a_healthy_array_that_is_checked_says_so() -> None:
    (said,) = fine_arrays(report(machine("raid1", system(), sync_action="check")))
    assert said.endswith("; nothing to repair; check runs")


def test_the_line_of_an_array_names_its_notes() -> None:
    (said,) = fine_arrays(report(machine("raid1", system(), policy="resync", bitmap="none", each=100 * GIB)))
    assert said.endswith("; 1 note: AT605")


@pytest.mark.parametrize("level", LEVELS)
def test_an_array_with_members_missing_leads_to_how_they_are_replaced(level: str) -> None:
    lines = audit_lines(report(machine(level, system(), degraded=1)), width=200, verbose=False, quiet=False)
    assert "replace a member by hand, with mdadm on /dev/md127: docs/by-hand.md#members-of-an-array" in "".join(
        text_of(lines)
    )


# facts of the array -> code and severity; each row next to one on the other side of the limit
RULES: list[tuple[str, dict[str, object], list[tuple[str, str]]]] = [
    ("raid1", {"degraded": 1}, [("AT601", "error")]),
    ("raid0", {"degraded": None}, []),
    ("raid0", {"degraded": None, "state": "broken"}, [("AT601", "error")]),  # Linux 6.1, with a drive unplugged
    ("raid1", {"degraded": 1, "state": "broken"}, [("AT601", "error")]),
    ("raid5", {"member_states": (("nvme0n1p1", "faulty,journal"),)}, [("AT601", "error"), ("AT607", "info")]),
    ("raid5", {"member_states": (("nvme0n1p1", "journal"),)}, [("AT607", "info")]),
    ("raid1", {"member_states": (("nvme0n1p1", "faulty"),)}, [("AT619", "warning")]),  # a spare replaced it
    ("raid1", {"member_states": (("nvme0n1p1", "faulty"),), "degraded": 1}, [("AT601", "error")]),
    ("raid1", {"member_states": (("nvme0n1p1", "spare"),), "spares": ("nvme0n1p1",)}, []),
    ("raid1", {"sync_action": "resync"}, [("AT602", "info")]),
    ("raid1", {"sync_action": "check"}, [("AT602", "info")]),
    ("raid1", {"sync_action": "frozen"}, []),
    ("raid1", {"sync_action": "recover", "degraded": 1}, [("AT601", "error"), ("AT602", "info")]),
    ("raid0", {"chunk": 8 * KIB}, [("AT603", "warning")]),
    ("raid0", {"chunk": 16 * KIB}, []),
    ("raid0", {"chunk": 20 * KIB}, []),
    ("raid0", {"chunk": 18 * KIB}, [("AT603", "warning")]),  # not a multiple of a page
    ("raid1", {"policy": "resync", "bitmap": "none"}, [("AT605", "warning")]),
    ("raid1", {"policy": "resync", "bitmap": "none", "each": 100 * GIB}, [("AT605", "info")]),
    ("raid1", {"policy": "resync", "bitmap": "none", "each": 100 * GIB + 1}, [("AT605", "warning")]),
    ("raid1", {"policy": None, "bitmap": "none"}, [("AT605", "warning")]),
    ("raid1", {"policy": None, "bitmap": None}, []),  # unknown
    ("raid1", {"policy": "resync", "metadata": "external:/md0/0"}, []),
    ("raid0", {"policy": "resync", "bitmap": "none"}, []),  # no redundancy
    ("raid1", {"bitmap_chunk": 64 * MIB}, []),
    ("raid5", {"policy": "journal", "bitmap": "none", "bitmap_chunk": None}, [("AT607", "info")]),
    ("raid5", {"policy": "ppl", "bitmap": "none", "bitmap_chunk": None}, [("AT607", "info")]),
    ("raid5", {"bitmap_chunk": 512 * MIB}, [("AT606", "warning"), ("AT607", "info")]),
    ("raid5", {"bitmap_chunk": 64 * MIB, "bitmap": "external"}, [("AT607", "info")]),
    ("raid6", {"bitmap_chunk": 64 * MIB}, [("AT606", "warning"), ("AT607", "info")]),
    ("raid5", {"bitmap_chunk": 512 * MIB, "each": 900 * MIB}, [("AT607", "info")]),
    ("raid5", {"bitmap_chunk": 256 * MIB, "each": 900 * MIB}, [("AT606", "warning"), ("AT607", "info")]),
    ("raid5", {"chunk": 512 * KIB}, [("AT607", "info")]),  # 512KiB × 2 data members = 1MiB
    ("raid5", {"chunk": 512 * KIB, "devices": 4}, [("AT604", "info"), ("AT607", "info")]),
    ("raid6", {"chunk": 1024 * KIB}, [("AT604", "info"), ("AT607", "info")]),
    ("raid10", {"chunk": 1024 * KIB}, []),
    ("container", {}, []),
]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "1 of 3 members missing"),
        ({"sync_action": "recover"}, "1 of 3 members missing or being rebuilt"),
        ({"devices": None}, "1 member missing"),
    ],
)
def test_a_member_being_rebuilt_is_not_reported_as_missing(facts: dict[str, object], said: str) -> None:
    """md counts a member in `degraded` until it is in sync: Documentation/admin-guide/md.rst."""
    found = report(machine("raid5", None, degraded=1, **facts))
    (finding,) = [one for one in found.findings if one.code.value == "AT601"]
    assert finding.summary == f"md127: raid5 is degraded: {said}"


def test_the_failed_member_of_a_degraded_array_is_named() -> None:
    """md keeps a failed member until it is removed, and reports one that is rebuilt as a spare with a slot."""
    states = (("nvme0n1p1", "in_sync"), ("nvme1n1p1", "faulty"))
    for third, spares, last in (
        ("spare", (), "being rebuilt"), ("spare,external_bbl", (), "being rebuilt"), ("spare", ("nvme2n1p1",), "spare")
    ):  # fmt: skip
        facts = {"member_states": (*states, ("nvme2n1p1", third)), "spares": spares}
        found = report(machine("raid5", None, degraded=1, **facts))
        (finding,) = [one for one in found.findings if one.code.value == "AT601"]
        assert finding.evidence[0] == f"members: nvme0n1p1, nvme1n1p1 (faulty), nvme2n1p1 ({last})"


BUILT = ("in_sync", "in_sync", "spare")
FAILED = ("in_sync", "faulty", "spare")
FIRST = [  # facts, states, events when a bit was last cleared -> code and severity
    ("raid5", {"sync_action": "recover"}, BUILT, (0, 0, 0), [("AT602", "info")]),
    ("raid5", {"sync_action": "idle", "state": "read-auto"}, BUILT, (0, 0, 0), [("AT602", "info")]),
    ("raid5", {"sync_action": "recover"}, BUILT, (46, 46, 46), [("AT601", "error"), ("AT602", "info")]),
    ("raid5", {"sync_action": "recover"}, BUILT, (0, 46, None), [("AT601", "error"), ("AT602", "info")]),
    ("raid5", {"sync_action": "recover"}, BUILT, (0, 0, None), [("AT601", "error"), ("AT602", "info")]),
    ("raid5", {"sync_action": "idle"}, BUILT, (0, 0, 0), [("AT601", "error")]),
    ("raid5", {"sync_action": "recover"}, FAILED, (0, 0, 0), [("AT601", "error"), ("AT602", "info")]),
    ("raid5", {"sync_action": "recover", "devices": 4}, BUILT, (0, 0, 0), [("AT601", "error"), ("AT602", "info")]),
    ("raid5", {"sync_action": "recover", "degraded": 2}, BUILT, (0, 0, 0), [("AT601", "error"), ("AT602", "info")]),
    ("raid5", {"sync_action": "recover", "state": "broken"}, BUILT, (0, 0, 0), [("AT601", "error"), ("AT602", "info")]),
    ("raid6", {"sync_action": "recover"}, (*BUILT, "in_sync"), (0, 0, 0, 0), [("AT601", "error"), ("AT602", "info")]),
]  # fmt: skip


@pytest.mark.parametrize(("level", "facts", "states", "cleared", "expected"), FIRST)
def test_a_raid5_that_was_never_complete_is_built_and_not_degraded(
    level: str,
    facts: dict[str, object],
    states: tuple[str, ...],
    cleared: tuple[int | None, ...],
    expected: list[tuple[str, str]],
) -> None:
    """States and counts as on Linux 6.1: in the first build, also after writes and a restart, Events Cleared is 0; in
    a rebuild after writes to the complete array it is not.
    """
    nodes = [f"nvme{number}n1p1" for number in range(len(states))]
    inventory = machine(
        level, None, **{"degraded": 1, "member_states": tuple(zip(nodes, states, strict=True)), **facts}
    )
    drives = [
        replace(disk, partitions=(replace(disk.partitions[0], content=(member_layer(disk, count),)),))
        for disk, count in zip(inventory.disks, cleared, strict=False)
    ]
    found = report(replace(inventory, disks=(*drives, inventory.disks[-1])))
    assert [pair for pair in finding_codes(found) if pair[0] in ("AT601", "AT602")] == expected
    if expected == [("AT602", "info")]:
        (note,) = [one for one in found.findings if one.code.value == "AT602"]
        assert "its parity is being written for the first time" in note.summary


def member_layer(disk: Disk, cleared: int | None) -> Layer:
    extent = disk.partitions[0].extent
    return Layer("linux_raid_member", extent, "1.2", data_start=extent.start + 131 * MIB, raid_cleared=cleared)


def test_a_failed_member_is_reported_with_the_spares_that_are_left() -> None:
    """A failed member that was replaced has no slot, as a spare: md.rst, slot."""
    states = (("nvme0n1p1", "in_sync"), ("nvme1n1p1", "faulty"), ("nvme2n1p1", "in_sync"), ("sda1", "spare"))
    for spares, left in ((("nvme1n1p1",), "none"), (("nvme1n1p1", "sda1"), "sda1")):
        found = report(machine("raid5", None, degraded=0, member_states=states, spares=spares))
        (finding,) = [one for one in found.findings if one.code.value == "AT619"]
        assert finding.evidence == (f"spares that are left: {left}",)
        assert finding.next == "by hand, with mdadm on /dev/md127: docs/by-hand.md#members-of-an-array"
    firmware = report(machine("raid5", None, metadata="external:/md0/0", degraded=0, member_states=states))
    assert [one.next for one in firmware.findings if one.code.value == "AT619"] == ["sudo mdadm --detail /dev/md127"]


@pytest.mark.parametrize(("level", "facts", "expected"), RULES)
def test_each_rule_on_both_sides_of_its_limit(
    level: str, facts: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    inventory = machine("raid1" if level == "container" else level, None, **facts)
    if level == "container":
        disk = inventory.disks[-1]
        assert disk.array is not None
        changed = replace(disk, array=replace(disk.array, level="container", degraded=1, sync_action="resync"))
        inventory = replace(inventory, disks=(*inventory.disks[:-1], changed))
    assert finding_codes(report(inventory)) == expected


def test_a_chunk_that_splits_the_page_of_its_members_is_reported_with_the_source() -> None:
    found = report(machine("raid0", None, chunk=64 * KIB), (PAGE,))
    (finding,) = [one for one in found.findings if one.code.value == "AT603"]
    assert "smaller than the NAND page of nvme" in finding.summary and "a drive of large pages" in finding.summary
    assert finding_codes(report(machine("raid0", None, chunk=192 * KIB), (PAGE,))) == []
    assert finding_codes(report(machine("raid0", None, chunk=128 * KIB), (PAGE,))) == [("AT603", "warning")]


def test_the_page_of_a_journal_does_not_count_for_the_chunk() -> None:
    for journal, is_reported in (("nvme0n1p1", False), ("nvme1n1p1", True)):
        inventory = machine("raid5", None, chunk=64 * KIB, spares=(journal,))
        found = audit(inventory, {"nvme0n1": (PAGE,)})
        assert ("AT603" in {code for code, _ in finding_codes(found)}) == is_reported


@pytest.mark.parametrize(
    ("level", "each", "policy", "typed"),
    [
        ("raid5", 120 * MIB, "resync", "by hand, with mdadm on /dev/md127: docs/by-hand.md#settings-of-an-array"),
        ("raid5", 120 * MIB, "ppl", ""),  # EINVAL
        ("raid5", 120 * MIB, "journal", ""),
        ("raid5", 120 * MIB + 4 * KIB, "resync", ""),  # mdadm: "does not evenly divide device size"
        ("raid10", 120 * MIB, "resync", ""),  # mdadm accepts no backup file for it
        ("raid0", 120 * MIB, None, ""),
    ],
)
def test_a_chunk_is_changed_in_place_only_where_mdadm_takes_a_backup_file(
    level: str, each: int, policy: str | None, typed: str
) -> None:
    found = report(machine(level, None, chunk=4 * KIB, each=each, policy=policy))
    (finding,) = [one for one in found.findings if one.code.value == "AT603"]
    ways = [one for one in finding.evidence if "mdadm" in one]
    assert [one.partition(": ")[2] for one in ways] == ([typed] if typed else [])
    assert not ways or (ways[0].startswith("a chunk of 16KiB fits; ") and "a full backup" in ways[0])


def test_the_progress_of_a_resync_is_reported_with_its_rate_and_remaining_time() -> None:
    facts = {"sync_action": "resync", "sync_done": 25 * GIB, "sync_total": 100 * GIB, "sync_rate": GIB // 4}
    (finding,) = [one for one in report(machine("raid1", None, **facts)).findings if one.code.value == "AT602"]
    assert "25.0 %" in finding.summary and "256MiB/s" in finding.summary and "6 min left" in finding.summary


@pytest.mark.parametrize(
    ("rotational", "discard_max", "array_max", "expected"),
    [
        (False, 2 << 40, 0, ["AT607"]),
        (False, 2 << 40, 1 << 30, []),  # switched on
        (False, 2 << 40, None, []),  # unknown
        (False, 0, 0, []),  # the drives support none either
        (True, 2 << 40, 0, []),  # rotating disks
    ],
)
def test_disabled_discards_are_reported_only_if_the_members_support_them(
    rotational: bool, discard_max: int, array_max: int | None, expected: list[str]
) -> None:
    drives = [drive(number, rotational=rotational) for number in range(3)]
    drives = [replace(one, limits=replace(one.limits, discard_max=discard_max)) for one in drives]
    made = array(drives, "raid5")
    made = replace(made, limits=replace(made.limits, discard_max=array_max))
    found = finding_codes(report(Inventory((*drives, made))))
    assert [code for code, _ in found if code == "AT607"] == expected


@pytest.mark.parametrize(("safely", "word"), [(True, "is on"), (False, "is off"), (None, "by default")])
def test_the_reason_for_missing_discards_follows_the_module_parameter(safely: bool | None, word: str) -> None:
    inventory = machine("raid5", replace(system(), discards_on_parity=safely))
    (finding,) = [one for one in report(inventory).findings if one.code.value == "AT607"]
    assert word in finding.evidence[0]


def test_a_fine_bitmap_is_reported_only_for_flash() -> None:
    drives = [drive(number, rotational=True) for number in range(3)]
    made = array(drives, "raid5", bitmap_chunk=64 * MIB)
    assert finding_codes(report(Inventory((*drives, made)))) == []


# The kernel's words for sync_action: Documentation/admin-guide/md.rst. While one of them is active, md refuses to add
# or remove a bitmap with EBUSY ("Cannot add bitmap while array is resyncing or reshaping", Grow.c of mdadm).
@pytest.mark.parametrize("action", ["resync", "recover", "check", "repair", "reshape", "frozen"])
@pytest.mark.parametrize(
    ("level", "facts", "code"),
    [("raid1", {"policy": "resync", "bitmap": "none"}, "AT605"), ("raid5", {"bitmap_chunk": 64 * MIB}, "AT606")],
)
def test_a_bitmap_change_is_suggested_only_while_the_array_is_idle(
    level: str, facts: dict[str, object], code: str, action: str
) -> None:
    def of(action: str | None) -> Finding:
        found = report(machine(level, None, **facts, sync_action=action)).findings
        return next(one for one in found if one.code.value == code)

    for idle in ("idle", None):
        assert of(idle).next.endswith("docs/by-hand.md#settings-of-an-array") and "mdstat" not in str(of(idle))
    assert of(action).next == "cat /proc/mdstat"
    assert of(action).evidence[-1].endswith(of("idle").next) and action in of(action).evidence[-1]


def test_members_with_two_sector_sizes_are_reported_with_each_size() -> None:
    drives = [drive(0), drive(1, logical=4096)]
    (finding,) = [one for one in report(Inventory((*drives, array(drives)))).findings if one.code.value == "AT610"]
    assert finding.severity.value == "warning" and finding.evidence == ("nvme0n1p1: 512B, nvme1n1p1: 4096B",)


# Whole drives ------------------------------------------------------------------------------------------------------

BACKUP = TableCopy("backup", 500 * GIB - 512, TableCopyState.GOOD)
PRIMARY = TableCopy("primary", 512, TableCopyState.ENTRIES_CRC_BAD)


def whole(*copies: TableCopy, data: int = MIB, kind: DiskKind = DiskKind.NVME, table: bool = False) -> Disk:
    disk = made_disk("2048+4096" if table else "", name="nvme0n1", kind=kind, physical=4096, rotational=False)
    member = Layer("linux_raid_member", Extent(0, 500 * GIB), "1.2" if data else "1.0", data_start=data)
    return replace(disk, content=(member,), content_read=True, gpt_headers=copies)


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        (whole(), [("AT609", "info")]),
        (whole(BACKUP), [("AT608", "error")]),
        (whole(PRIMARY), [("AT608", "error")]),
        (whole(PRIMARY, BACKUP), [("AT608", "error")]),
        (whole(PRIMARY, data=0, table=True), [("AT609", "info")]),  # with the data at byte 0 it belongs to the array
        (whole(BACKUP, data=0), [("AT608", "error")]),  # after the data of the array, and the only copy
        (whole(BACKUP, kind=DiskKind.LOOP), []),  # invisible to firmware
        (made_disk("2048+4096 linux_raid_member", name="nvme0n1", kind=DiskKind.NVME), []),
    ],
)
def test_a_whole_drive_member_is_reported_and_a_stale_table_on_it_is_an_error(
    disk: Disk, expected: list[tuple[str, str]]
) -> None:
    assert finding_codes(report(Inventory((disk,)))) == expected


@pytest.mark.parametrize(
    ("level", "stays"), [("raid0", True), ("linear", True), ("raid1", False), ("raid5", False), (None, False)]
)
def test_removing_a_member_is_not_suggested_for_an_array_without_redundancy(level: str | None, stays: bool) -> None:
    """mdadm(8), "Monitor": RAID0 or Linear never have missing, spare, or failed drives."""
    disk = whole(BACKUP)
    disk = replace(disk, content=(replace(disk.content[0], raid_level=level),))
    (finding,) = [one for one in report(Inventory((disk,))).findings if one.code.value == "AT608"]
    assert any("copy the data elsewhere" in line for line in finding.evidence) == stays
    assert finding.next == ("aligntool explain AT608" if stays else "sudo wipefs --no-act /dev/nvme0n1")
    remedy = explanations()[finding.code].answers[-1]
    assert -1 < remedy.index("RAID0 and linear: copy the data elsewhere") < remedy.index("one member after the other")


def test_the_name_of_an_image_is_quoted_in_the_command_that_shows_a_stale_table() -> None:
    disk = replace(whole(BACKUP, kind=DiskKind.IMAGE), path="a;touch it;.img")
    (finding,) = [one for one in report(Inventory((disk,))).findings if one.code.value == "AT608"]
    assert finding.next == "wipefs --no-act 'a;touch it;.img'"
