"""Facts of arrays in sysfs, in made-up trees; for real arrays see tests/lab/test_array_facts.py."""

from pathlib import Path

import pytest

from aligntool.audit.drives import targets_not_judged
from aligntool.audit.judge import audit
from aligntool.inventory import ArrayFacts
from aligntool.linux.devices import layout_word
from aligntool.linux.look import look
from aligntool.units import GIB, KIB, MIB
from tests.audit.machines.captured import disk
from tests.linux.trees import MadeDisk, MadePartition, make_tree

PARTS = [MadePartition(1, MIB, GIB)]
# As mdadm 4.2 and Linux 6.1 show a RAID10 of four during its first resync, layout f2.
ATTRIBUTES = {
    "md/level": "raid10",
    "md/layout": "513",
    "md/chunk_size": "65536",
    "md/raid_disks": "4",
    "md/component_size": "1022976",
    "md/metadata_version": "1.2",
    "md/degraded": "1",
    "md/uuid": "01234567-89ab-cdef-0123-456789abcdef",
    "md/array_state": "active",
    "md/sync_action": "resync",
    "md/sync_completed": "1024 / 4091904",
    "md/sync_speed": "2048",
    "md/consistency_policy": "bitmap",
    "md/bitmap/location": "+8",
    "md/bitmap/chunksize": "67108864",
    "md/dev-sda1/offset": "2048",
    "md/dev-sdb1/offset": "4096",
}


def facts(tmp_path: Path, attributes: dict[str, str | None], udev: dict[str, str] | None = None) -> ArrayFacts | None:
    md = MadeDisk(
        "md127",
        2 * GIB,
        attributes=attributes,
        slaves=["sda1", "sdb1"],
        udev=udev or {},
        links=["md/data", "disk/by-id/x"],
    )
    drives = [MadeDisk(name, 8 * GIB, partitions=PARTS) for name in ("sda", "sdb")]
    inventory = look([], sysroot=str(make_tree(tmp_path, [*drives, md])))
    found = inventory.disk("md127")
    assert found is not None
    return found.array


def test_every_number_is_converted_to_bytes(tmp_path: Path) -> None:
    found = facts(
        tmp_path, dict(ATTRIBUTES), {"MD_NAME": "host:data", "MD_UUID": "01234567:89abcdef:01234567:89abcdef"}
    )
    assert found == ArrayFacts(
        level="raid10", chunk=64 * KIB, members=("sda1", "sdb1"),
        member_data_offsets=(("sda1", MIB), ("sdb1", 2 * MIB)), metadata="1.2", degraded=1, layout="f2", devices=4,
        each=999 * MIB, uuid="01234567:89abcdef:01234567:89abcdef", name="host:data", links=("md/data",),
        state="active", sync_action="resync", sync_done=512 * KIB, sync_total=1998 * MIB, sync_rate=2 * MIB,
        policy="bitmap", bitmap="internal", bitmap_chunk=64 * MIB,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "field", "value"),
    [
        ({"md/dev-sda1/slot": "0", "md/dev-sdb1/slot": "none"}, "spares", ("sdb1",)),
        ({"md/dev-sda1/slot": "journal", "md/dev-sdb1/slot": "1"}, "spares", ("sda1",)),
        ({"md/dev-sda1/state": "in_sync,write_mostly"}, "member_states", (("sda1", "in_sync,write_mostly"),)),
        ({"md/bitmap/location": "none"}, "bitmap", "none"),
        ({"md/bitmap/location": "file"}, "bitmap", "external"),
        ({"md/bitmap/location": "-8"}, "bitmap", "internal"),
        ({"md/bitmap/location": None}, "bitmap", None),
        # Documentation/admin-guide/md.rst, bitmap_type; Linux has the folder "llbitmap" then
        ({"md/bitmap/location": None, "md/bitmap_type": "none bitmap [llbitmap]"}, "bitmap", "lockless"),
        ({"md/bitmap_type": "none [bitmap] llbitmap"}, "bitmap", "internal"),
        ({"md/bitmap/location": "none", "md/bitmap_type": "[none] bitmap"}, "bitmap", "none"),
        ({"md/sync_completed": "none"}, "sync_total", None),
        ({"md/sync_completed": "delayed"}, "sync_done", None),
        ({"md/sync_completed": "x / y"}, "sync_done", None),
        ({"md/sync_completed": "9" * 300 + " / 1"}, "sync_total", 512),
        ({"md/sync_speed": "none"}, "sync_rate", None),
        ({"md/component_size": "-1"}, "each", None),
        ({"md/uuid": "no uuid"}, "uuid", None),
        ({"md/uuid": None}, "uuid", None),
        ({"md/layout": None}, "layout", None),
        ({"md/chunk_size": "0"}, "chunk", None),
        ({"md/level": "raid1"}, "chunk", None),  # as in a RAID1 of Intel's firmware RAID, on Linux 6.1
        # Linux 6.1 while mdadm --grow changes them: the new value, and the present one.
        ({"md/raid_disks": "5 (4)"}, "devices", 5),
        ({"md/chunk_size": "131072 (65536)"}, "chunk", 128 * KIB),
        ({"md/level": "raid5", "md/layout": "2 (5)"}, "layout", "left-symmetric"),
        ({"md/dev-sda1/offset": "none"}, "member_data_offsets", (("sdb1", 2 * MIB),)),
    ],
)
def test_missing_and_unusual_attributes_are_handled(
    tmp_path: Path, changed: dict[str, str | None], field: str, value: object
) -> None:
    found = facts(tmp_path, {**ATTRIBUTES, **changed})
    assert found is not None and getattr(found, field) == value


@pytest.mark.parametrize(
    ("state", "metadata", "seen"),
    [("inactive", "1.2", True), ("inactive", "external:imsm", False), ("clear", "1.2", False)],
)
def test_an_audit_does_not_omit_an_array_that_is_not_started(
    tmp_path: Path, state: str, metadata: str, seen: bool
) -> None:
    """As Linux 6.1 shows one that mdadm --incremental has too few members for, a container, and an unused node."""
    attributes: dict[str, str | None] = {"md/array_state": state, "md/level": "", "md/metadata_version": metadata}
    md = MadeDisk("md127", 0, attributes=attributes, slaves=["sda1"])
    found = audit(look([], sysroot=str(make_tree(tmp_path, [MadeDisk("sda", 8 * GIB, partitions=PARTS), md]))), {})
    gaps = [finding.summary for finding in found.findings if finding.disk == "md127" and finding.code.value == "AT902"]
    assert len(gaps) == seen and all("is not started; its members that are present: sda1" in gap for gap in gaps)
    assert [each.what for each in targets_not_judged(found) if each.what == "md127"] == ["md127"] * seen


def test_an_array_that_is_not_started_has_no_facts(tmp_path: Path) -> None:
    assert facts(tmp_path, {"md/array_state": "inactive", "md/level": ""}) is None


def test_an_array_with_a_level_that_the_kernel_refused_to_start_has_no_facts(tmp_path: Path) -> None:
    """md_run() sets the level before the personality refuses a dirty and degraded array: "all members present"."""
    assert facts(tmp_path, {**ATTRIBUTES, "md/array_state": "inactive", "md/degraded": "0"}) is None


@pytest.mark.parametrize(
    ("level", "number", "word"),
    [
        ("raid10", 0x102, "n2"),
        ("raid10", 0x103, "n3"),
        ("raid10", 0x201, "f2"),
        ("raid10", 0x10201, "o2"),
        ("raid10", 0x20201, "f2"),  # with improved sets
        ("raid5", 2, "left-symmetric"),
        ("raid6", 0, "left-asymmetric"),
        ("raid6", 8, None),  # one of a DDF container
        ("raid1", 0, None),
        ("raid0", -1, None),
        ("raid5", None, None),
    ],
)
def test_a_layout_is_named_as_by_mdadm(level: str, number: int | None, word: str | None) -> None:
    assert layout_word(level, number) == word


def test_a_captured_array_has_the_layout_that_its_proc_mdstat_shows() -> None:
    """md3: 128K chunks 2 near-copies; md2: level 5, algorithm 2."""
    near, five = (disk("md-on-misaligned-partitions", name).array for name in ("md3", "md2"))
    assert near is not None and near.layout == "n2"
    assert five is not None and (five.layout, five.devices, five.policy) == ("left-symmetric", 3, "resync")


def test_settings_are_read_from_the_array_and_the_drives_of_its_members(tmp_path: Path) -> None:
    own = {"md/stripe_cache_size": "4096", "md/group_thread_cnt": "0", "queue/read_ahead_kb": "512"}
    md = MadeDisk("md127", 2 * GIB, attributes={**ATTRIBUTES, **own}, slaves=["sda1", "sdb1"])
    queues = ({"queue/scheduler": "[none] mq-deadline", "queue/nr_requests": "64"}, {"queue/scheduler": "none [bfq]"})
    drives = [
        MadeDisk(name, 8 * GIB, partitions=PARTS, attributes={**queue, "queue/nr_requests": "64"})
        for name, queue in zip(("sda", "sdb"), queues, strict=True)
    ]
    root = make_tree(tmp_path, [*drives, md])
    rule = root / "etc/udev/rules.d/65-aligntool-0123456789abcdef0123456789abcdef.rules"
    rule.parent.mkdir(parents=True)
    rule.write_text("# kept\n")
    found = look([], sysroot=str(root)).disk("md127")
    assert found and found.array
    assert dict(found.array.settings) == {**own, "queue/scheduler": "bfq, none", "queue/nr_requests": "64"}
    assert found.array.rule == "# kept\n"
