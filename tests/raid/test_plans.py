"""Plans of arrays: the recipes' golden plans, and what every plan must state and contain."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aligntool.change import ArrayPlan, RaidGoal, from_json, to_json
from aligntool.cli.arrays import report_array
from aligntool.inventory import Adapter, Disk, Inventory, KnownGeometry, LbaFormat, NvmeFacts, Source
from aligntool.raid.boot import SYSTEMS
from aligntool.raid.commands import command_of
from aligntool.raid.planning import plan_raid
from aligntool.recipes.goals import Recipe
from aligntool.render.lines import cell_width, text_of
from aligntool.render.plan import merged_sentences, raid_plan_lines, summary_lines
from aligntool.steps import (
    CheckInitramfs,
    EditFile,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    Mount,
    RebuildInitramfs,
    SystemStep,
    WriteFile,
)
from aligntool.system import Initramfs, System
from aligntool.units import GIB, KIB, MIB
from tests.raid.builders import ARRAY_UUID, FS_UUID, drive, drives, goal, judged, linked, planned
from tests.raid.golden_plans import DISKS, GOLDEN, RECIPES, RENEW, golden_file, golden_plan, golden_text


def name(recipe: Recipe) -> str:
    return recipe.name


@pytest.mark.parametrize("each", RECIPES, ids=name)
def test_every_recipe_gives_its_golden_plan(each: Recipe) -> None:
    assert golden_file(each).read_text() == golden_text(each), RENEW


@pytest.mark.parametrize("each", RECIPES, ids=name)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_short_plan_has_members_values_and_a_line_for_each_kind_of_step(each: Recipe, width: int) -> None:
    """Reasons, files and commands are for -v. A broken rule is shown as well."""
    plan = golden_plan(each)
    said = "".join(text_of(raid_plan_lines(plan, width=width)))
    assert max(cell_width(line) for line in said.splitlines()) <= width
    whole = "".join(text_of(raid_plan_lines(plan, width=width, verbose=True)))
    assert said.count("\n") < min(whole.count("\n"), 60)
    assert "satisfies" not in said and ("satisfies" in whole or "RAID1 " in whole)
    assert "$ " not in said and "$ mdadm --create" in whole
    for member in (step.device for step in plan.steps if isinstance(step, MakeMember)):
        assert member in said
    broken = replace(plan, notes=("chunk 4KiB VIOLATES: at least 16KiB", *plan.notes))
    assert "VIOLATES" in "".join(text_of(raid_plan_lines(broken, width=width)))


def test_sentences_that_differ_in_their_device_only_are_one() -> None:
    told = ("sda: old", "sdb: old", "sda: worn", "the rest: stays", "sda is one: of two")
    assert merged_sentences(told) == ["sda, sdb: old", "sda: worn", "the rest: stays", "sda is one: of two"]
    assert merged_sentences(("partition 1: as it is", "partition 2: as it is")) == [
        "partition 1, partition 2: as it is"
    ]


def test_recipes_sample_drives_and_golden_plans_correspond() -> None:
    names = {each.name for each in RECIPES}
    assert names == set(DISKS) == {path.stem for path in GOLDEN.iterdir()}


@pytest.mark.parametrize("each", RECIPES, ids=name)
def test_a_saved_plan_is_read_back_unchanged(each: Recipe) -> None:
    plan = golden_plan(each)
    assert from_json(to_json(plan)) == plan


def edits(plan: ArrayPlan) -> dict[str, str]:
    return {step.path: "\n".join(step.lines) for step in plan.steps if isinstance(step, EditFile | WriteFile)}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_array_is_configured_to_start_on_every_system(system: str) -> None:
    plan = planned(goal(system=system), *drives(2))
    files = edits(plan)
    conf = "/etc/mdadm/mdadm.conf" if system.startswith("debian") else "/etc/mdadm.conf"
    assert files[conf] == f"ARRAY /dev/md/data metadata=1.2 UUID={ARRAY_UUID}"
    assert files["/etc/fstab"].startswith(f"UUID={FS_UUID} /srv/data xfs ")
    assert "nofail" in files["/etc/fstab"].split()[3].split(",")
    maker = {"debian": "initramfs-tools", "arch": "mkinitcpio"}.get(system, "dracut")
    rebuild = plan.steps.index(RebuildInitramfs(maker))
    assert plan.steps[rebuild + 1] == CheckInitramfs(maker, ARRAY_UUID)
    assert plan.steps[-1] == Mount("/srv/data")


def test_edited_files_have_a_backup_in_the_same_folder() -> None:
    steps = [step for step in planned(goal(level="raid0"), *drives(2)).steps if isinstance(step, EditFile)]
    assert len(steps) == 2
    for step in steps:
        assert step.backup != step.path and step.backup.startswith(step.path)
        assert all(step.instead_of in line for line in step.lines)  # when repeated, it replaces its own line


def test_no_line_and_no_command_names_an_array_by_its_number() -> None:
    """/dev/md127 is another array after the next boot: mdadm counts down from it."""
    for each in RECIPES:
        said = to_json(golden_plan(each))
        assert not re.search(r"/dev/md\d", said)


def test_every_step_follows_those_that_it_requires() -> None:
    kinds = [type(step).__name__ for step in planned(goal(), *drives(2)).steps]
    array, system = kinds.index("MakeArray"), kinds.index("MakeFileSystem")
    assert kinds[:2] == ["MakeMember", "MakeMember"] and array == 2
    assert array < system < kinds.index("EditFile") < kinds.index("RebuildInitramfs")


def test_mdadm_gets_every_option_explicitly() -> None:
    for level, count in (("raid1", 2), ("raid10", 4), ("raid5", 3), ("raid6", 4)):
        plan = planned(goal(level), *drives(count))
        (array,) = [step for step in plan.steps if isinstance(step, MakeArray)]
        given = {word.partition("=")[0] for word in command_of(array)}
        needed = {"--run", "--level", "--raid-devices", "--metadata", "--data-offset", "--size", "--bitmap", "--uuid",
                  "--name", "--homehost", "--consistency-policy"}  # fmt: skip
        needed |= set() if level == "raid1" else {"--chunk", "--layout"}
        assert needed <= given, needed - given


# The commands of these plans, run by mdadm 4.2 on Linux 6.1 in an emulated PC with four empty NVMe drives of 20 GiB:
# blockdev --getsize64 of the array, and the data offset in sectors that mdadm --examine reported for the first member.
MADE = [
    (goal("raid0", chunk=256 * KIB), 2, 42905632768, 38912),
    (goal("raid1"), 2, 21347958784, 38912),
    (goal("raid10"), 4, 42695917568, 38912),
    (goal("raid10", layout="f2"), 3, 32021938176, 38912),
    (goal("raid5", workload="sequential"), 3, 42695917568, 38912),
    (goal("raid5", bitmap="none", members="whole-drives"), 3, 42698014720, 40960),
    (goal("raid6", chunk=64 * KIB), 4, 42695917568, 38912),
    (goal("raid1", metadata="1.0"), 2, 21366833152, 0),
]


@pytest.mark.parametrize(("wanted", "count", "size", "sectors"), MADE)
def test_the_planned_size_is_the_size_that_mdadm_made(wanted: RaidGoal, count: int, size: int, sectors: int) -> None:
    plan = planned(wanted, *drives(count, size=20 * GIB))
    assert plan.disk.size == size
    (array,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    offset = f"--data-offset={sectors // 2}K"
    assert (offset in command_of(array)) if sectors else not any("data-offset" in word for word in command_of(array))


def notes(plan: ArrayPlan) -> str:
    return "\n".join(plan.notes)


def test_a_requested_value_is_used_and_reported_with_the_recommended_one() -> None:
    plan = planned(goal("raid0", chunk=256 * KIB), *drives(2))
    assert "chunk 256KiB as requested; aligntool recommends 512KiB" in notes(plan)
    assert "as requested" not in notes(planned(goal("raid0", chunk=512 * KIB), *drives(2)))


def test_every_value_of_the_articles_array_is_reported() -> None:
    plan = golden_plan(next(each for each in RECIPES if each.name == "nvme-raid0-scratch"))
    for words in ("chunk 256KiB as requested", "a log of 64MiB as requested", "inodes of 512B as requested",
                  "logbufs=8 as requested", "DMI 3.0 x4"):  # fmt: skip
        assert words in notes(plan), words
    assert "noatime,logbufs=8,nofail" in edits(plan)["/etc/fstab"]
    assert any("all data is lost" in sentence for sentence in plan.attention)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (goal("raid5"), "no partial parity log"),
        (goal("raid1"), "no --assume-clean"),
        (goal("raid1", bitmap="none"), "the whole array is resynchronised"),
        (goal("raid1"), "metadata 1.2 is 4KiB into each member"),
        (goal("raid0", chunk=64 * KIB), "read 512KiB ahead"),  # 4 x 64 KiB: read_ahead_kb was 512 (Linux 6.12)
        (goal("raid10", layout="f2"), "copies are in different halves"),
    ],
)
def test_choices_are_reported_with_their_reasons(wanted: RaidGoal, words: str) -> None:
    assert words in notes(planned(wanted, *drives(4)))


def with_formats(disk: Disk, *formats: LbaFormat, hmb: int = 0) -> Disk:
    return replace(disk, nvme=NvmeFacts(formats=formats, format_in_use=0, hmb_preferred=hmb))


def test_a_better_lba_format_is_suggested_with_its_command() -> None:
    better = LbaFormat(1, 4096, 0, 0)
    with_metadata = LbaFormat(2, 4096, 8, 0)
    one, two = drives(2)
    plan = planned(goal(), with_formats(one, LbaFormat(0, 512, 0, 2), with_metadata, better), two)
    assert "offers 4096 (format 1; performance 0 instead of 2" in notes(plan)
    assert "to format empty drives first: --lba-size 4096" in notes(plan)
    plan = planned(goal(), with_formats(one, LbaFormat(0, 512, 0, 0), LbaFormat(1, 4096, 0, 2)), two)
    assert "with nvme" not in notes(plan)


def test_a_format_of_equal_rating_is_reported_and_not_suggested() -> None:
    one, two = drives(2)
    plan = planned(goal(), with_formats(one, LbaFormat(0, 512, 0, 0), LbaFormat(1, 4096, 0, 0)), two)
    assert f"{one.name} is formatted with 512-byte blocks and offers 4096 (format 1)" in notes(plan)
    assert "rates the same" in notes(plan)
    assert "with nvme" not in notes(plan)


def test_drives_without_dram_are_recognised_by_their_request_or_the_database() -> None:
    one, two = drives(2)
    plan = planned(goal(), with_formats(one, hmb=64 * MIB), two)
    assert any("without DRAM: nvme0n1;" in sentence for sentence in plan.attention)
    row = KnownGeometry(Source.KNOWN, "row", "made up", "high", dram=False)
    plan = planned(goal(), one, two, known=(row,))
    assert any("without DRAM: nvme0n1, nvme1n1;" in sentence for sentence in plan.attention)
    assert not any("without DRAM" in sentence for sentence in planned(goal(), one, two).attention)


def test_differences_between_members_are_reported() -> None:
    one, two = linked(drive(0), 3_938_000_000), linked(drive(1), 1_969_000_000, width=2)
    other = replace(two, model="ACME NV2", numa_node=1, size=(two.size or 0) + 4096)
    said = "\n".join(planned(goal(), replace(one, numa_node=0), other).attention)
    for words in ("models: nvme0n1 ACME NV1, nvme1n1 ACME NV2", "NUMA nodes", "links: nvme0n1 link 8 GT/s x4"):
        assert f"different {words}" in said, words
    assert "different" not in "\n".join(planned(goal(), *drives(2)).attention)


def test_a_limiting_link_and_drives_hidden_by_firmware_are_reported() -> None:
    one, two = (linked(disk, 1_969_000_000, width=2) for disk in drives(2))
    able = replace(one.links[0][0], max_speed_gts=16.0, max_width=4, max_bandwidth=7_876_000_000)
    slow = replace(one, links=((able, one.links[0][1]),))
    said = planned(goal(), slow, two).attention
    assert any(line.startswith("nvme0n1: link 8 GT/s x2 of 16 GT/s x4; limited by its slot or link") for line in said)
    assert not any(line.startswith("nvme1n1:") for line in said)
    adapter = Adapter("0000:00:17.0", "SATA controller", remapped_nvme=2)
    plan = plan_raid(judged(*drives(2)), Inventory(drives(2), adapters=(adapter,)), goal())
    assert any("SATA controller at 0000:00:17.0 hides 2 NVMe drives" in line for line in plan.attention)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (goal("raid5"), "does not forward discards"),
        (goal("raid1", metadata="1.0"), "makes the copies differ"),
        (goal("raid1", esp_size=512 * MIB), "efibootmgr"),
        (goal("raid5", chunk=MIB), "breaks a rule: a full stripe of at most 1MiB"),
        (goal("raid1", system="fedora"), f"rd.md.uuid={ARRAY_UUID}"),
        (goal("raid1", mount_at=""), "this ARRAY line in its mdadm.conf"),
    ],
)
def test_consequences_that_need_attention_are_reported(wanted: RaidGoal, words: str) -> None:
    assert any(words in sentence for sentence in planned(wanted, *drives(4)).attention)


@pytest.mark.parametrize(
    ("safely", "words"),
    [
        (True, "devices_handle_discard_safely is on here"),
        (False, "does not forward discards because raid456's devices_handle_discard_safely is off:"),
        (None, "does not forward discards while raid456's devices_handle_discard_safely is off, the default"),
    ],
)
def test_discards_on_parity_are_reported_as_the_kernel_is_configured(safely: bool | None, words: str) -> None:
    disks = drives(3)
    inventory = Inventory(disks, system=System("debian", discards_on_parity=safely))
    said = plan_raid(judged(*disks), inventory, goal("raid5")).attention
    assert [line for line in said if words in line], said


@pytest.mark.parametrize(
    ("kernel", "images", "words"),
    [
        ("6.1.0-56-amd64", ("initrd.img-6.1.0-56-amd64",), ""),
        ("6.18.9", (), ""),
        (None, (), ""),
        ("6.19.0-rc1", (), "which concerns older rescue systems"),
        (
            "7.2.13+deb14-amd64",
            ("initrd.img-7.2.13+deb14-amd64", "initramfs-linux.img"),
            "which concerns older rescue systems",
        ),
        ("7.2.13+deb14-amd64", ("initrd.img-6.12.5", "initrd.img-7.2.13"), "which concerns /boot/initrd.img-6.12.5"),
        (
            "7.3.4-300.fc44",
            ("initramfs-6.18.7-200.fc43.x86_64.img",),
            "which concerns /boot/initramfs-6.18.7-200.fc43.x86_64.img",
        ),
    ],
)
def test_kernels_that_cannot_assemble_the_array_are_named(
    kernel: str | None, images: Sequence[str], words: str
) -> None:
    """From Linux 6.19 on, md stores the block size of a new array where older kernels require zeros."""
    found = tuple(Initramfs(f"/boot/{name}") for name in images)
    inventory = Inventory(disks := drives(2), system=System("debian", initramfs=found, kernel=kernel))
    lines = [line for line in plan_raid(judged(*disks), inventory, goal("raid1")).attention if "Linux before" in line]
    assert [words in line for line in lines] == ([True] if words else [])


def test_a_partition_of_another_type_gets_that_of_a_member_after_the_array_is_made() -> None:
    """sfdisk --list-types names A19D880F... Linux RAID, and fd Linux raid autodetect."""
    disks = (drive(0, parts="2048+40000000"), drive(1, parts="2048+40000000"))
    steps = planned(goal(partitions=(1, 1)), *disks).steps
    kinds = [type(step).__name__ for step in steps]
    found = [command_of(step) for step in steps[kinds.index("MakeArray") + 1 :] if isinstance(step, SystemStep)]
    raid = "A19D880F-05FC-4D3B-A006-743F0F84911E"
    assert found[:2] == [
        ("sfdisk", "--no-tell-kernel", "--part-type", f"/dev/nvme{number}n1", "1", raid) for number in range(2)
    ]
    assert "SetPartitionType" not in to_json(planned(goal(), *drives(2)))


def test_an_array_without_a_mount_point_has_no_line_in_fstab() -> None:
    for wanted in (goal("raid0", mount_at=""), goal("raid0", filesystem="none")):
        plan = planned(wanted, *drives(2))
        assert list(edits(plan)) == ["/etc/mdadm/mdadm.conf"]
    assert not [step for step in plan.steps if isinstance(step, MakeFileSystem)]
    swap = planned(goal(filesystem="swap"), *drives(2))
    assert edits(swap)["/etc/fstab"] == f"UUID={FS_UUID} none swap sw,nofail 0 0"


def test_the_mount_waits_longer_than_mdadm_waits_for_missing_members() -> None:
    """mdadm-last-resort@.timer of mdadm 4.2: OnActiveSec=30, from the first member on; the mount waits earlier."""
    options = edits(planned(goal(), *drives(2)))["/etc/fstab"].split()[3].split(",")
    (wait,) = [each for each in options if each.startswith("x-systemd.device-timeout=")]
    number, unit = re.fullmatch(r".*=(\d+)(s|min)", wait).groups()  # type: ignore[union-attr]
    assert int(number) * {"s": 1, "min": 60}[unit] >= 90
    asked = ("noatime", "x-systemd.device-timeout=10min")
    options = edits(planned(goal(mount_options=asked), *drives(2)))["/etc/fstab"].split()[3].split(",")
    assert options == [*asked, "nofail"]


def test_a_root_file_system_does_not_start_without_its_array() -> None:
    plan = planned(goal(mount_at="/", filesystem="ext4"), *drives(2))
    assert "nofail" not in edits(plan)["/etc/fstab"]


def test_what_needs_attention_is_shown_with_the_plan_and_repeated_only_by_a_resume(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = replace(planned(goal(), *drives(2)), steps=())
    assert plan.attention
    report_array(plan, json_=False)
    assert capsys.readouterr().out.strip() == ""
    report_array(plan, json_=False, repeats=True)
    assert "do not measure before the initial resynchronisation ends" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((480, 480, 500), "Not used: 20GiB of nvme2n1, because nvme0n1 has only 480GiB"),
        ((960, 480, 960), "Not used: 480GiB of each of nvme0n1, nvme2n1, because nvme1n1 has only 480GiB"),
        ((480, 480, 481), ""),  # of the same nominal size
    ],
)
def test_the_head_of_a_plan_says_how_much_of_larger_drives_is_not_used(sizes: tuple[int, ...], said: str) -> None:
    plan = planned(goal("raid5"), *(drive(number, size=size * GIB) for number, size in enumerate(sizes)))
    lines = [line.strip() for line in text_of(raid_plan_lines(plan, width=200))]
    head = lines[: next(number for number, line in enumerate(lines) if line.startswith("member "))]
    assert [line for line in head if line.startswith("Not used")] == ([said] if said else [])
    assert sum("Not used" in line for line in lines) == bool(said)
    assert not any("different sizes" in line for line in lines)


def test_the_second_line_of_a_plan_says_what_is_lost_and_no_other_line_does() -> None:
    plan = planned(goal(), *drives(2))
    plan = replace(plan, attention=("lost: ext4 on the whole drive, on nvme0n1", *plan.attention))
    lines = [line.strip() for line in text_of(raid_plan_lines(plan, width=200))]
    assert lines[1] == "lost: ext4 on the whole drive, on nvme0n1"
    assert sum("lost: " in line for line in lines) == 1


def test_a_drive_without_an_identity_is_named_in_the_plan_and_in_the_question() -> None:
    first, *others = drives(3)
    unknown = replace(first, serial=None, wwn=None)
    one = "/dev/nvme0n1 reports no serial number: nothing distinguishes it from another drive of the same size"
    for plan, says in (
        (planned(goal("raid5"), unknown, *others), True),
        (planned(goal("raid5"), replace(first, serial=None), *others), False),
    ):
        for lines in (raid_plan_lines(plan, width=200), summary_lines(plan, width=200)):
            assert (one in "".join(text_of(lines))) == says
