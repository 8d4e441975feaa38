"""The directories of a new file system: who may use it, and what of it is mounted elsewhere as well."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import Bind, RaidGoal
from aligntool.errors import Refused
from aligntool.inventory import Inventory
from aligntool.raid.boot import bind_edits, mount_steps_of_goal
from aligntool.raid.existing import Existing, plan_existing
from aligntool.raid.planning import plan_raid
from aligntool.raid.running import PersistGoal, resolve_array
from aligntool.raid.stale import stale_lines
from aligntool.raid.steps_system import edited
from aligntool.steps import BindMount, EditFile, MakeDirectory, Mount, PrepareDirectory, Step
from aligntool.system import parse_fstab
from tests.audit.array_builders import OTHER, image, lines, machine, system
from tests.raid.builders import drives, goal, judged
from tests.raid.test_existing import made, named

KUBELET = Bind("kubelet", "/var/lib/kubelet")
CONTAINERD = Bind("containerd", "/var/lib/containerd")
OPTIONS = "bind,nofail,x-systemd.requires-mounts-for=/srv/data,x-aligntool.bind=data"
LINE = f"/srv/data/kubelet /var/lib/kubelet none {OPTIONS} 0 0"


def wanted(**words: object) -> RaidGoal:
    return replace(goal(binds=(KUBELET,), owner="root", group="1000", mode="2770"), **words)  # type: ignore[arg-type]


def planned(asked: RaidGoal) -> tuple[Step, ...]:
    return plan_raid(judged(*drives(2)), Inventory(drives(2)), asked).steps


def test_the_steps_follow_the_mount_and_their_line_is_in_fstab_before_it() -> None:
    steps = planned(wanted())
    assert steps[-5:] == (
        Mount("/srv/data"),
        PrepareDirectory("/srv/data/kubelet", "/srv/data"),
        MakeDirectory("/var/lib/kubelet"),
        BindMount("/var/lib/kubelet", "/srv/data/kubelet", "/srv/data"),
        PrepareDirectory("/srv/data", "/srv/data", "root", "1000", "2770"),
    )
    edits = [step.lines for step in steps if isinstance(step, EditFile) and step.path == "/etc/fstab"]
    assert len(edits) == 2 and edits[1] == (LINE,), "or systemd could mount the directory of another file system"


def test_a_goal_without_them_has_the_same_steps_as_before() -> None:
    assert not any(isinstance(step, PrepareDirectory | BindMount) for step in planned(goal()))
    assert list(mount_steps_of_goal(wanted(filesystem="none", mount_at=""))) == []


@pytest.mark.needs_tools("findmnt")
def test_findmnt_reads_the_line_as_a_bind_mount(tmp_path: Path) -> None:
    (step,) = bind_edits(wanted())
    table = tmp_path / "fstab"
    table.write_bytes(edited(b"", step))
    words = ("findmnt", "--tab-file", table, "--noheadings", "--output", "SOURCE,TARGET,OPTIONS")
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert found == ["/srv/data/kubelet", "/var/lib/kubelet", OPTIONS]


def test_only_lines_of_the_same_array_are_replaced() -> None:
    """Not those of an array whose name begins alike, and not a line of the user for the same source."""
    (step,) = bind_edits(wanted(binds=(KUBELET, CONTAINERD)))
    others = (
        f"/srv/data2/kubelet /opt none {OPTIONS}2 0 0\n/srv/data/kubelet /mnt none bind 0 0\n"
        "UUID=1 /srv/data/kubelet xfs defaults 0 0\n"
    )
    old = f"/mnt/old/kubelet /var/lib/kubelet none {OPTIONS} 0 0\n/mnt/old/gone /var/lib/gone none {OPTIONS} 0 0\n"
    table = edited((others + old).encode(), step)
    assert table.decode().startswith(others)
    assert [line.place for line in parse_fstab(table.decode())[3:]] == ["/var/lib/kubelet", "/var/lib/containerd"]
    assert edited(table, step) == table


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"mount_at": ""}, "owner, group, mode, binds: only a file system that is mounted has directories"),
        ({"filesystem": "swap"}, "only a file system that is mounted has directories"),
        ({"mount_at": "/"}, "cannot be mounted elsewhere"),
        ({"mount_at": "/srv/a,b"}, "cannot be mounted elsewhere"),
        ({"mount_at": "/var/lib/kubelet"}, "/var/lib/kubelet is /var/lib/kubelet, which is another mount point"),
        ({"mount_at": "/var/lib"}, "/var/lib/kubelet is below /var/lib, which is another mount point of it"),
        ({"mount_at": "/var/lib/kubelet/data"}, "is below /var/lib/kubelet"),
        ({"binds": (KUBELET, Bind("pods", "/var/lib/kubelet/pods"))}, "is below /var/lib/kubelet"),
    ],
)
def test_directories_that_cannot_be_mounted_so_are_refused(words: dict[str, object], why: str) -> None:
    with pytest.raises(Refused, match=why):
        planned(wanted(**words))


def differences(asked: RaidGoal, *unmet: type) -> str:
    """Return how an array differs on a machine on which the steps of these kinds would change something."""
    inventory = made()
    array, _ = resolve_array(inventory.disks[-1], inventory, PersistGoal(asked.system))
    existing = Existing(array, named(inventory), asked, b"", lambda step: not isinstance(step, unmet))
    with pytest.raises(Refused) as refused:
        plan_existing(existing)
    assert all("docs/by-hand.md#files-of-the-system" in one.hint for one in refused.value.refusals)
    return str(refused.value)


def test_each_difference_of_an_array_that_exists_is_named() -> None:
    asked = replace(RaidGoal("raid1", filesystem="ext4", owner="root", mode="0750"), binds=(KUBELET,))
    assert f"/etc/fstab lacks a line of it: {LINE}" in differences(asked, EditFile)
    assert "/srv/data does not have the requested owner root, mode 0750" in differences(asked, PrepareDirectory)
    assert "its directory /srv/data/kubelet is not mounted at /var/lib/kubelet" in differences(asked, BindMount)
    inventory = made()
    array, _ = resolve_array(inventory.disks[-1], inventory, PersistGoal(asked.system))
    assert plan_existing(Existing(array, named(inventory), asked, b"", lambda step: True)).steps == ()


def test_lines_of_directories_of_an_array_that_is_gone_become_comments() -> None:
    gone = f"ARRAY /dev/md/data UUID={OTHER}"
    mounted = "UUID=11111111-1111-4111-8111-111111111111 /srv/data xfs nofail 0 0"
    files = replace(system(conf=lines(gone)), fstab=parse_fstab(f"{mounted}\n{LINE}"), initramfs=(image(),))
    inventory = replace(machine("raid1", files), disks=drives(2))
    # The line of the directory first: after a power cut between both, systemd would make and bind one on the root disk.
    for asked in (goal(), goal(binds=(KUBELET,))):
        assert [line.text for line in stale_lines(inventory, asked)] == [gone, LINE, mounted]
    assert [line.text for line in stale_lines(inventory, goal(name="data2"))] == []
