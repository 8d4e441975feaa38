"""An array that exists: nothing is to be done if all of it was seen to be as requested; else all that differs."""

from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged
from aligntool.change import ArrayPlan, RaidGoal
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refused
from aligntool.inventory import Inventory
from aligntool.raid.existing import Existing, array_on, plan_existing
from aligntool.raid.running import PersistGoal, resolve_array
from aligntool.system import System
from aligntool.units import GIB, KIB
from tests.audit.array_builders import FS, OTHER, RIGHT, UUID, fstab, image, lines, machine, system
from tests.conftest import run

TABLE = f"UUID={FS} /srv/data ext4 noatime,nofail,x-systemd.device-timeout=2min 0 2"
RAID_TYPE = "A19D880F-05FC-4D3B-A006-743F0F84911E"


def made(level: str = "raid1", files: System | None = None, **facts: object) -> Inventory:
    """Return a machine with an array as `raid create` leaves it; `facts` change that."""
    known = {"member_states": None, **facts}
    inventory = machine(level, files or system(fstab=fstab(TABLE)), **{k: v for k, v in known.items() if v is not None})
    *drives, array = inventory.disks
    assert array.array is not None
    states = facts.get("member_states", tuple((name, "in_sync") for name in array.array.members))
    array = replace(
        array, array=replace(array.array, member_states=states),  # type: ignore[arg-type]
        content=(replace(array.content[0], label="data"),), mounted_at=("/srv/data",),
    )  # fmt: skip
    typed = [
        replace(disk, partitions=tuple(replace(part, type_code=RAID_TYPE) for part in disk.partitions))
        for disk in drives
    ]
    return replace(inventory, disks=(*typed, array))


def goal(level: str = "raid1", **words: object) -> RaidGoal:
    return replace(RaidGoal(level, filesystem="ext4"), **words)  # type: ignore[arg-type]


def named(inventory: Inventory, *numbers: int) -> tuple[Judged, ...]:
    judged = audit(inventory, {}).judged
    return tuple(judged[number] for number in numbers) if numbers else judged[:-1]


def compared(inventory: Inventory, wanted: RaidGoal, *numbers: int, head: bytes = b"") -> ArrayPlan:
    array, _ = resolve_array(inventory.disks[-1], inventory, PersistGoal(wanted.system))
    return plan_existing(Existing(array, named(inventory, *numbers), wanted, head, lambda step: False))


def reasons(inventory: Inventory, wanted: RaidGoal, *numbers: int) -> str:
    with pytest.raises(Refused) as refused:
        compared(inventory, wanted, *numbers)
    assert not any(word in refused.value.hint for word in ("--stop", "umount"))
    assert all(one.hint for one in refused.value.refusals)
    return str(refused.value)


@pytest.mark.parametrize("level", ["raid0", "raid1", "raid10", "raid5", "raid6"])
def test_an_array_as_requested_needs_no_step(level: str) -> None:
    inventory = made(level)
    for wanted in (goal(level), goal(level, chunk=None if level == "raid1" else 64 * KIB)):
        plan = compared(inventory, wanted)
        assert plan.steps == () and plan.goal.endswith("already as requested")
        assert (plan.disk.path, plan.disk.disk_id) == ("/dev/md/data", UUID)
    assert compared(inventory, goal(level, lba_size=512)).steps == ()
    numbered = goal(level, partitions=(1,) * len(named(inventory)))
    assert compared(inventory, numbered).steps == ()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"level": "raid0"}, "is a RAID1, not the requested RAID0"),
        ({"chunk": 64 * KIB}, "its chunk is unknown, not the requested 64KiB"),
        ({"metadata": "1.0"}, "its metadata is 1.2, not the requested 1.0"),
        ({"bitmap": "none"}, "its bitmap is internal, not the requested none"),
        ({"name": "other"}, "its name is 'data', not 'other'"),
        ({"filesystem": "xfs"}, "it holds ext4"),
        ({"filesystem": "swap"}, "it holds ext4"),
        ({"mount_at": "/srv/else"}, "fstab already mounts it at /srv/data"),
        ({"mount_at": ""}, "fstab mounts it at /srv/data"),
        ({"mount_options": ("noatime", "discard")}, "its line in fstab lacks the option discard"),
        ({"members": "whole-drives"}, "nvme0n1 as a whole is not a member of it"),
        ({"partitions": (1, 2)}, "partition 2 of nvme1n1 is not a member of it"),
        ({"member_size": 3 * GIB}, "not the requested 3GiB"),
        ({"spare_room": 3 * GIB}, "1MiB are free behind nvme0n1p1, not the requested 3GiB"),
        ({"inode_size": 512}, "inode_size of its ext4 is unknown, not 512B"),
        ({"block_size": 1024}, "block_size of its ext4 is unknown, not 1KiB"),
        ({"lba_size": 4096}, "its logical blocks have 512 bytes, not the requested 4096"),
    ],
)
def test_an_option_that_the_array_does_not_have_is_named(words: dict[str, object], why: str) -> None:
    assert why in reasons(made(), goal(**words))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "readonly"}, "its state is readonly"),
        ({"state": None}, "its state is unknown"),
        ({"sync_action": "reshape"}, "its state is reshape"),
        ({"devices": 3}, "2 of 3 members are there"),
        ({"devices": None}, "2 of an unknown number of members are there"),
        ({"member_states": ()}, "its member nvme0n1p1 is in an unknown state"),
        ({"member_states": (("nvme0n1p1", "in_sync"), ("nvme1n1p1", "faulty"))}, "its member nvme1n1p1 is faulty"),
        (
            {"member_states": (("nvme0n1p1", "in_sync"), ("nvme1n1p1", "spare")), "spares": ("nvme1n1p1",)},
            "its member nvme1n1p1 is spare",
        ),
        ({"metadata": None}, "its metadata is unknown"),
        ({"name": None}, "its name is unknown"),
        ({"links": ()}, "/dev/md/data does not lead to it"),
    ],
)
def test_what_md_does_not_report_as_requested_differs(facts: dict[str, object], why: str) -> None:
    inventory = made(**{key: value for key, value in facts.items() if value is not None})  # type: ignore[arg-type]
    array = inventory.disks[-1]
    assert array.array is not None
    array = replace(array, array=replace(array.array, **facts))  # type: ignore[arg-type]
    assert why in reasons(replace(inventory, disks=(*inventory.disks[:-1], array)), goal())


def test_a_raid5_that_is_built_for_the_first_time_is_as_requested() -> None:
    states = (("nvme0n1p1", "in_sync"), ("nvme1n1p1", "in_sync"), ("nvme2n1p1", "spare"))
    inventory = made("raid5", member_states=states, degraded=1, sync_action="recover")
    plan = compared(inventory, goal("raid5"))
    assert any("nvme2n1p1: being rebuilt" in note for note in plan.notes)


def test_other_drives_than_the_members_differ() -> None:
    assert "its member nvme1n1p1 was not named" in reasons(made(), goal(), 0)
    inventory = made("raid10")
    fifth = replace(inventory.disks[0], name="nvme4n1", path="/dev/nvme4n1", partitions=())
    more = replace(inventory, disks=(fifth, *inventory.disks))
    assert "no single partition of nvme4n1 is a member of it" in reasons(more, goal("raid10"))
    assert "no single partition of nvme0n1 is a member of it" in reasons(made(), goal(), 0, 0, 1)


def changed(inventory: Inventory, **words: object) -> Inventory:
    array = replace(inventory.disks[-1], **words)  # type: ignore[arg-type]
    return replace(inventory, disks=(*inventory.disks[:-1], array))


def test_content_that_was_not_read_or_is_another_differs() -> None:
    inventory = made()
    layer = inventory.disks[-1].content[0]
    assert "its content could not be read" in reasons(changed(inventory, content_read=False), goal())
    assert "nothing that is recognised" in reasons(changed(inventory, content=()), goal())
    other = changed(inventory, content=(replace(layer, label="other"),))
    assert "the label of its ext4 is 'other', not 'data'" in reasons(other, goal())


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (system(conf=lines("HOMEHOST <system>"), fstab=fstab(TABLE)), "/etc/mdadm/mdadm.conf lacks a line of it"),
        (system(conf=lines(RIGHT.replace(UUID, OTHER)), fstab=fstab(TABLE)), "/etc/mdadm/mdadm.conf lacks a line"),
        (system(conf=lines(RIGHT.replace("/data", "/d2")), fstab=fstab(TABLE)), "another name than /dev/md/data"),
        (system(images=(image("HOMEHOST <system>"),), fstab=fstab(TABLE)), "an initramfs does not have its line"),
        (system(), "/etc/fstab lacks a line of it"),
        (replace(system(fstab=fstab(TABLE)), late_start=False), "mdadm-late-start.timer is missing or differs"),
        (system(fstab=fstab(TABLE.replace("nofail,", ""))), "/etc/fstab lacks a line of it"),
    ],
)  # fmt: skip
def test_files_that_would_not_bring_it_back_differ(files: System, why: str) -> None:
    assert why in reasons(made(files=files), goal())


def test_an_array_that_is_not_mounted_differs_and_persist_is_the_way() -> None:
    with pytest.raises(Refused) as refused:
        compared(changed(made(), mounted_at=()), goal())
    assert "it is not mounted at /srv/data" in str(refused.value)
    assert refused.value.hint == "sudo aligntool raid persist /dev/md127 --mount /srv/data"


def test_swap_space_is_as_requested_while_it_is_in_use() -> None:
    swap = fstab(f"UUID={FS} none swap sw,nofail 0 0")
    inventory = made(files=system(fstab=swap))
    layer = replace(inventory.disks[-1].content[0], kind="swap")
    used = changed(inventory, content=(layer,), mounted_at=("[SWAP]",))
    assert compared(used, goal(filesystem="swap")).steps == ()
    assert "not in use as swap" in reasons(changed(used, mounted_at=()), goal(filesystem="swap"))


def test_a_system_array_needs_its_efi_partitions_and_what_keeps_them_in_sync() -> None:
    told = reasons(made(), goal(esp_size=GIB))
    assert "nvme0n1 has no EFI system partition 1111-1111 of 1GiB" in told
    assert "esp-copies.service does not keep its EFI system partitions in sync" in told


def test_which_array_is_meant() -> None:
    inventory = made("raid10")
    first, second, *_ = named(inventory)
    array = inventory.disks[-1]
    assert array_on((first,), goal(name="data"), inventory.disks) is array
    assert array_on((first,), goal(name="new"), inventory.disks) is None
    assert array_on(named(inventory), goal(name="new"), inventory.disks) is array
    assert array.array is not None
    other = replace(array, name="md5", array=replace(array.array, members=("nvme1n1p1",)))
    assert array_on((first, second), goal(), (*inventory.disks, other)) is None
    blank = replace(first, disk=replace(first.disk, name="nvme9n1", partitions=()))
    assert array_on((blank,), goal(), inventory.disks) is None


@pytest.mark.needs_tools("mkfs.xfs", "mkfs.ext4")
def test_the_sizes_of_inodes_and_log_are_those_that_mkfs_was_given(tmp_path: Path) -> None:
    file = tmp_path / "image"
    for kind, words, sizes in (
        ("xfs", ("-i", "size=1024", "-l", "size=80m"), (1024, 80 << 20)),
        ("ext4", ("-q", "-I", "512"), (512, None)),
    ):
        with file.open("wb") as image_file:
            image_file.truncate(GIB)
        run(f"mkfs.{kind}", *words, file)
        on_array = kind_named(kind).on_array
        assert on_array is not None and on_array.sizes_in(file.read_bytes()[: 4 * KIB]) == sizes
        assert on_array.sizes_in(b"") == (None, None)
