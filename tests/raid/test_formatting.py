"""Arrays on empty NVMe drives that are formatted to another LBA format first: the plan, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aligntool.change import (
    ArrayPlan,
    ArrayRequest,
    RaidGoal,
    from_json,
    plan_with_request,
    request_in_document,
    to_json,
)
from aligntool.errors import Refused
from aligntool.inventory import (
    Disk,
    DiskKind,
    Inventory,
    KnownGeometry,
    LbaFormat,
    NvmeFacts,
    Sampled,
    Source,
    TableCopy,
    TableCopyState,
)
from aligntool.raid.commands import command_of, format_command
from aligntool.raid.current_names import with_current_names
from aligntool.raid.lba_formats import Namespace
from aligntool.raid.planning import needs_of_plan, plan_raid
from aligntool.recipes.drives import load_drives
from aligntool.recipes.goals import parse_recipe
from aligntool.render.lines import text_of
from aligntool.render.plan import raid_plan_lines, summary_lines, undo_title
from aligntool.render.recipes import recipe_lines
from aligntool.steps import FormatDrive, MakeArray, MakeFileSystem, MakeMember
from aligntool.units import MIB
from tests.raid.builders import SIZE, drive, goal, judged, layer
from tests.schemas import check

FORMATS = (LbaFormat(0, 512, 0, 2), LbaFormat(1, 512, 8, 2), LbaFormat(2, 4096, 0, 1), LbaFormat(3, 4096, 0, 0))
BLANK = Sampled(60_000, 0, 0, "", 16 * MIB)


def blank(number: int, *, logical: int = 512, size: int = SIZE) -> Disk:
    """Return a drive of which everything that is read is blank."""
    disk = drive(number, logical=logical, size=size)
    facts = NvmeFacts(formats=FORMATS, format_in_use=0 if logical == 512 else 3, controllers=(f"nvme{number}",))
    return replace(disk, nvme=facts, sampled=BLANK, table_read=True, content_read=True)


def planned(wanted: RaidGoal, *disks: Disk, rows: tuple[KnownGeometry, ...] = (), **scopes: str | None) -> ArrayPlan:
    namespaces = {disk.name: Namespace(scopes.get(disk.name, "namespace"), 1) for disk in disks}
    known = {disk.name: rows for disk in disks}
    return plan_raid(judged(*disks), Inventory(disks), wanted, known=known, namespaces=namespaces)


WANTED = goal(lba_size=4096)


def test_empty_drives_are_formatted_before_anything_else() -> None:
    plan = planned(WANTED, blank(0), blank(1))
    kinds = [type(step) for step in plan.steps[:5]]
    assert kinds == [FormatDrive, FormatDrive, MakeMember, MakeMember, MakeArray]
    step = plan.of(FormatDrive)[0]
    # The better of the two formats of 4096 bytes without metadata, as rated by the drive.
    assert (step.format_before, step.block_before, step.format_after, step.block_after) == (0, 512, 3, 4096)
    # NVMe base specification, Format NVM: opcode 80h; dword 10 has the format in bits 3:0, and zero elsewhere.
    words = ("--opcode=0x80", "--namespace-id=1", "--cdw10=3", "--timeout=600000")
    assert format_command(step) == ("nvme", "admin-passthru", "/dev/nvme0n1", *words)
    assert from_json(to_json(plan)) == plan
    document = plan_with_request(plan, "wanted", ArrayRequest(("/dev/nvme0n1", "/dev/nvme1n1"), WANTED))
    check(json.loads(document))
    assert request_in_document(document, "wanted", ArrayRequest).goal == WANTED
    assert "nvme" in needs_of_plan(plan, here=False).programs


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("level", ["raid0", "raid1", "raid5"])
def test_the_rest_of_the_plan_is_that_of_drives_with_these_blocks(level: str, whole: bool) -> None:
    wanted = goal(level, members="whole-drives" if whole else "new-partitions", esp_size=0)
    plan = planned(replace(wanted, lba_size=4096), *(blank(number) for number in range(3)))
    later = planned(wanted, *(blank(number, logical=4096) for number in range(3)))
    assert plan.steps[3:] == later.steps
    assert plan.disk == later.disk and plan.disk.sector_size == 4096
    assert all(step.disk.sector_size == 4096 for step in plan.of(MakeMember))
    assert all(step.disk.sector_size == 512 for step in plan.of(FormatDrive))
    assert len(plan.members) == 3 and "A new array of 3 members." in "".join(text_of(summary_lines(plan, width=200)))


def test_partitions_and_file_system_fit_the_new_blocks() -> None:
    """Its size is no multiple of 4096 bytes: the rest of it is lost."""
    plan = planned(WANTED, blank(0, size=SIZE + 2560), blank(1, size=SIZE + 2560))
    for step in plan.of(MakeMember):
        assert step.disk.size == (SIZE + 2560) // 4096 * 4096
        assert all(entry.extent.start % 4096 == 0 == entry.extent.length % 4096 for entry in step.entries)
        # A GPT ends with 16 KiB of entries and a header, 5 sectors of 4096 bytes (UEFI 2.10, 5.3).
        assert step.entries[-1].extent.end <= step.disk.size - 5 * 4096
    # mkfs.xfs takes sectors of the device's own 4096 bytes (mkfs.xfs(8), -s); block_size is judged by them
    assert plan.of(MakeFileSystem) and "-s" not in command_of(plan.of(MakeFileSystem)[0])
    with pytest.raises(Refused, match="cannot have blocks of 1KiB on logical blocks of 4KiB"):
        planned(replace(WANTED, block_size=1024), blank(0), blank(1))


def test_drives_that_have_the_size_already_are_not_formatted() -> None:
    plan = planned(WANTED, blank(0, logical=4096), blank(1))
    assert [step.disk.path for step in plan.of(FormatDrive)] == ["/dev/nvme1n1"]
    assert any(note == "nvme0n1 already has logical blocks of 4096 bytes" for note in plan.notes)
    both = planned(WANTED, blank(0, logical=4096), blank(1, logical=4096))
    assert not both.of(FormatDrive) and both.steps == planned(goal(), *(blank(n, logical=4096) for n in (0, 1))).steps


def test_the_question_names_the_drives_by_their_serial_numbers() -> None:
    plan = planned(WANTED, blank(0), blank(1))
    said = "".join(text_of(summary_lines(plan, width=200)))
    assert "Formatted first, which erases the whole drive: /dev/nvme0n1 (serial S0000" in said
    assert "/dev/nvme1n1 (serial S0001" in said
    assert undo_title(plan.steps[0]) == "leave /dev/nvme0n1 with the format that it has"
    lines = "".join(text_of(raid_plan_lines(plan, width=200, type_next="", verbose=True)))
    assert "$ nvme admin-passthru /dev/nvme0n1 --opcode=0x80 --namespace-id=1 --cdw10=3" in lines
    assert "format 0, 512 bytes (good), becomes format 3, 4096 bytes (best), as rated by the drive" in lines


def with_facts(**more: Any) -> Callable[[Disk], Disk]:
    return lambda disk: replace(disk, **more)


def with_nvme(**more: Any) -> Callable[[Disk], Disk]:
    return lambda disk: replace(disk, nvme=replace(disk.nvme, **more))  # type: ignore[type-var]


GPT_COPY = TableCopy("backup", SIZE - 512, TableCopyState.GOOD)
REFUSED = [
    ("data", with_facts(sampled=replace(BLANK, written=3)), "not-empty", "unrecognised data at 3 of 60000"),
    ("a file system", with_facts(content=(layer("ext4"),)), "not-empty", "ext4 on the whole drive"),
    ("remains of a GPT", with_facts(gpt_headers=(GPT_COPY,)), "not-empty", "the remains of a GPT"),
    ("not sampled", with_facts(sampled=None), "not-read", "was not read"),
    ("too few places", with_facts(sampled=replace(BLANK, spacing=1 << 30)), "not-read", "is not known to be empty"),
    ("unreadable", with_facts(sampled=replace(BLANK, unreadable=1)), "failing", "cannot be read at 1 of"),
    ("not readable", with_facts(content_read=False), "not-read", "could not be read"),
    ("mounted", with_facts(mounted_at=("/srv",)), "mounted", "mounted at /srv"),
    ("locked", with_facts(taken=(("it is attached to loop0", ""),)), "in-use", "loop0"),
    ("failing", with_facts(failing="it dies"), "failing", "it dies"),
    ("no such format", with_nvme(formats=FORMATS[:2]), "lba-format", "no format with 4096 bytes and no metadata"),
    ("metadata now", with_nvme(format_in_use=1), "lba-format", "metadata with its blocks"),
    ("formats not readable", with_nvme(format_in_use=None), "not-read", "did not report its formats"),
    ("two controllers", with_nvme(controllers=("nvme0", "nvme9")), "lba-format", "2 controllers"),
    ("no NVMe", with_facts(kind=DiskKind.SCSI, nvme=None), "lba-format", "not on an NVMe drive"),
    ("no identity", with_facts(serial=None, wwn=None), "lba-format", "another drive"),
]  # fmt: skip


@pytest.mark.parametrize("wipe", [(), ("/dev/nvme0n1",)], ids=["", "wiped"])
@pytest.mark.parametrize(("change", "code", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_drive_that_may_not_be_formatted_is_refused(
    change: Callable[[Disk], Disk], code: str, said: str, wipe: tuple[str, ...]
) -> None:
    with pytest.raises(Refused) as refused:
        planned(replace(WANTED, wipe=wipe), change(blank(0)), blank(1))
    found = refused.value.refusals
    assert any(one.code == code and said in one.text for one in found), found
    assert code != "not-empty" or (len(found) == 1 and "--wipe" not in refused.value.hint)


def test_a_drive_that_is_not_nvme_is_first_answered_with_the_option_to_omit() -> None:
    with pytest.raises(Refused) as refused:
        planned(WANTED, with_facts(kind=DiskKind.SCSI, nvme=None)(blank(0)), blank(1))
    assert refused.value.hint.split("\n") == ["omit --lba-size", "replace it with a drive with blocks of 4096 bytes"]


def test_an_existing_partition_is_refused_because_the_whole_drive_is_erased() -> None:
    part = replace(drive(0, parts="2048+2097152"), nvme=blank(0).nvme, sampled=BLANK)
    other = replace(drive(1, parts="2048+2097152"), nvme=blank(1).nvme, sampled=BLANK)
    with pytest.raises(Refused, match="nvme0n1 is not empty: partition 1"):
        planned(replace(WANTED, members="partitions", partitions=(1, 1)), part, other)


def test_a_format_that_erases_more_than_the_namespace_is_refused() -> None:
    with pytest.raises(Refused, match="formatting nvme0n1 erases every namespace of its drive"):
        planned(WANTED, blank(0), blank(1), nvme0n1="drive")
    with pytest.raises(Refused, match="nvme0n1 does not support formatting a namespace"):
        planned(WANTED, blank(0), blank(1), nvme0n1="none")
    with pytest.raises(Refused, match="nvme0n1 did not report its formats"):
        planned(WANTED, blank(0), blank(1), nvme0n1=None)


def test_two_drives_of_one_identity_are_refused() -> None:
    alike = replace(blank(1), serial="S0000", wwn=blank(0).wwn)
    with pytest.raises(Refused, match="nvme0n1 cannot be distinguished from nvme1n1"):
        planned(WANTED, blank(0), alike)
    named = (blank(0), blank(2))
    seen = Inventory(named)
    namespaces = {disk.name: Namespace("namespace", 1) for disk in named}
    with pytest.raises(Refused, match="nvme0n1 cannot be distinguished from nvme1n1"):
        plan_raid(judged(*named), seen, WANTED, namespaces=namespaces, disks=(*named, alike))
    assert plan_raid(judged(*named), seen, WANTED, namespaces=namespaces, disks=named).of(FormatDrive)


def test_firmware_with_a_known_defect_is_not_asked_to_format() -> None:
    row = KnownGeometry(Source.KNOWN, "ACME", "its maker", "high", defect="it can lock itself", fixed_in="2.0")
    with pytest.raises(Refused, match=r"firmware 1\.0 has a known defect: it can lock itself") as refused:
        planned(WANTED, blank(0), blank(1), rows=(row,))
    assert {one.code for one in refused.value.refusals} == {"firmware-defect"}
    assert refused.value.hint == "install firmware 2.0 first"
    assert planned(WANTED, blank(0, logical=4096), blank(1, logical=4096), rows=(row,)).steps


def test_the_database_knows_such_firmware() -> None:
    """Puget Systems with Samsung, January 2023: drives with it lock themselves."""
    early = [replace(blank(number), model="Samsung SSD 980 PRO 2TB", firmware="3B2QGXA7") for number in (0, 1)]
    with pytest.raises(Refused, match="can then only be read"):
        planned(WANTED, *early, rows=load_drives().known(early[0]))
    fixed = [replace(disk, firmware="5B2QGXA7") for disk in early]
    assert planned(WANTED, *fixed, rows=load_drives().known(fixed[0])).steps


def test_drives_with_different_blocks_are_offered_the_option() -> None:
    with pytest.raises(Refused, match="logical blocks of different sizes") as refused:
        planned(goal(), blank(0), blank(1, logical=4096))
    assert refused.value.hint == "format 3 erases nvme0n1 and gives it blocks of 4096: --lba-size 4096"


@pytest.mark.parametrize("size", [8192, 1000, 0])
def test_blocks_that_md_does_not_take_are_refused(size: int) -> None:
    with pytest.raises(Refused) as refused:
        planned(goal(lba_size=size), blank(0), blank(1))
    assert any(one.subject == "--lba-size" for one in refused.value.refusals)


RECIPE = 'format = 1\nkind = "raid"\nsummary = "s"\nsource = "s"\nlevel = "raid1"\n'


def test_a_recipe_may_have_a_block_size() -> None:
    recipe = parse_recipe("mine.toml", f"{RECIPE}lba_size = 4096\n")
    assert isinstance(recipe.goal, RaidGoal) and recipe.goal.lba_size == 4096
    shown = "".join(text_of(recipe_lines((recipe,), width=100)))
    assert "empty NVMe drives are first formatted to logical blocks of 4096 bytes" in shown
    for wrong in ("4095", "4096.5", "true", '"4KiB"', "131072"):
        with pytest.raises(Refused, match="lba_size"):
            parse_recipe("mine.toml", f"{RECIPE}lba_size = {wrong}\n")


def test_no_drive_is_formatted_at_boot() -> None:
    """`raid ensure` asks no question there."""
    text = RECIPE.replace('"raid"', '"ensure"') + 'lba_size = 4096\n[drives]\nselect = "all-unused"\n'
    with pytest.raises(Refused, match="unknown key 'lba_size'"):
        parse_recipe("scratch.toml", text)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_the_drives_are_found_again_by_their_identity_whatever_is_formatted(done: int) -> None:
    """Also where the sizes differ: a size that is no multiple of 4096 bytes shrinks."""
    plan = planned(WANTED, blank(0, size=SIZE + 2560), blank(1, size=SIZE + 2560))
    names = ("nvme7n1", "nvme8n1")
    found = []
    for number, name in enumerate(names):
        size = (SIZE + 2560) // 4096 * 4096 if number < done else SIZE + 2560
        disk = blank(number, logical=4096 if number < done else 512, size=size)
        found.append(replace(disk, name=name, path=f"/dev/{name}"))
    current = with_current_names(plan, found)
    assert [step.disk.path for step in current.of(FormatDrive)] == ["/dev/nvme7n1", "/dev/nvme8n1"]
    assert current.members == ("/dev/nvme7n1p1", "/dev/nvme8n1p1")
    with pytest.raises(Refused, match="serial S0001, which was /dev/nvme1n1, is missing") as refused:
        with_current_names(plan, found[:1])
    assert str(refused.value).count("missing") == 1
