"""Running arrays on captured machines, compared with mdadm, lspci and sysfs there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Report, Severity
from aligntool.cli.arrays import look_at_arrays
from aligntool.cli.raid import find_persist_plan
from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory, KnownGeometry, NvmeFacts, Source, Uplink
from aligntool.linux.targets import unpack
from aligntool.raid.running import ArrayView, PersistGoal, arrays_of
from aligntool.realign.repairs import with_repairs
from aligntool.render.lines import text_of
from aligntool.render.plan import array_lines, arrays_json
from aligntool.units import KIB, MIB
from tests.audit.array_builders import OTHER, array, drive, image, lines, machine, system
from tests.audit.machines.captured import HERE, report
from tests.raid.builders import linked
from tests.run_aligntool import run_aligntool
from tests.thorough import THOROUGH

RAID = "md-on-misaligned-partitions"


def view(name: str) -> ArrayView:
    (found,) = arrays_of(report(RAID), [name])
    return found


# mdadm --detail: level, chunk, metadata; the member's start plus mdadm --examine's data offset, in sectors of 512 bytes
ARRAYS = {
    "md0": ("raid0", 64 * KIB, "1.2", 63 + 2048),
    "md1": ("raid1", None, "1.0", 614400),
    "md2": ("raid5", 512 * KIB, "1.2", 1228800 + 4096),
    "md3": ("raid10", 128 * KIB, "0.90", 63),
    "md4": ("raid1", None, "1.1", 614400 + 2048),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_shown_as_by_mdadm_with_the_byte_where_its_data_begin(name: str) -> None:
    level, chunk, metadata, sector = ARRAYS[name]
    found = view(name)
    assert (found.level, found.chunk, found.metadata) == (level, chunk, metadata)
    assert {member.data_at for member in found.members} == {sector * 512}
    assert {member.aligned for member in found.members} == {sector % 8 == 0}


def test_all_layers_of_the_stack_are_judged() -> None:
    assert any("AT101 partition 1 of md3" in finding for finding in view("md3").findings)
    assert not view("md4").findings
    assert view("md1").contents == ("on it: crypto_LUKS", "carries dm-0")


def test_an_array_without_redundancy_is_shown_as_such() -> None:
    assert view("md0").state == "no redundancy"
    assert view("md2").state == "all members present"


def test_an_array_with_parity_on_one_member_is_redundant() -> None:
    """md(4), RAID4: "like RAID0 with an extra device for storing parity"."""
    captured = report(RAID)
    (md2,) = [judged for judged in captured.judged if judged.disk.name == "md2"]
    assert md2.disk.array is not None
    as_raid4 = replace(md2.disk, array=replace(md2.disk.array, level="raid4"))
    judged = tuple(replace(one, disk=as_raid4) if one is md2 else one for one in captured.judged)
    (found,) = arrays_of(replace(captured, judged=judged), ["md2"])
    assert (found.level, found.state) == ("raid4", "all members present")


# mdadm --detail: "Consistency Policy : bitmap" and "Intent Bitmap : Internal"; --examine-bitmap has the chunk
@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"bitmap": "internal", "bitmap_chunk": 64 * MIB}, "internal bitmap, 64MiB per bit"),
        ({"bitmap": "internal"}, "internal bitmap"),
        ({"bitmap": "lockless"}, "lockless bitmap"),
        ({"bitmap": "none"}, "no bitmap"),
        ({"bitmap": None}, ""),
        ({"bitmap": "none", "level": "raid0"}, ""),  # nothing to resynchronise
    ],
)
def test_the_bitmap_is_shown(facts: dict[str, Any], said: str) -> None:
    captured = report(RAID)
    (md2,) = [judged for judged in captured.judged if judged.disk.name == "md2"]
    assert md2.disk.array is not None
    changed = replace(md2, disk=replace(md2.disk, array=replace(md2.disk.array, **facts)))
    found = arrays_of(
        replace(captured, judged=tuple(changed if one is md2 else one for one in captured.judged)), ["md2"]
    )
    title = text_of(array_lines(found, width=120))
    assert (f"· {said} ·" if said else "512KiB · ") in next(iter(title))
    (shown,) = json.loads(arrays_json(found))["arrays"]
    assert shown.get("bitmap", "") == said


def test_every_array_is_shown_with_its_members_and_findings() -> None:
    said = "".join(text_of(array_lines(arrays_of(report(RAID)), width=120)))
    for words in (
        "md3: raid10 · 399.8MiB",
        "vda1: data at byte 1080832, 3584B past a 4KiB boundary",
        "AT101 md0 starts",
        "carries dm-0",
    ):
        assert words in said, words
    assert "No md array" in "".join(text_of(array_lines((), width=80)))


def test_a_spare_does_not_raise_the_ceiling() -> None:
    def found(count: int, **facts: object) -> tuple[int | None, int | None]:
        drives = [linked(drive(number), 2_000_000_000) for number in range(count)]
        inventory = Inventory((*drives, array(drives, "raid5", devices=3, **facts)))
        bound = arrays_of(audit(inventory, {}))[0].ceiling
        return bound.read, bound.write

    assert found(4, spares=("nvme1n1p1",)) == found(3)


def test_a_member_is_shown_with_its_state_unless_it_is_in_sync() -> None:
    """The words are the kernel's: Documentation/admin-guide/md.rst, state."""
    states = (("nvme0n1p1", "in_sync"), ("nvme1n1p1", "in_sync,write_mostly"), ("nvme2n1p1", "faulty"))
    firmware = (("nvme0n1p1", "in_sync,external_bbl"),)
    (shown,) = arrays_of(audit(machine("raid1", member_states=firmware), {}))
    assert [member.md_state for member in shown.members] == ["in_sync", None]
    (found,) = arrays_of(audit(machine("raid5", member_states=states), {}))
    assert [member.md_state for member in found.members] == ["in_sync", "in_sync, write_mostly", "faulty"]
    text = "".join(text_of(array_lines([found], width=200)))
    assert "nvme0n1p1: " in text and "nvme1n1p1 (in_sync, write_mostly): " in text and "nvme2n1p1 (faulty): " in text
    (unknown,) = arrays_of(audit(machine("raid5"), {}))
    assert {member.md_state for member in unknown.members} == {None}


def test_an_array_that_does_not_run_is_refused_with_a_list_of_those_that_do() -> None:
    with pytest.raises(Refused, match="md99: no running md array") as refused:
        arrays_of(report(RAID), ["md0", "md99"])
    assert refused.value.hint.startswith("aligntool raid show md0\naligntool raid show md1\n")


def named_twice() -> Report:
    """Return the names that mdadm gives two arrays of that name: the second one's node gets a number."""
    one, two = array([drive(0), drive(1)], name="here:bare", links=("md/bare",)), array([drive(2), drive(3)])
    here = replace(two.array, name="other:bare", links=("md/bare_0",), uuid=OTHER) if two.array else None
    two = replace(two, name="md126", path="/dev/md126", array=here)
    return audit(Inventory((*map(drive, range(4)), one, two)), {})


def test_an_array_is_found_by_the_name_that_mdadm_assigned() -> None:
    """mdadm --create /dev/md/bare: md/bare below /dev, "HOST:bare" in the superblock."""
    single = audit(machine(name="here:bare", links=("md/bare",)), {})
    for name in ("bare", "here:bare", "md127", "/dev/md127", "/dev/md/bare"):
        assert [found.name for found in arrays_of(single, [name])] == ["md127"], name
    for name in ("here", "md/bare", "/dev/bare", ""):
        with pytest.raises(Refused, match="no running md array"):
            arrays_of(single, [name])


def test_a_name_of_two_arrays_is_refused_with_both_of_them() -> None:
    with pytest.raises(Refused, match="/dev/md127, /dev/md126") as refused:
        arrays_of(named_twice(), ["bare"])
    assert refused.value.hint == "aligntool raid show md127\naligntool raid show md126"
    for name, kernels in (("/dev/md/bare", "md127"), ("other:bare", "md126"), ("bare_0", "md126")):
        assert [found.name for found in arrays_of(named_twice(), [name])] == [kernels]


def test_persist_finds_an_array_by_the_same_names(tmp_path: Path) -> None:
    """The capture contains no mdadm.conf, which persist requires next. mdadm names its md2 "xxxx93-10:0"."""
    capture = str(tmp_path)
    unpack(str(HERE / f"{RAID}.tar.xz"), capture)  # once for all names
    for name in ("md2", "/dev/md2", "0", "xxxx93-10:0") if THOROUGH else ("/dev/md2", "xxxx93-10:0"):
        with pytest.raises(Refused, match="snapshot does not contain the files"):
            find_persist_plan(name, PersistGoal(), capture)
    with pytest.raises(Refused, match="bare: no running md array has that name") as refused:
        find_persist_plan("bare", PersistGoal(), capture)
    assert refused.value.hint.startswith(f"aligntool raid persist --sysroot {capture} md0\n")


def test_the_command_that_repairs_findings_is_shown_a_single_time_below_them() -> None:
    """No ARRAY line (AT611), and an initramfs that would assemble it by another name (AT613): one command for both."""
    files = system(conf=lines("MAILADDR root"), images=(image("MAILADDR root"),))
    (found,) = arrays_of(audit(machine(system=files), {}))
    assert [words.split()[0] for words in found.findings] == ["AT611", "AT613"]
    shown = list(text_of(array_lines([found], width=80)))
    assert [line.strip() for line in shown if "→" in line] == ["→ sudo aligntool raid persist /dev/md127"]
    assert max(at for at, line in enumerate(shown) if "AT61" in line) < next(
        at for at, line in enumerate(shown) if "→" in line
    )
    assert json.loads(arrays_json([found]))["arrays"][0]["next"] == ["sudo aligntool raid persist /dev/md127"]


X4 = 3_938_000_000  # bytes per second: 8 GT/s x4 without its 128b/130b coding
DMI = Uplink("DMI 3.0 x4", 2 * X4, Source.KNOWN, ("nvme0n1", "nvme1n1", "nvme7n1"))


def trained(disk: Disk, width: int) -> Disk:
    """Return a drive behind a port of 8 GT/s x4, with this many lanes in use."""
    here = linked(disk, X4 * width // 4, width=width)
    end, root = here.links[0]
    return replace(here, links=((replace(end, max_speed_gts=8.0, max_width=4, max_bandwidth=X4), root),), model="ACME")


def behind_the_chipset() -> Report:
    """Return two drives on one wide uplink, which a third one, not a member, shares; the second drive
    uses host memory.
    """
    first, second = trained(drive(0), 4), trained(drive(1), 2)
    facts = NvmeFacts(hmb_preferred=64 * MIB, hmb_granted=0)
    members = (first, replace(second, nvme=facts))
    return audit(Inventory((*members, drive(7), array(members)), uplinks=(DMI,)), {})


def test_a_member_is_shown_with_its_link_shared_uplink_and_missing_dram() -> None:
    (found,) = arrays_of(behind_the_chipset())
    said = [line.strip() for line in text_of(array_lines([found], width=120))]
    first = said.index("nvme0n1p1: ACME, link 8 GT/s x4, its maximum, data at byte 138412032, on the grid")
    assert said[first + 1 : first + 3] == [
        "narrowest link on its path: the link of nvme0n1 at 0000:00:00.0, 8 GT/s x4, 3.94 GB/s",
        "shares DMI 3.0 x4 with nvme1n1, nvme7n1",
    ]
    second = said.index("nvme1n1p1: ACME, link 8 GT/s x2 of 8 GT/s x4, data at byte 138412032, on the grid")
    assert said[second + 1 : second + 4] == [
        "narrowest link on its path: the link of nvme1n1 at 0000:01:00.0, 8 GT/s x2, 1.97 GB/s",
        "shares DMI 3.0 x4 with nvme0n1, nvme7n1",
        "no DRAM of its own, requests 64MiB of host memory and got nothing",
    ]


def test_the_json_has_the_same_facts_of_a_member() -> None:
    one, two = json.loads(arrays_json(arrays_of(behind_the_chipset())))["arrays"][0]["members"]
    assert [each["own_link"] for each in (one, two)] == ["link 8 GT/s x4, its maximum", "link 8 GT/s x2 of 8 GT/s x4"]
    assert [each["bandwidth"] for each in (one, two)] == [X4, X4 // 2]
    assert one["shares"] == ["shares DMI 3.0 x4 with nvme1n1, nvme7n1"]
    assert [each["dramless"] for each in (one, two)] == [False, True]
    assert (one["memory"], two["memory"][:18]) == (None, "no DRAM of its own")
    documented = (HERE.parents[2] / "docs" / "json.md").read_text().split("## Arrays")[1]
    assert all(f"`{key}`" in documented.split("\n## ")[0] for key in one)


def test_a_drive_without_dram_according_to_the_database_is_reported() -> None:
    row = KnownGeometry(Source.KNOWN, "row", "made up", "high", dram=False)
    (found,) = arrays_of(behind_the_chipset(), known={"nvme0n1": (row,)})
    assert (found.members[0].dramless, found.members[0].memory) == (True, "no DRAM of its own")


def test_notes_of_the_audit_are_not_shown() -> None:
    """A resynchronisation is a note (INFO) of the audit."""
    found = audit(machine(sync_action="resync"), {})
    assert any(each.severity is Severity.INFO for each in found.findings)
    (shown,) = arrays_of(found)
    assert shown.findings == ()


def test_a_machine_without_arrays_shows_none() -> None:
    assert arrays_of(report("nvme-behind-switch")) == ()
    captured = "aligntool raid show --sysroot 'raid show.tar.xz'"
    with pytest.raises(Refused, match="md0: no running md array") as refused:
        arrays_of(report("nvme-behind-switch"), ["md0"], command=captured)
    assert refused.value.hint == "aligntool audit --sysroot 'raid show.tar.xz'"


def test_a_next_step_of_an_array_is_that_of_the_audit(tmp_path: Path) -> None:
    unpack(str(HERE / f"{RAID}.tar.xz"), str(tmp_path))
    (found,) = look_at_arrays(["md3"], str(tmp_path))
    _, repairs = with_repairs(report(RAID))
    assert {repair.answer for repair in repairs["md3"]} == {"not"}
    assert not any("plan realign /dev/md3" in step for step in found.next)
    assert {repair.next for repair in repairs["md3"]} <= set(found.next)


def test_the_start_of_an_array_is_moved_by_its_members(tmp_path: Path) -> None:
    """No plan moves these, so nothing leads to a stop of the array."""
    unpack(str(HERE / f"{RAID}.tar.xz"), str(tmp_path))
    (found,) = look_at_arrays(["md0"], str(tmp_path))
    assert [step for step in found.next if step.endswith("with mdadm on /dev/md0: docs/by-hand.md#members-of-an-array")]
    assert not [step for step in found.next if "--stop" in step or "umount" in step]


@pytest.mark.parametrize(("name", "options"), [("md0", ["--map"]), ("md3", [])])
def test_an_audit_never_suggests_itself(tmp_path: Path, name: str, options: list[str]) -> None:
    unpack(str(HERE / f"{RAID}.tar.xz"), str(tmp_path))
    done = run_aligntool("audit", *options, "--sysroot", tmp_path, name)
    assert "aligntool audit" not in done.stdout
    assert ("The start is misaligned" in done.stdout) == (name == "md0")
