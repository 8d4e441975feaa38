"""The plans of `aligntool raid reformat`, and everything that it refuses, on made-up arrays of NVMe drives."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from errno import EINVAL
from pathlib import Path
from typing import Any

import pytest

from aligntool.audit.arrays import members_of
from aligntool.audit.judge import audit
from aligntool.change import ArrayPlan, from_json, to_json
from aligntool.contents.kind import Unit
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Disk, Inventory, Layer, LbaFormat, NvmeFacts, Partition, Table, TableLabel
from aligntool.raid import steps_reformat
from aligntool.raid.commands import member_commands, table_script
from aligntool.raid.current_names import with_current_names
from aligntool.raid.lba_formats import Namespace
from aligntool.raid.reformat import ArrayDetails, ReformatGoal, plan_reformat
from aligntool.raid.steps_drives import is_same_drive
from aligntool.raid.steps_reformat import backwards, problems_of, start_hint
from aligntool.steps import CheckArray, FormatMember, PutBackMember, TakeOutMember
from aligntool.units import MIB, Extent
from tests.audit.array_builders import SIZE, UUID, array, drive
from tests.by_hand import command_of, section_of

FORMATS = (LbaFormat(0, 512, 0, 2), LbaFormat(1, 512, 8, 2), LbaFormat(2, 4096, 0, 1), LbaFormat(3, 4096, 0, 0))
LINUX_RAID = "A19D880F-05FC-4D3B-A006-743F0F84911E"
EXT4 = Layer("ext4", Extent(0, SIZE), data_unit=4096)


def member(number: int, *, logical: int = 512) -> Disk:
    disk = drive(number, logical=logical)
    table = Table(TableLabel.GPT, logical, disk_id=f"00000000-0000-4000-8000-00000000000{number}")
    part = replace(disk.partitions[0], type_code=LINUX_RAID, name="data", uuid=f"1111-{number}", holders=("md127",))
    part = replace(part, extent=Extent(MIB, SIZE - 2 * MIB))
    nvme = NvmeFacts(formats=FORMATS, format_in_use=0 if logical == 512 else 3, controllers=(f"nvme{number}",))
    return replace(
        disk, table=table, partitions=(part,), nvme=nvme, model="ACME", serial=f"S{number}", wwn=f"eui.{number}"
    )


def machine(
    level: str = "raid1", count: int = 2, *, spare: bool = False, **facts: Any
) -> tuple[Inventory, ArrayDetails]:
    drives = [member(number) for number in range(count)]
    made = replace(array(drives, level, **{"each": SIZE - 256 * MIB} | facts), content=(EXT4,))
    states = {f"nvme{number}n1p1": "in_sync" for number in range(count)}
    if spare:
        states[f"nvme{count - 1}n1p1"] = "spare"
        assert made.array
        made = replace(made, array=replace(made.array, devices=count - 1))
    namespaces = dict.fromkeys((disk.name for disk in drives), Namespace("namespace", 1))
    return Inventory((*drives, made)), ArrayDetails(
        states, bitmap_at=4096, unit=Unit(4096, "uses blocks of 4096 bytes"), namespaces=namespaces
    )


def planned(inventory: Inventory, details: ArrayDetails, size: int = 4096) -> ArrayPlan:
    judged = audit(inventory, {}).judged
    return plan_reformat(inventory.disks[-1], members_of(judged), inventory.disks, ReformatGoal(size), details)


def changed(inventory: Inventory, number: int, change: Callable[[Disk], Disk]) -> Inventory:
    disks = list(inventory.disks)
    disks[number] = change(disks[number])
    return replace(inventory, disks=tuple(disks))


def on_array(*layers: Layer, **more: Any) -> Callable[[Disk], Disk]:
    return lambda disk: replace(disk, content=layers, **more)


def test_members_are_formatted_one_after_the_other_between_two_comparisons() -> None:
    plan = planned(*machine())
    kinds = [type(step) for step in plan.steps]
    each = [TakeOutMember, FormatMember, PutBackMember]
    assert kinds == [CheckArray, *each, *each, CheckArray]
    first = plan.steps[2]
    assert isinstance(first, FormatMember)
    # The better of the two formats of 4096 bytes without metadata, as rated by the drive.
    assert (first.format_before, first.block_before, first.format_after, first.block_after) == (0, 512, 3, 4096)
    # NVMe base specification, Format NVM: opcode 80h; dword 10 has the format in bits 3:0, and zero elsewhere.
    words = ("--opcode=0x80", "--namespace-id=1", "--cdw10=3", "--timeout=600000")
    assert member_commands(first)[0] == ("nvme", "admin-passthru", "/dev/nvme0n1", *words)
    # LBAF upper: bits 13:12 (NVMe 2.0); 18 is 01b and 0010b.
    assert "--cdw10=4098" in member_commands(replace(first, format_after=18))[0]
    assert member_commands(plan.steps[1])[0] == ("mdadm", "/dev/md/data", "--fail", "/dev/nvme0n1p1")  # type: ignore[arg-type]
    assert from_json(to_json(plan)) == plan


def test_the_table_has_the_same_byte_ranges_and_guids_in_the_new_sectors() -> None:
    step = planned(*machine()).steps[2]
    assert isinstance(step, FormatMember)
    # UEFI 2.10, 5.3: a MBR, a header, and 16 KiB of entries are before the first usable block: 6 of 4096 bytes.
    wanted = (
        "label: gpt", "label-id: 00000000-0000-4000-8000-000000000000", "first-lba: 6",
        f'1 : start=256, size={(SIZE - 2 * MIB) // 4096}, type={LINUX_RAID}, uuid=1111-0, name="data"',
    )  # fmt: skip
    assert tuple(table_script(step).splitlines()) == wanted
    again = table_script(backwards(step))
    assert f"start=2048, size={(SIZE - 2 * MIB) // 512}," in again and "first-lba: 34" in again


def test_a_spare_is_formatted_first_and_replaces_each_member_in_turn() -> None:
    plan = planned(*machine("raid5", 4, spare=True))
    outs = [(step.device, step.spare) for step in plan.steps if isinstance(step, TakeOutMember)]
    node = "/dev/nvme{}n1p1".format
    assert outs == [(node(3), ""), (node(0), node(3)), (node(1), node(0)), (node(2), node(1))]


def test_a_spare_with_larger_blocks_is_refused_for_an_array_that_may_be_in_use() -> None:
    """md adopts them when the spare becomes active, and until a member is added nothing holds the array."""
    inventory, details = machine("raid5", 4, spare=True)
    inventory = changed(inventory, 3, lambda _: member(3, logical=4096))
    with pytest.raises(Refused, match="the spare nvme3n1p1 has blocks of 4096") as refused:
        planned(inventory, details)
    assert "with mdadm on /dev/md127, the spare nvme3n1p1 to remove meanwhile: " in refused.value.hint
    limits = replace(inventory.disks[4].limits, logical_block_size=4096)  # assembled again since
    assert planned(changed(inventory, 4, lambda disk: replace(disk, limits=limits)), details).steps


def test_members_that_already_have_the_size_are_not_formatted() -> None:
    inventory, details = machine()
    inventory = changed(inventory, 0, lambda _: member(0, logical=4096))
    assert [step.device for step in planned(inventory, details).steps if isinstance(step, FormatMember)] == [
        "/dev/nvme1n1p1"
    ]
    assert planned(changed(inventory, 1, lambda _: member(1, logical=4096)), details).steps == ()


def test_smaller_blocks_require_nothing_of_the_content_of_the_array() -> None:
    inventory, details = machine()
    for number in range(2):
        inventory = changed(inventory, number, lambda disk: member(int(disk.name[4]), logical=4096))
    mounted = on_array(Layer("ntfs", Extent(0, SIZE)), mounted_at=("/srv",))
    big = lambda disk: replace(mounted(disk), limits=replace(disk.limits, logical_block_size=4096))  # noqa: E731
    assert len(planned(changed(inventory, 2, big), details, 512).steps) == 8


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({"table": Table(TableLabel.GPT, 4096)}, "has a GPT table, which is stored in the present blocks"),
        ({"table": Table(TableLabel.DOS, 4096)}, "on an array with logical blocks of 512 bytes it would not be found"),
        ({"table_read": False}, "could not be read"),
        ({"table": Table(TableLabel.GPT, 512)}, ""),
    ],
)
def test_a_partition_table_on_the_array_is_refused_for_smaller_blocks(change: dict[str, Any], evidence: str) -> None:
    """From the next assembly on the kernel looks for it in blocks of 512 bytes, or counts its partitions in them."""
    inventory, details = machine()
    for number in range(2):
        inventory = changed(inventory, number, lambda disk: member(int(disk.name[4]), logical=4096))
    limits = replace(inventory.disks[2].limits, logical_block_size=4096)
    inventory = changed(inventory, 2, lambda disk: replace(on_array(**change)(disk), limits=limits))
    if not evidence:
        assert len(planned(inventory, details, 512).steps) == 8
        return
    with pytest.raises(Refused, match=evidence):
        planned(inventory, details, 512)


SMALL = Unit(512, "uses blocks of 512 bytes")
CONTENT = [
    ("small units", on_array(EXT4), {"unit": SMALL}, "ext4 uses blocks of 512 bytes: it would not work"),
    ("another unit", on_array(EXT4), {"unit": Unit(8192, "uses blocks of 8192 bytes", exact=True)}, "of 8192 bytes"),
    ("an unknown unit", on_array(EXT4), {"unit": Unit(None, "is odd")}, "ext4 is odd"),
    ("LUKS1", on_array(replace(EXT4, kind="crypto_LUKS", version="LUKS1", data_start=2 * MIB)), {"unit": SMALL},
     "an-encrypted-partition"),
    ("LUKS2", on_array(replace(EXT4, kind="crypto_LUKS", version="LUKS2", data_start=16 * MIB)), {"unit": SMALL},
     "an-encrypted-partition"),
    ("only a LUKS2 header", on_array(replace(EXT4, kind="crypto_LUKS", version="LUKS2")), {"unit": SMALL},
     "save the content"),
    ("only a LUKS1 header", on_array(replace(EXT4, kind="crypto_LUKS", version="LUKS1")), {"unit": SMALL},
     "save the content"),
    ("a table", on_array(table=Table(TableLabel.GPT, 512)), {}, "it would not be found"),
    ("nothing", on_array(), {}, "nothing recognised"),
    ("two things", on_array(EXT4, Layer("xfs", Extent(0, SIZE))), {}, "may not work"),
    ("not read", on_array(content_read=False), {}, "could not be read"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "details", "said"), [row[1:] for row in CONTENT], ids=[row[0] for row in CONTENT])
def test_content_that_does_not_support_the_blocks_is_refused(
    change: Callable[[Disk], Disk], details: dict[str, Any], said: str
) -> None:
    inventory, seen = machine()
    with pytest.raises(Refused) as refused:
        planned(changed(inventory, 2, change), replace(seen, **details))
    (one,) = refused.value.refusals
    assert one.code in ("layer-blocks", "not-read") and said in f"{one.text} {one.hint}"


def test_content_that_supports_the_blocks_is_reported_with_its_unit() -> None:
    assert "ext4 uses blocks of 4096 bytes, so it works" in " ".join(planned(*machine()).notes)


def drive_change(**more: Any) -> Callable[[Disk], Disk]:
    return lambda disk: replace(disk, **more)


def nvme_change(**more: Any) -> Callable[[Disk], Disk]:
    return lambda disk: replace(disk, nvme=replace(disk.nvme, **more))  # type: ignore[type-var]


def part_change(**more: Any) -> Callable[[Disk], Disk]:
    return lambda disk: replace(disk, partitions=(replace(disk.partitions[0], **more),))


MD = Layer("linux_raid_member", Extent(MIB, SIZE - 2 * MIB), uuid=UUID.replace(":", ""))
ESP = Partition(2, Extent(SIZE - 2 * MIB, MIB), type_code="C12A7328-F81F-11D2-BA4B-00A0C93EC93B", content_read=True)
MEMBERS = [
    ("no such format", nvme_change(formats=FORMATS[:2]), "lba-format", "no format with 4096 bytes and no metadata"),
    ("metadata now", nvme_change(format_in_use=1), "lba-format", "metadata with its blocks"),
    ("not asked", nvme_change(format_in_use=None), "not-read", "did not report"),
    ("a loop device over it", drive_change(taken=(("it is attached to loop0", "losetup -d"),)), "in-use", "loop0"),
    ("two controllers", nvme_change(controllers=("nvme0", "nvme9")), "lba-format", "2 controllers"),
    ("no NVMe", drive_change(nvme=None), "lba-format", "not on an NVMe drive"),
    ("no identity", drive_change(serial=None, wwn=None), "lba-format", "another drive"),
    ("failing", drive_change(failing="it dies"), "failing", "it dies"),
    ("a second partition", lambda disk: replace(disk, partitions=(*disk.partitions, ESP)), "not-empty", "partition 2"),
    ("mounted beside", drive_change(mounted_at=("/srv",)), "mounted", "mounted at /srv"),
    ("MBR", drive_change(table=Table(TableLabel.DOS, 512, disk_id="0x1")), "metadata", "not a valid GPT"),
    ("an odd start", part_change(extent=Extent(63 * 512, 400 * MIB)), "metadata", "end on a multiple"),
    ("up to the last sectors", part_change(extent=Extent(MIB, SIZE - MIB - 16384)), "metadata", "end on a multiple"),
    ("content beside it", part_change(content=(MD, EXT4)), "ambiguous", "md and ext4"),
    ("content not read", part_change(content_read=False), "not-read", "could not be read"),
    ("attributes", part_change(flags=("required",)), "metadata", "attributes (required)"),
    ("a name with quotes", part_change(name='a"b'), "metadata", "the name"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code", "said"), [row[1:] for row in MEMBERS], ids=[row[0] for row in MEMBERS])
def test_a_member_that_cannot_be_formatted_is_refused(change: Callable[[Disk], Disk], code: str, said: str) -> None:
    inventory, details = machine()
    with pytest.raises(Refused) as refused:
        planned(changed(inventory, 0, change), details)
    (one,) = refused.value.refusals
    assert one.code == code and said in one.text


def test_only_the_partition_next_to_a_member_is_to_be_deleted() -> None:
    """Without a number sfdisk deletes the member, too, although its array runs."""
    inventory, details = machine()
    with pytest.raises(Refused) as refused:
        planned(changed(inventory, 0, lambda disk: replace(disk, partitions=(*disk.partitions, ESP))), details)
    assert "nvme0n1 has partition 2 besides the member" in str(refused.value)
    assert refused.value.hint.endswith("with sfdisk on /dev/nvme0n1: docs/by-hand.md#delete-a-partition")
    assert command_of(refused.value.hint, "sfdisk --delete", DISK="/dev/sda", NUMBER=2) == "sfdisk --delete /dev/sda 2"


def test_a_format_that_affects_other_namespaces_is_refused() -> None:
    inventory, details = machine()
    beside = replace(member(0), name="nvme0n2", path="/dev/nvme0n2", wwn="eui.02", partitions=(), table=None)
    inventory = Inventory((*inventory.disks[:-1], beside, inventory.disks[-1]))
    assert planned(inventory, details).steps
    with pytest.raises(Refused, match=r"every namespace of its drive, including nvme0n2"):
        planned(inventory, replace(details, namespaces={**details.namespaces, "nvme0n1": Namespace("drive", 1)}))
    alone = replace(inventory, disks=tuple(disk for disk in inventory.disks if disk is not beside))
    with pytest.raises(Refused, match="those that this machine does not see"):
        planned(alone, replace(details, namespaces={**details.namespaces, "nvme0n1": Namespace("drive", 1)}))
    with pytest.raises(Refused, match="does not support formatting"):
        planned(inventory, replace(details, namespaces={**details.namespaces, "nvme0n1": Namespace("none", 1)}))


ARRAYS = [
    ("RAID0", "raid0", {"sync_action": "idle", "policy": "resync"}, {}, "not-redundant", "raid0"),
    ("degraded", "raid1", {"degraded": 1}, {}, "not-clean", "would leave too few"),
    ("resync", "raid1", {"sync_action": "resync"}, {}, "not-clean", "resync"),
    ("a rebuilding member", "raid1", {}, {"states": {"nvme0n1p1": "spare"}}, "not-clean", "1 of 2 members in sync"),
    ("a mostly written one", "raid1", {}, {"states": {"nvme0n1p1": "in_sync,write_mostly"}}, "not-clean", "mostly"),
    ("metadata 0.90", "raid1", {"metadata": "0.90"}, {}, "metadata", "0.90"),
    ("PPL", "raid5", {"policy": "ppl"}, {}, "metadata", "ppl"),
    ("a lockless bitmap", "raid1", {"bitmap": "lockless"}, {}, "metadata", "a lockless bitmap"),
    ("odd data", "raid1", {"member_data_offsets": (("nvme0n1p1", 512), ("nvme1n1p1", MIB))}, {}, "metadata", "512"),
    ("odd length", "raid1", {"each": 4096 * 1000 + 512}, {}, "metadata", "size used of each member"),
    ("a cluster", "raid1", {}, {"clustered": True}, "in-use", "other machines"),
    ("RAID10 without copies", "raid10", {"layout": "n1"}, {}, "not-redundant", "raid10"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("level", "facts", "more", "code", "said"), [row[1:] for row in ARRAYS], ids=[row[0] for row in ARRAYS]
)
def test_an_array_that_could_lose_data_is_refused(
    level: str, facts: dict[str, Any], more: dict[str, Any], code: str, said: str
) -> None:
    count = {"raid5": 3, "raid10": 4}.get(level, 2)
    inventory, details = machine(level, count, **facts)
    with pytest.raises(Refused) as refused:
        planned(inventory, replace(details, **more | {"states": details.states | more.get("states", {})}))
    assert any(one.code == code and said in one.text for one in refused.value.refusals), refused.value


@pytest.mark.parametrize(("stored", "lines"), [(None, ()), (0, ("rollback", "before 6.19")), (512, ("rollback",))])
def test_a_kernel_that_stores_the_block_size_gets_a_warning(stored: int | None, lines: tuple[str, ...]) -> None:
    """Linux 6.19, md.c, lbs_store: it never becomes smaller, and older kernels expect zeros there."""
    _, *warned = planned(*machine(stored_block_size=stored)).attention
    assert len(warned) == len(lines) and all(words in line for words, line in zip(lines, warned, strict=True))


@pytest.mark.parametrize("stored", [None, 0, 4096])
def test_a_stored_block_size_stays_when_the_members_get_smaller_blocks(stored: int | None) -> None:
    """A table on the array, which counts in its blocks, is then found again."""
    disks = [member(number, logical=4096) for number in range(2)]
    made = array(disks, "raid1", each=SIZE - 256 * MIB, stored_block_size=stored)
    made = replace(made, table=Table(TableLabel.GPT, 4096), limits=replace(made.limits, logical_block_size=4096))
    inventory, details = Inventory((*disks, made)), machine()[1]
    if stored:
        assert "store 4096-byte blocks, which the array keeps" in planned(inventory, details, 512).attention[0]
    else:
        with pytest.raises(Refused, match="GPT table"):
            planned(inventory, details, 512)


def test_a_member_flag_that_a_removal_would_clear_is_reported_with_its_name() -> None:
    """md shows write_mostly, and accepts writemostly: Documentation/admin-guide/md.rst, state."""
    inventory, details = machine()
    states = {**details.states, "nvme0n1p1": "in_sync,write_mostly"}
    with pytest.raises(Refused) as refused:
        planned(inventory, replace(details, states=states))
    (reason,) = refused.value.refusals
    assert "nvme0n1p1 of /dev/md127 is marked write_mostly, which" in reason.text
    assert reason.hint == "by hand, with tee on nvme0n1p1, marked writemostly: docs/by-hand.md#members-of-an-array"
    broken = replace(details, states={**states, "nvme0n1p1": "faulty,write_mostly"})
    with pytest.raises(Refused, match="is faulty,write_mostly, not in sync"):
        planned(inventory, broken)


@pytest.mark.parametrize(
    ("level", "facts", "said"),
    [
        ("raid0", {"policy": "none", "sync_action": None}, "is a raid0 that cannot run without a member"),
        ("raid4", {}, "is a raid4; only raid1, raid10, raid5, raid6 are supported"),
    ],
)
def test_an_array_of_an_unsupported_level_is_refused_for_only_that_reason(
    level: str, facts: dict[str, Any], said: str
) -> None:
    """md reports no sync action and no consistency policy for a level without redundancy: md.rst."""
    with pytest.raises(Refused, match=said) as refused:
        planned(*machine(level, 3, **facts))
    assert [reason.code for reason in refused.value.refusals] == ["not-redundant"]


def test_an_array_in_use_is_refused_unless_its_own_blocks_have_the_size() -> None:
    inventory, details = machine()
    used = changed(inventory, 2, on_array(EXT4, mounted_at=("/srv",), holders=("dm-0",)))
    with pytest.raises(Refused) as refused:
        planned(used, details)
    assert [one.code for one in refused.value.refusals] == ["in-use", "mounted", "held"]
    locked = changed(inventory, 2, on_array(EXT4, taken=(("/dev/md127 is locked by another program", "fuser -v"),)))
    with pytest.raises(Refused, match=r"cannot grow to 4096 bytes while it is in use\n.*locked by another program"):
        planned(locked, details)
    grown = lambda disk: replace(disk, limits=replace(disk.limits, logical_block_size=4096))  # noqa: E731
    assert planned(changed(used, 2, grown), details).steps


def test_active_volumes_are_refused_with_the_command_that_deactivates_them() -> None:
    inventory, details = machine()
    names = {"dm-0": ("/srv",), "dm-1": ("/srv/in",)}
    volumes = [
        replace(inventory.disks[2], name=name, array=None, mapping=f"lvm group/{name}", mounted_at=places)
        for name, places in names.items()
    ]
    used = changed(inventory, 2, on_array(Layer("LVM2_member", Extent(0, SIZE)), holders=("dm-0",)))
    with pytest.raises(Refused) as refused:
        planned(replace(used, disks=(*volumes, *used.disks)), details)
    assert refused.value.refusals[1].hint == "sudo umount /srv/in && sudo umount /srv && sudo vgchange -an group"


def test_a_drive_that_cannot_be_distinguished_from_another_is_refused() -> None:
    inventory, details = machine()
    path = replace(member(0), name="nvme7n1", path="/dev/nvme7n1", partitions=(), table=None)  # multipath without a map
    with pytest.raises(Refused, match="nvme0n1 cannot be distinguished from nvme7n1"):
        planned(Inventory((*inventory.disks[:-1], path, inventory.disks[-1])), details)


def test_a_failing_member_is_refused_although_it_already_has_the_size() -> None:
    inventory, details = machine()
    inventory = changed(inventory, 0, lambda _: replace(member(0, logical=4096), failing="it dies"))
    with pytest.raises(Refused, match="it dies"):  # the other one is rebuilt from it
        planned(inventory, details)


def test_blocks_larger_than_a_page_are_refused() -> None:
    inventory, details = machine()
    with pytest.raises(Refused, match="too large for md"):
        planned(inventory, details, 8192)


def test_all_reasons_are_reported_together() -> None:
    inventory, details = machine(degraded=1)
    inventory = changed(inventory, 0, nvme_change(formats=FORMATS[:2]))
    with pytest.raises(Refused) as refused:
        planned(inventory, replace(details, bad_blocks=("nvme1n1p1",), unit=SMALL))
    assert {one.code for one in refused.value.refusals} == {"not-clean", "layer-blocks", "lba-format", "failing"}


def test_after_a_reboot_drives_are_found_by_identity_although_their_size_changed() -> None:
    plan = planned(*machine())
    now = [replace(member(1 - number), name=f"nvme{number}n1", path=f"/dev/nvme{number}n1") for number in range(2)]
    now[0] = replace(now[0], size=SIZE - 4096, limits=replace(now[0].limits, logical_block_size=4096))
    there = with_current_names(plan, now)
    first, second = (step for step in there.steps if isinstance(step, FormatMember))
    assert (first.disk.path, first.device) == ("/dev/nvme1n1", "/dev/nvme1n1p1")
    assert (second.disk.path, second.device) == ("/dev/nvme0n1", "/dev/nvme0n1p1")
    assert [step.device for step in there.steps if isinstance(step, PutBackMember)] == [first.device, second.device]
    with pytest.raises(Refused, match="is missing"):
        with_current_names(plan, now[:1])
    twin = replace(now[1], size=SIZE * 2, path="/dev/nvme9n1")  # drives that all have one serial number exist
    assert with_current_names(plan, [*now, twin]) == there


def test_a_rollback_compares_the_size_of_a_drive_only_in_its_old_format() -> None:
    step = planned(*machine()).steps[2]
    assert isinstance(step, FormatMember)
    formatted = replace(member(0, logical=4096), size=SIZE - 4096)
    assert is_same_drive(formatted, step) and is_same_drive(formatted, backwards(step))
    twin = replace(member(0), size=SIZE * 2)
    assert not is_same_drive(twin, step) and not is_same_drive(twin, backwards(step))


def test_a_broken_array_is_stopped_before_it_is_assembled_again() -> None:
    """mdadm skips its members as busy until then."""
    step = CheckArray(UUID, "/dev/md/data")
    for state in ("broken", "no member of it was found"):
        hint = start_hint(step, state)
        assert f"with mdadm on /dev/md/data, UUID {UUID}: " in hint
        page = section_of(hint)
        assert 0 < page.index("mdadm --stop ARRAY") < page.index("mdadm --assemble --force --run ARRAY --uuid=UUID")


def test_an_array_whose_blocks_cannot_be_enlarged_is_active_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, str]] = []

    def write(path: Path, value: str) -> None:
        written.append((path.name, value))
        if path.name == "logical_block_size":
            raise OSError(EINVAL, "Invalid argument")

    monkeypatch.setattr(Path, "write_text", write)
    monkeypatch.setattr(steps_reformat, "_unused", nullcontext)
    with pytest.raises(Stopped, match="cannot be enlarged: Invalid argument"):
        steps_reformat._enlarge_blocks("md127", 4096)
    assert written == [("array_state", "inactive"), ("logical_block_size", "4096"), ("array_state", "active")]


def test_an_array_that_was_stopped_meanwhile_is_reported_as_no_longer_running() -> None:
    """udev stops an array whose last member in sync was unplugged during a rebuild."""
    assert problems_of("md-stopped") == "it no longer runs"
