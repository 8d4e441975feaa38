"""Lines that name an array of which no member is present become comments, if that is certain."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from aligntool.change import RaidGoal
from aligntool.inventory import Disk, Inventory, Layer, Unseen
from aligntool.raid.planning import needs_of_goal, plan_raid
from aligntool.raid.stale import StaleLine, stale_lines
from aligntool.raid.steps_system import edited
from aligntool.steps import EditFile
from aligntool.system import System, merge_confs, parse_crypttab, parse_fstab, parse_mdadm_conf
from aligntool.units import Extent
from tests.audit.array_builders import OTHER, UUID, fstab, lines, system
from tests.raid.builders import ARRAY_UUID, FS_UUID, drive, drives, goal, judged

CONF = "/etc/mdadm/mdadm.conf"
THIRD = "33333333:01234567:89abcdef:01234567"
GONE_FS = "99999999-8888-4777-8666-555555555555"
GONE = f"ARRAY /dev/md/data metadata=1.2 UUID={OTHER}"
MOUNTED = f"UUID={GONE_FS} /srv/data xfs noatime,nofail,x-systemd.device-timeout=2min 0 0"


def files(*conf: str, table: str = "", crypt: str = "") -> System:
    return replace(
        system(conf=lines(*conf), images=(), fstab=fstab(*table.splitlines())), crypttab=parse_crypttab(crypt)
    )


def blank(number: int) -> Disk:
    disk = drive(number)
    return replace(disk, table_read=True, content_read=True)


def machine(found: System, *more: Disk) -> Inventory:
    return Inventory((blank(0), blank(1), *more), system=found)


def found(inventory: Inventory, **words: object) -> list[tuple[str, str]]:
    return [(line.file, line.text) for line in stale_lines(inventory, goal(**words))]  # type: ignore[arg-type]


def with_layer(kind: str, uuid: str | None = None, label: str | None = None) -> Disk:
    return replace(blank(5), content=(Layer(kind, Extent(0, 1 << 30), uuid=uuid, label=label),))


def with_unread_partition() -> Disk:
    disk = replace(drive(5, parts="2048+1024"), table_read=True)
    return replace(disk, partitions=(replace(disk.partitions[0], content_read=False),))


def test_the_lines_of_an_array_that_is_gone_are_found_and_no_others() -> None:
    other = f"ARRAY /dev/md/other UUID={UUID}"
    table = f"UUID=1 / ext4 defaults 0 1\n{MOUNTED}\n/dev/md/data /mnt xfs nofail 0 0\nUUID=2 /srv/data2 xfs nofail 0 0"
    crypt = "a /dev/md/data none luks\nb /dev/md/other none luks\n"
    inventory = machine(files("MAILADDR root", GONE, other, table=table, crypt=crypt))
    assert found(inventory) == [
        (CONF, GONE), ("/etc/fstab", MOUNTED), ("/etc/fstab", "/dev/md/data /mnt xfs nofail 0 0"),
        ("/etc/crypttab", "a /dev/md/data none luks"),
    ]  # fmt: skip
    assert found(inventory, name="new") == []
    assert found(machine(files(other, table=MOUNTED))) == []
    assert found(machine(files(f"ARRAY /dev/md0 UUID={OTHER}")), name="0") == [(CONF, f"ARRAY /dev/md0 UUID={OTHER}")]


@pytest.mark.parametrize("key", ["UUID", "LABEL"])
def test_the_line_of_a_file_system_that_is_present_stays(key: str) -> None:
    line = f"{key}=here /srv/data xfs nofail 0 0"
    inventory = machine(files(GONE, table=line))
    assert found(inventory) == [(CONF, GONE), ("/etc/fstab", line)]
    present = with_layer("xfs", uuid="here", label="here")
    assert found(replace(inventory, disks=(*inventory.disks, present))) == [(CONF, GONE)]
    for spec in ("/dev/sdb1", "PARTUUID=1-2", "server:/export", "LABEL="):
        assert found(machine(files(GONE, table=f"{spec} /srv/data xfs nofail 0 0"))) == [(CONF, GONE)]


@pytest.mark.parametrize(
    "more",
    [
        with_layer("linux_raid_member", uuid=OTHER),
        with_layer("linux_raid_member", uuid=UUID),  # an array that does not run may hold a member
        with_layer("crypto_LUKS"),
        replace(blank(5), content_read=False),
        replace(blank(5), table_read=False),
        with_unread_partition(),
    ],
    ids=["a member", "another member", "LUKS", "content", "table", "partition"],
)
def test_no_line_is_stale_while_a_member_may_be_somewhere(more: Disk) -> None:
    assert found(machine(files(GONE, table=MOUNTED), more)) == []


def test_what_is_open_was_looked_into() -> None:
    opened = replace(with_layer("crypto_LUKS"), holders=("dm-0",))
    assert found(machine(files(GONE), opened)) == [(CONF, GONE)]


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, unseen=(Unseen("fstab", "did not answer"),)),
        lambda one: replace(one, system=None),
        lambda one: replace(one, system=replace(one.system, mdadm=replace(one.system.mdadm, unread=(CONF,)))),
    ],
)
def test_no_line_is_stale_if_something_was_not_read(change: Callable[[Inventory], Inventory]) -> None:
    assert found(change(machine(files(GONE, table=MOUNTED)))) == []


def test_a_line_that_cannot_be_replaced_alone_stays() -> None:
    assert found(machine(files(f"ARRAY /dev/md/data\n UUID={OTHER}"))) == []
    assert found(machine(files(GONE, f"{GONE} name=any:data"))) == [(CONF, f"{GONE} name=any:data")]
    assert found(machine(files(f"{GONE} name=\ufffd"))) == []


def applied(inventory: Inventory, wanted: RaidGoal, texts: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    stale = stale_lines(inventory, wanted)
    plan = plan_raid(judged(*drives(2)), Inventory(drives(2)), wanted, stale=stale)
    done = dict(texts)
    for step in (step for step in plan.steps if isinstance(step, EditFile)):
        done[step.path] = edited(done.get(step.path, "").encode(), step).decode()
    return list(plan.attention), done


def test_the_plan_replaces_them_and_every_other_line_stays_byte_for_byte() -> None:
    texts = {
        CONF: f"# mine\nMAILADDR root\n{GONE}\nARRAY /dev/md/other UUID={THIRD}\n",
        "/etc/fstab": f"UUID=1  /  ext4 defaults 0 1\n{MOUNTED}\n# {MOUNTED}\n",
    }
    read = replace(system(images=()), fstab=parse_fstab(texts["/etc/fstab"]), mdadm=parse_mdadm_conf(texts[CONF], CONF))
    attention, done = applied(machine(read), goal(filesystem="xfs"), texts)
    assert sum("becomes a comment" in sentence for sentence in attention) == 2
    conf, table = (parse_mdadm_conf(done[CONF], CONF), parse_fstab(done["/etc/fstab"]))
    assert [line.uuid for line in conf.arrays] == [THIRD, ARRAY_UUID]
    assert [(line.spec, line.place) for line in table] == [("UUID=1", "/"), (f"UUID={FS_UUID}", "/srv/data")]
    kept = [(path, line) for path, text in texts.items() for line in text.splitlines() if line not in (GONE, MOUNTED)]
    assert all(line in done[path].splitlines() for path, line in kept)
    for line, path in ((GONE, CONF), (MOUNTED, "/etc/fstab")):
        assert f"# replaced by aligntool: {line}" in done[path].splitlines()


def test_a_goal_without_a_plan_needs_the_same_edits() -> None:
    stale = (StaleLine(CONF, GONE),)
    edits = [step for step in needs_of_goal(goal(), here=True, stale=stale).steps if isinstance(step, EditFile)]
    assert edits[0] == stale[0].edit
    assert merge_confs([parse_mdadm_conf(edited(GONE.encode(), edits[0]).decode(), CONF)]).arrays == ()
