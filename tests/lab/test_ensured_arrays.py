"""`raid ensure`: nothing to do on an array as described, anew on blank drives, and nothing else is overwritten."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab import ensured_arrays
from tests.lab.conftest import Part
from tests.lab.drives import Nvme
from tests.lab.ensured_arrays import SERIALS
from tests.lab.existing_arrays import CONF, FSTAB
from tests.lab.test_existing_arrays import last_event, uuid_of
from tests.thorough import THOROUGH, when_thorough

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "mdadm", "sfdisk", "udevadm"),
    when_thorough("makes arrays in an emulated PC, each several times"),
]
LIMIT_S = 3600.0
if THOROUGH:
    PART = Part("ensured_arrays", tuple(Nvme(serial, size=ensured_arrays.SIZE) for serial in SERIALS), (), LIMIT_S)


@pytest.fixture
def told(said: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((said / "ensured.json").read_text())
    return found


def end(step: dict[str, Any]) -> dict[str, Any]:
    return last_event(step["said"][1])


def names(step: dict[str, Any]) -> list[str]:
    """Return the names of the arrays in mdadm's superblocks."""
    return [line for text in step["after"].values() for line in text.splitlines() if line.startswith("MD_NAME=")]


def test_a_plan_is_shown_and_the_array_is_made(told: dict[str, Any]) -> None:
    shown, made = told["shown"], told["made"]
    assert shown["said"][0] == 0 and shown["before"] == shown["after"], shown["said"]
    steps = [step["step"] for step in json.loads(shown["said"][1])["plan"]["steps"]]
    assert steps[:3] == ["MakeMember", "MakeMember", "MakeArray"]
    assert made["said"][0] == 0 and end(made)["changed"], made["said"]
    assert names(made) == ["MD_NAME=any:scratch"]
    assert "/srv/scratch" in "".join(made["after"].values())


@pytest.mark.parametrize("name", ["again", "one more", "none", "single again", "directories again", "plain again"])
def test_there_is_nothing_to_do(told: dict[str, Any], name: str) -> None:
    step = told[name]
    assert step["said"][0] == 0, step["said"]
    assert end(step)["changed"] is False and step["before"] == step["after"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("not selected", "on which it has a member, is not selected"),
        ("too few", "at least 3 drives are wanted, and 2 are selected"),
        ("too many", "at most 1 drive is wanted, and 2 are selected"),
        ("another level", "is a RAID0, not the requested RAID1"),
        ("one blank", f"(serial {SERIALS[0]})"),
        ("none is an error", "at least 1 drive is wanted, and 0 are selected: none"),
        ("one is an error", "RAID0 needs at least 2 members, and 1 is named"),
        ("directories changed", "/srv/dirs does not have the requested owner 1, group 12, mode 2770"),
        ("directories changed", "its directory /srv/dirs/pods is not mounted at /opt/pods"),
        ("beside plain", f"(serial {SERIALS[2]}) has the file system plain of a single drive"),
        ("foreign", "at least 1 drive is wanted, and 0 are selected: none"),
    ],
)
def test_nothing_is_changed_where_the_file_does_not_fit(told: dict[str, Any], name: str, why: str) -> None:
    step = told[name]
    assert step["said"][0] == 3, step["said"]
    assert any(why in each["text"] for each in end(step)["refusals"]), end(step)
    assert end(step)["changed"] is False and step["before"] == step["after"]


def test_drives_that_all_came_back_blank_get_the_array_anew_in_place_of_its_lines(told: dict[str, Any]) -> None:
    step = told["all blank"]
    assert step["said"][0] == 0 and end(step)["changed"], step["said"]
    confs = [step[when][str(CONF)] for when in ("before", "after")]
    assert uuid_of(confs[0], "scratch") != uuid_of(confs[1], "scratch")
    assert uuid_of(confs[0], "other") == uuid_of(confs[1], "other")
    mounts = [line.split()[1] for line in step["after"][str(FSTAB)].splitlines() if not line.startswith("#")]
    assert sorted(mounts) == ["/srv/other", "/srv/scratch"]
    assert names(step) == ["MD_NAME=any:scratch"]


def test_with_one_blank_drive_both_are_named_and_neither_is_written_to(told: dict[str, Any]) -> None:
    (reason,) = end(told["one blank"])["refusals"]
    assert all(f"(serial {serial})" in reason["text"] for serial in SERIALS[:2])
    assert "not made anew" in reason["text"]


def test_a_making_that_was_cut_off_is_finished(told: dict[str, Any]) -> None:
    step = told["cut"]
    assert step["said"][0] == 0, step["said"]
    assert "MD_NAME=any:scratch" in names(step) and "/srv/scratch" in "".join(step["after"].values())


def test_a_single_drive_becomes_a_raid0_if_the_file_says_so(told: dict[str, Any]) -> None:
    step = told["single"]
    assert step["said"][0] == 0, step["said"]
    texts = [text for text in step["after"].values() if "MD_NAME=any:single" in text]
    assert "MD_LEVEL=raid0" in texts[0] and "MD_DEVICES=1" in texts[0]


def test_foreign_content_is_kept_unless_the_file_has_its_serial(told: dict[str, Any]) -> None:
    assert 'TYPE="ext4"' in told["foreign"]["content"]
    assert told["named"]["said"][0] == 3 and 'TYPE="ext4"' in told["named"]["content"]
    assert any("is not empty: ext4" in each["text"] for each in end(told["named"])["refusals"])
    assert told["wiped"]["said"][0] == 0 and 'TYPE="ext4"' not in told["wiped"]["content"], told["wiped"]["said"]
    assert "MD_NAME=any:other-content" in names(told["wiped"])


def test_settings_instead_of_a_file_find_the_same_array(told: dict[str, Any]) -> None:
    same, other = told["settings"]["said"], told["settings"]["differs"]
    assert same[0] == 0 and last_event(same[1])["changed"] is False, same
    assert other[0] == 3 and "is a RAID0, not the requested RAID1" in other[1], other


BIND = "/srv/dirs/pods /opt/pods none bind,nofail,x-systemd.requires-mounts-for=/srv/dirs,x-aligntool.bind=dirs 0 0"


def test_the_top_directory_and_the_bind_mount_are_as_wanted(told: dict[str, Any]) -> None:
    for name in ("directories", "directories again", "directories anew"):
        step = told[name]
        assert step["said"][0] == 0, step["said"]
        assert (step["access"], step["bound"]) == ("1 12 2770", "/pods"), step
        assert step["table"].splitlines().count(BIND) == 1
    assert end(told["directories anew"])["changed"]


def test_after_a_cut_before_each_of_the_last_steps_they_are_finished_or_gone(told: dict[str, Any]) -> None:
    cuts = told["directories cut"]["cuts"]
    assert {"EditFile", "Mount", "PrepareDirectory", "MakeDirectory", "BindMount"} <= {one["step"] for one in cuts}
    for one in cuts:
        assert one["said"][0] == 0, one
        if one["back"]:
            assert (one["bound"], one["folder"]) == ("", False) and "/srv/dirs" not in one["table"], one
        else:
            assert (one["access"], one["bound"]) == ("1 12 2770", "/pods") and BIND in one["table"], one


def test_a_file_in_a_directory_that_is_mounted_elsewhere_is_kept_by_a_rollback(told: dict[str, Any]) -> None:
    step = told["directories kept"]
    assert step["said"][0] == 3 and "holds files: pods" in step["said"][2], step["said"]
    assert step["finished"][0] == 0 and step["text"] == "of a user", step


def test_a_single_drive_gets_a_plain_file_system_and_gets_it_anew(told: dict[str, Any]) -> None:
    first, again = told["plain"], told["plain anew"]
    for step in (first, again):
        assert step["said"][0] == 0 and end(step)["changed"], step["said"]
        (part,) = json.loads(step["table"])["partitiontable"]["partitions"]
        assert (part["type"], part["name"], part["start"]) == ("0FC63DAF-8483-4772-8E79-3D69D8477DE4", "plain", 2048)
        assert "TYPE=xfs" in step["content"] and "LABEL=plain" in step["content"]
        assert step["mount"] == [f"{step['node']}p1", "xfs"] and "Magic" not in step["examined"]
    uuids = [next(line for line in step["content"].splitlines() if line.startswith("UUID=")) for step in (first, again)]
    table = again["after"][str(FSTAB)].splitlines()
    assert uuids[0] != uuids[1] and [line for line in table if line.startswith(uuids[1])]
    assert any(line.startswith(f"# replaced by aligntool: {uuids[0]}") for line in table)
    assert not any("plain" in line for line in again["after"][str(CONF)].splitlines())
