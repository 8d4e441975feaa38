"""The plans of `aligntool raid persist`: nothing for correctly configured arrays, and for others what is missing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.change import Plan, from_json, to_json
from aligntool.errors import Refused
from aligntool.inventory import Disk, Inventory, Layer, Partition
from aligntool.raid.commands import command_of
from aligntool.raid.planning import plan_raid
from aligntool.raid.running import PersistGoal, plan_persist
from aligntool.raid.steps_system import edited
from aligntool.steps import CheckInitramfs, EditFile, SystemStep, WriteFile
from aligntool.system import Initramfs, MdadmConf, System, merge_confs, parse_crypttab, parse_fstab, parse_mdadm_conf
from aligntool.units import GIB, MIB, Extent
from tests.audit.array_builders import FS, OTHER, RIGHT, UUID, finding_codes, fstab, image, lines, machine, system
from tests.conftest import run
from tests.raid.builders import ARRAY_UUID, drive, goal, judged

CONF = MdadmConf(("/etc/mdadm/mdadm.conf",))
ENABLED = ("systemctl", "enable", "mdadm-late-start.timer")
REBUILD = ("update-initramfs", "-u", "-k", "all")


def persist(inventory: Inventory, *, mount: str | None = None, word: str | None = None) -> Plan:
    return plan_persist(inventory.disks[-1], inventory, PersistGoal(word, mount))


def edits(plan: Plan) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.path, one.instead_of, one.lines) for one in plan.steps if isinstance(one, EditFile)]


def commands(plan: Plan) -> list[tuple[str, ...]]:
    return [command_of(step) for step in plan.steps if isinstance(step, SystemStep)]


def done(inventory: Inventory, plan: Plan, texts: dict[str, str]) -> Inventory:
    """Return the machine with the plan's edits in its files, and every initramfs updated with them."""
    files = inventory.system
    assert files is not None
    for step in plan.steps:
        if isinstance(step, EditFile):
            texts[step.path] = edited(texts.get(step.path, "").encode(), step).decode()
    conf = parse_mdadm_conf(texts.get("/etc/mdadm/mdadm.conf", ""), "/etc/mdadm/mdadm.conf")
    images = files.initramfs
    if REBUILD in commands(plan):
        images = tuple(replace(one, conf=conf) for one in images)
    files = replace(
        files, mdadm=conf, initramfs=images, fstab=parse_fstab(texts.get("/etc/fstab", "")),
        crypttab=parse_crypttab(texts.get("/etc/crypttab", "")),
        late_start=files.late_start or ENABLED in commands(plan),
    )  # fmt: skip
    return replace(inventory, system=files)


# mdadm.conf, fstab, crypttab before -> after the edits nothing is left to do; and words in the plan
CASES: list[tuple[str, str, str, str, Sequence[str]]] = [
    ("nothing at all", "", "", "", [RIGHT]),
    ("a line by name", "MAILADDR root\nARRAY /dev/md/data name=any:data\n", "", "", [RIGHT]),
    ("two wrong lines", f"ARRAY /dev/md127 UUID={OTHER}\nARRAY /dev/md/data devices=/dev/a\n", "", "", ["# replaced"]),
    ("a line that ignores it", f"ARRAY <ignore> UUID={UUID}\n", "", "", [RIGHT]),
    ("a wrong line that begins the right one", f"ARRAY /dev/md127 UUID={OTHER}\nARRAY /dev/md/data metadata=1.2\n",
     "", "", [RIGHT, "# replaced by aligntool: ARRAY /dev/md/data metadata=1.2"]),
    ("a name in quotes", 'ARRAY "/dev/md/my data" name=any:data\n', "", "", [RIGHT]),
    ("a line after a form feed in a comment", f"# one\fARRAY /dev/md/data UUID={UUID}\n", "", "", [RIGHT]),
    ("the name of another host", f"ARRAY /dev/md/data UUID={UUID} name=old:data\n", "", "", [RIGHT]),
    ("a bitmap in a file", "ARRAY data name=any:data bitmap=/var/md+a,0.map\n", "", "",
     [f"{RIGHT} bitmap=/var/md+a,0.map"]),
    ("a group of spares", "ARRAY data name=any:data spares=1 spare-group=a\n", "", "", [f"{RIGHT} spare-group=a"]),
    ("its line with a carriage return", f"MAILADDR root\r\n{RIGHT}\r\n", "", "", [RIGHT]),
    ("names that its members had", f"{RIGHT} devices=/dev/sda1,/dev/nvme0n1p1\n", "", "", [RIGHT]),
    ("a number that metadata 1.x lacks", f"{RIGHT} super-minor=127\n", "", "", [RIGHT]),
    ("its line twice", f"{RIGHT}\n{RIGHT}\n{RIGHT}\n", "", "", [RIGHT, f"# replaced by aligntool: {RIGHT}"]),
    ("its line and one that ignores it", f"{RIGHT}\nARRAY <IGNORE> UUID={UUID}\n", "", "", ["# replaced"]),
    ("its line and one by name", f"ARRAY /dev/md0 name=any:data\n{RIGHT}\n", "", "", ["# replaced"]),
    ("its line and one of its members", f"{RIGHT}\nARRAY /dev/md/data devices=/dev/a\n", "", "", ["# replaced"]),
    ("fstab by number", RIGHT, "/dev/md127\t/srv  ext4\tdefaults 0 2\n", "",
     [f"UUID={FS}\t/srv  ext4\tdefaults,nofail,x-systemd.device-timeout=2min 0 2"]),
    ("fstab by name", RIGHT, "/dev/md/data /srv ext4 nofail 0 2\n", "", [f"UUID={FS} /srv ext4 nofail 0 2"]),
    ("the root by number", RIGHT, "/dev/md127 / ext4 errors=remount-ro 0 1\n", "",
     [f"UUID={FS} / ext4 errors=remount-ro 0 1"]),
    ("a wait of its own", RIGHT, "/dev/md127 /srv ext4 noatime,x-systemd.device-timeout=10min 0 2\n", "",
     [f"UUID={FS} /srv ext4 noatime,x-systemd.device-timeout=10min,nofail 0 2"]),
    ("three fields", RIGHT, f"UUID={FS} /srv ext4\n", "",
     [f"UUID={FS} /srv ext4 defaults,nofail,x-systemd.device-timeout=2min 0 0"]),
    ("nofail before a carriage return", RIGHT, f"UUID={FS} /srv ext4 noatime,nofail\r\n", "",
     [f"UUID={FS} /srv ext4 noatime,nofail,x-systemd.device-timeout=2min"]),
    ("a comment of the same", RIGHT, "#/dev/md127 /srv ext4 nofail 0 2\n/dev/md127 /srv ext4 nofail 0 2\n", "",
     [f"UUID={FS} /srv ext4 nofail 0 2"]),
    ("crypttab", RIGHT, "", "data  /dev/md127  none  luks\n", [f"data  UUID={FS}  none  luks"]),
]  # fmt: skip


@pytest.mark.parametrize(("conf", "table", "crypt", "words"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_missing_settings_are_added_and_a_second_run_has_nothing_to_do(
    conf: str, table: str, crypt: str, words: Sequence[str]
) -> None:
    inside = image(*conf.splitlines()) if conf else image("HOMEHOST <system>")
    files = system(
        conf=parse_mdadm_conf(conf, "/etc/mdadm/mdadm.conf"), fstab=fstab(table), crypttab=parse_crypttab(crypt),
        images=(inside,),
    )  # fmt: skip
    inventory = machine("raid1", files)
    plan = persist(inventory)
    texts = {"/etc/mdadm/mdadm.conf": conf, "/etc/fstab": table, "/etc/crypttab": crypt}
    after = done(inventory, plan, texts)
    for word in words:
        assert any(word in line for _, _, new in edits(plan) for line in new), (word, edits(plan))
    assert finding_codes(audit(after, {})) == []
    assert persist(after).steps == ()
    kept = [line for text in (conf, table, crypt) for line in text.split("\n") if line.startswith(("#", "MAIL"))]
    assert all(line in "\n".join(texts.values()).split("\n") for line in kept)


def test_a_carriage_return_is_reported_and_in_a_device_line_how_it_is_removed() -> None:
    files = system(conf=parse_mdadm_conf(f"{RIGHT}\r\n", CONF.files[0]))
    (finding,) = [one for one in audit(machine("raid1", files), {}).findings if one.code.value == "AT612"]
    assert "ends with a carriage return" in finding.summary
    assert any("carriage return" in note for note in persist(machine("raid1", files)).notes)
    with pytest.raises(Refused) as refused:
        persist(machine("raid1", system(conf=parse_mdadm_conf("DEVICE partitions\r\n", CONF.files[0]))))
    assert refused.value.hint == f"by hand, with an editor on {CONF.files[0]}: docs/by-hand.md#files-of-the-system"


def test_a_refused_device_line_is_searched_for_in_every_file() -> None:
    main, beside = CONF.files[0], f"{CONF.files[0]}.d/own.conf"
    with pytest.raises(Refused, match=f"the DEVICE line of {main}, {beside} does not permit") as refused:
        persist(machine("raid1", system(conf=merge_confs([lines(RIGHT), parse_mdadm_conf("DEVICE /dev/sd*", beside)]))))
    assert refused.value.hint == f'remove that line from {main}, {beside}, or add "partitions" to it'


def test_a_correctly_configured_array_is_not_changed() -> None:
    plan = persist(machine("raid1", system(fstab=fstab(f"UUID={FS} /srv ext4 noatime,nofail 0 2"))))
    assert plan.steps == () and not plan.attention
    assert any("is correct" in note for note in plan.notes)


LATE = [
    "/usr/local/lib/mdadm-late-start.sh",
    "/etc/systemd/system/mdadm-late-start.service",
    "/etc/systemd/system/mdadm-late-start.timer",
]
NO_DISCARDS = {"raid5": [("AT607", "info")], "raid6": [("AT607", "info")]}


def test_a_line_that_lists_the_members_stays() -> None:
    for words in ("devices=/dev/nvme1n1p1,/dev/nvme0n1p1", "devices=/dev/nvme*", "devices=masked"):
        assert persist(machine("raid1", system(conf=lines(f"{RIGHT} {words}")))).steps == ()
    old = machine("raid1", system(conf=lines(f"{RIGHT} super-minor=127")), metadata="0.90")
    assert persist(old).steps == ()


def test_only_the_superfluous_lines_become_comments() -> None:
    conf = lines(RIGHT, f"ARRAY /dev/md7 UUID={UUID}", f"ARRAY /dev/md8 UUID={OTHER}", RIGHT)
    assert finding_codes(audit(machine("raid1", system(conf=conf)), {})) == [("AT612", "warning")] * 2
    assert [(old, new) for _, old, new in edits(persist(machine("raid1", system(conf=conf))))] == [
        (f"ARRAY /dev/md7 UUID={UUID}", (f"# replaced by aligntool: ARRAY /dev/md7 UUID={UUID}",)),
        (RIGHT, (RIGHT, f"# replaced by aligntool: {RIGHT}")),
    ]


@pytest.mark.parametrize("level", ["raid1", "raid10", "raid5", "raid6"])
def test_an_array_that_debian_starts_only_if_complete_gets_the_late_start_once(level: str) -> None:
    inventory = machine(level, replace(system(), late_start=False))
    assert finding_codes(audit(inventory, {})) == [*NO_DISCARDS.get(level, ()), ("AT618", "info")]
    plan = persist(inventory)
    written = [step.path for step in plan.steps if isinstance(step, WriteFile)]
    assert written == LATE and edits(plan) == [] and commands(plan) == [ENABLED]
    after = done(inventory, plan, {"/etc/mdadm/mdadm.conf": RIGHT})
    assert persist(after).steps == () and ("AT618", "info") not in finding_codes(audit(after, {}))


def unseen() -> Initramfs:
    return replace(image(), unseen="needs root")


@pytest.mark.parametrize(
    ("level", "family", "images", "place", "brought"),
    [
        ("raid0", "debian", None, "/srv", False),  # the array cannot run without it
        ("raid1", "fedora", None, "/srv", False),
        ("raid1", "debian-dracut", None, "/srv", False),
        ("raid1", "debian", None, "/", False),  # scripts/local-block/mdadm starts it
        ("raid1", "debian", None, "/usr", False),
        ("raid1", "debian", (), "/srv", False),  # systemd sees its members: mdadm-last-resort@ starts it
        ("raid1", "debian", (image(mdadm=False),), "/srv", False),
        ("raid1", "debian", (unseen(),), "/srv", True),
    ],
)
def test_no_other_array_gets_the_late_start(
    level: str, family: str, images: tuple[Initramfs, ...] | None, place: str, *, brought: bool
) -> None:
    inventory = machine(level, replace(system(images=images, family=family), late_start=False))
    disk = replace(inventory.disks[-1], mounted_at=(place,))
    inventory = replace(inventory, disks=(*inventory.disks[:-1], disk))
    assert ("AT618", "info") not in finding_codes(audit(inventory, {}))
    assert (ENABLED in commands(persist(inventory))) is brought


def test_a_plan_is_saved_and_read_back_unchanged() -> None:
    plan = persist(machine("raid1", system(conf=CONF)), mount="/srv/data")
    assert from_json(to_json(plan)) == plan and plan.disk.disk_id == UUID


@pytest.mark.parametrize(
    ("name", "path", "device"),
    [
        ("here:data", "/dev/md127", "/dev/md/data"),
        ("here:0", "/dev/md127", "/dev/md0"),
        ("here:0", "/dev/md0", "/dev/md0"),
        ("here:127", "/dev/md127", "/dev/md/127-01234567"),
        (None, "/dev/md3", "/dev/md3"),
        (None, "/dev/md127", "/dev/md/array-01234567"),
        ("here:bad name", "/dev/md127", "/dev/md/bad name-01234567"),
    ],
)
def test_the_array_keeps_its_name_and_127_does_not_count_as_a_name(name: str | None, path: str, device: str) -> None:
    inventory = machine("raid1", system(conf=CONF), name=name, links=())
    disk = replace(inventory.disks[-1], path=path, name=path.removeprefix("/dev/"))
    plan = persist(replace(inventory, disks=(*inventory.disks[:-1], disk)))
    (line,) = edits(plan)[0][2]
    assert line.startswith(f"ARRAY {device} metadata=1.2 UUID={UUID}".replace("bad name", "array"))


def test_a_name_of_another_array_is_not_assigned_twice() -> None:
    inventory = machine("raid1", system(conf=lines(f"ARRAY /dev/md/data UUID={OTHER}")))
    first = inventory.disks[-1]
    assert first.array is not None
    other = replace(
        first, name="md126", path="/dev/md126", array=replace(first.array, uuid=OTHER, members=()), slaves=()
    )
    plan = persist(replace(inventory, disks=(*inventory.disks[:-1], other, first)))
    assert edits(plan)[0][2] == (f"ARRAY /dev/md/data-01234567 metadata=1.2 UUID={UUID}",)


def arrays_of_one_name(files: System) -> Inventory:
    """Return the array "data" of another host, and this host's own, which has the link."""
    inventory = machine("raid1", files, name="there:data", links=("md/there:data",))
    first = inventory.disks[-1]
    assert first.array is not None
    own = replace(
        first, name="md126", path="/dev/md126", slaves=(), content=(),
        array=replace(first.array, uuid=OTHER, name="here:data", members=(), links=("md/data",)),
    )  # fmt: skip
    return replace(inventory, disks=(*inventory.disks[:-1], own, first))


def test_lines_of_another_array_of_the_same_name_are_not_changed() -> None:
    table = fstab("/dev/md/data /srv ext4 defaults 0 2", "LABEL=x /srv/x ext4 defaults 0 2")
    crypt = parse_crypttab("data /dev/md/data none luks")
    conf = lines("ARRAY /dev/md/data devices=/dev/a")
    plan = persist(arrays_of_one_name(system(conf=conf, fstab=table, crypttab=crypt)))
    assert edits(plan) == [
        ("/etc/mdadm/mdadm.conf", f"UUID={UUID}", (f"ARRAY /dev/md/data-01234567 metadata=1.2 UUID={UUID}",))
    ]


def test_another_line_for_the_mount_point_of_a_manual_mount_is_not_changed() -> None:
    lines_of_others = (
        "UUID=other /srv ext4 defaults 0 2",
        "/dev/sdz1 /srv ext4 defaults 0 2",
        "host:/x /srv nfs defaults 0 0",
    )
    inventory = machine("raid1", system(fstab=fstab(*lines_of_others)))
    disk = replace(inventory.disks[-1], mounted_at=("/srv",))
    assert persist(replace(inventory, disks=(*inventory.disks[:-1], disk))).steps == ()


def test_arrays_that_get_their_first_lines_together_get_different_names() -> None:
    inventory = machine("raid1", system(conf=CONF), name="there:data", links=())
    first = inventory.disks[-1]
    assert first.array is not None
    other = replace(first, name="md126", path="/dev/md126", slaves=(), array=replace(first.array, uuid=OTHER))
    ((_, _, new),) = edits(persist(replace(inventory, disks=(*inventory.disks[:-1], other, first))))
    assert new == (RIGHT, f"ARRAY /dev/md/data-89abcdef metadata=1.2 UUID={OTHER}")


def test_the_earlier_number_of_an_array_is_derived_from_its_name() -> None:
    """`mdadm --create /dev/md0` names it "host:0"; without a line it is /dev/md127 at the next start."""
    table = fstab("/dev/md0 /srv xfs noatime,nofail 0 0")
    plan = persist(machine("raid1", system(conf=CONF, fstab=table), name="here:0", links=("md/0",)))
    assert [one[2] for one in edits(plan)] == [
        (f"ARRAY /dev/md0 metadata=1.2 UUID={UUID}",),
        (f"UUID={FS} /srv xfs noatime,nofail 0 0",),
    ]


def test_on_debian_every_array_gets_a_line_as_the_first_one_ends_the_hooks_search() -> None:
    inventory = machine("raid1", system(conf=CONF))
    first = inventory.disks[-1]
    assert first.array is not None
    other = replace(
        first, name="md126", path="/dev/md126", slaves=(),
        array=replace(first.array, uuid=OTHER, name="here:root", members=(), links=()),
    )  # fmt: skip
    both = replace(inventory, disks=(*inventory.disks[:-1], other, first))
    assert [new for _, _, new in edits(persist(both))] == [(RIGHT, f"ARRAY /dev/md/root metadata=1.2 UUID={OTHER}")]
    assert [new for _, _, new in edits(persist(both, word="fedora"))] == [(RIGHT,)]


@pytest.mark.parametrize(
    ("word", "file", "rebuild"),
    [
        ("debian", "/etc/mdadm/mdadm.conf", REBUILD),
        ("debian-dracut", "/etc/mdadm/mdadm.conf", ("dracut", "-f", "--regenerate-all")),
        ("fedora", "/etc/mdadm.conf", ("dracut", "-f", "--regenerate-all")),
        ("opensuse", "/etc/mdadm.conf", ("dracut", "-f", "--regenerate-all")),
        ("arch", "/etc/mdadm.conf", ("mkinitcpio", "-P")),
    ],
)
def test_every_family_has_its_own_file_and_command(word: str, file: str, rebuild: tuple[str, ...]) -> None:
    plan = persist(machine("raid1", system(conf=MdadmConf(), images=(image("HOMEHOST x"),))), word=word)
    assert edits(plan)[0][0] == file and rebuild in commands(plan)


def test_the_first_line_for_a_new_array_on_debian_adds_those_of_the_other_arrays() -> None:
    """Otherwise the array that the system boots from would be missing from the initramfs."""
    running = machine("raid1", system(conf=CONF))
    new = [drive(number) for number in (4, 5)]
    plan = plan_raid(judged(*new), replace(running, disks=(*new, *running.disks)), goal(name="scratch"))
    assert [one[2] for one in edits(plan) if one[0] == "/etc/mdadm/mdadm.conf"] == [
        (RIGHT,),
        (f"ARRAY /dev/md/scratch metadata=1.2 UUID={ARRAY_UUID}",),
    ]
    known = replace(running, disks=(*new, *running.disks), system=system(conf=lines(f"ARRAY /dev/md1 UUID={OTHER}")))
    assert (
        len([one for one in edits(plan_raid(judged(*new), known, goal(name="scratch"))) if "mdadm.conf" in one[0]]) == 1
    )


def test_no_line_is_written_to_mdadm_conf_d_if_no_initramfs_copies_it() -> None:
    inventory = machine("raid1", system(conf=conf_beside("MAILADDR root"), images=(image("HOMEHOST x"),)))
    assert [path for path, _, _ in edits(persist(inventory))] == [CONF.files[0]]


@pytest.mark.parametrize("word", ["debian", "fedora"])
def test_without_an_initramfs_a_wrong_line_is_replaced_in_its_own_file(word: str) -> None:
    conf = conf_beside("ARRAY /dev/md/data name=any:data")
    plan = persist(machine("raid1", system(conf=conf, images=(), family=word)))
    assert [path for path, _, _ in edits(plan)] == [f"{CONF.files[0]}.d/own.conf"]


def test_a_wrong_line_that_is_there_twice_is_replaced_once() -> None:
    """Each edit replaces every line with the text: a second one would find none."""
    wrong = "ARRAY /dev/md/data name=any:data"
    inventory = machine("raid1", system(conf=lines(wrong, wrong)))
    assert [new for _, _, new in edits(persist(inventory))] == [(RIGHT,)]


def test_an_existing_file_is_used_instead_of_the_usual_one() -> None:
    conf = MdadmConf(("/etc/mdadm.conf",))
    assert edits(persist(machine("raid1", system(conf=conf))))[0][0] == "/etc/mdadm.conf"


@pytest.mark.parametrize(
    ("made", "rebuilt", "shown"),
    [
        ((image("HOMEHOST x"),), True, True),
        ((image("HOMEHOST x"), image(RIGHT)), True, True),
        ((image(mdadm=False),), False, False),  # it is assembled by the system's own file
        ((image("HOMEHOST x", maker="dracut"),), False, False),
        ((image("HOMEHOST x", maker="dracut", asked=(UUID,)),), True, False),
        ((replace(image(), unseen="needs root"),), True, False),
        ((), False, False),
    ],
)
def test_an_initramfs_is_rebuilt_if_it_assembles_the_array(
    made: tuple[object, ...], rebuilt: bool, shown: bool
) -> None:
    plan = persist(machine("raid1", system(conf=CONF, images=made)))  # type: ignore[arg-type]
    assert (REBUILD in commands(plan)) == rebuilt
    assert any(isinstance(step, CheckInitramfs) and step.uuid == UUID for step in plan.steps) == shown
    assert edits(plan)


def test_an_old_initramfs_is_rebuilt_although_every_file_is_correct() -> None:
    plan = persist(machine("raid1", system(images=(image(RIGHT), image("HOMEHOST x")))))
    assert not edits(plan) and commands(plan)[0] == REBUILD


def test_a_mount_is_added_to_fstab_and_mounted() -> None:
    plan = persist(machine("raid1", system()), mount="/srv/data")
    assert edits(plan) == [
        ("/etc/fstab", f"UUID={FS}", (f"UUID={FS} /srv/data ext4 noatime,nofail,x-systemd.device-timeout=2min 0 2",))
    ]
    assert commands(plan) == [("systemctl", "daemon-reload"), ("mkdir", "-p", "/srv/data"), ("mount", "/srv/data")]


def test_an_existing_mount_is_not_mounted_again() -> None:
    inventory = machine("raid1", system())
    disk = replace(inventory.disks[-1], mounted_at=("/srv/data",))
    plan = persist(replace(inventory, disks=(*inventory.disks[:-1], disk)), mount="/srv/data")
    assert commands(plan) == [("systemctl", "daemon-reload")]


def test_a_partition_of_the_array_is_named_by_its_own_uuid() -> None:
    inner = Layer("xfs", Extent(MIB, GIB), uuid="22222222-2222-4333-8444-555555555555")
    inventory = machine("raid1", system(fstab=fstab("/dev/md127p1 /srv xfs nofail 0 0")))
    part = Partition(1, Extent(MIB, GIB), content=(inner,), content_read=True)
    disk = replace(inventory.disks[-1], content=(), partitions=(part,))
    plan = persist(replace(inventory, disks=(*inventory.disks[:-1], disk)))
    assert edits(plan)[0][2] == ("UUID=22222222-2222-4333-8444-555555555555 /srv xfs nofail 0 0",)


def test_swap_is_named_by_its_uuid_and_may_be_missing() -> None:
    inventory = machine("raid1", system(fstab=fstab("/dev/md127 none swap sw 0 0")))
    assert edits(persist(inventory))[0][2] == (f"UUID={FS} none swap sw,nofail 0 0",)


def test_problems_that_files_cannot_repair_are_reported() -> None:
    files = system(conf=CONF, words=("root=/dev/md127", "resume=/dev/md127", "rd.auto"))
    said = " ".join(persist(machine("raid1", files, name="there:data", degraded=1)).attention)
    for words in ("root=/dev/md127", "do not hibernate", "names the host 'there'", "#settings-of-an-array", "degraded"):
        assert words in said, words


def test_a_snapshot_without_system_files_is_refused_with_a_command_for_that_machine() -> None:
    with pytest.raises(Refused, match="snapshot does not contain the files") as refusal:
        persist(replace(machine("raid1", None), captured=True))
    assert refusal.value.hint == "on that machine: sudo aligntool snapshot -o FILE"


def conf_beside(text: str) -> MdadmConf:
    return parse_mdadm_conf(text, f"{CONF.files[0]}.d/own.conf")


def unreadable(disk: Disk) -> Disk:
    return replace(disk, content=(), content_read=False)


@pytest.mark.parametrize(
    ("files", "facts", "mount", "why"),
    [
        (None, {}, None, "files of this system cannot be read"),
        (system(family=""), {}, None, "family of this system is unknown"),
        (system(conf=MdadmConf(unread=(CONF.files[0],))), {}, None, "cannot be read"),
        (system(), {"metadata": "external:/md126/0"}, None, "is a firmware array"),
        (system(), {"uuid": None}, None, "the UUID of"),
        (system(conf=lines("ARRAY /dev/md/data", "  devices=/dev/a")), {}, None, "several lines"),
        (
            system(conf=lines("ARRAY /dev/md/data", f"ARRAY /dev/md/data2 UUID={OTHER}")),
            {},
            None,
            "another line contains it: ARRAY /dev/md/data2",
        ),
        (
            system(fstab=fstab("/dev/md127 /srv ext4", "/dev/md127 /srv ext4 noauto")),
            {},
            None,
            "another line contains it",
        ),
        (system(fstab=fstab("/dev/md127 /srv/caf\ufffd ext4")), {}, None, "not UTF-8"),
        (
            system(conf=parse_mdadm_conf(RIGHT, "/etc/mdadm/mdadm.conf.d/own.conf"), images=(image("HOMEHOST x"),)),
            {},
            None,
            "initramfs-tools does not copy",
        ),
        (
            system(conf=conf_beside("ARRAY /dev/md/data name=any:data"), images=(image("HOMEHOST x"),)),
            {},
            None,
            "initramfs-tools does not copy",
        ),
        (system(conf=parse_mdadm_conf("DEVICE /dev/sd*\n", CONF.files[0])), {}, None, "does not permit /dev/nvme0n1p1"),
        (system(conf=parse_mdadm_conf("DEVICE partitions\r\n", CONF.files[0])), {}, None, "does not permit"),
        (system(), {}, "srv", "is not a valid mount point"),
        (system(), {}, "/", "is not a valid mount point"),
        (system(), {}, "/with blank", "is not a valid mount point"),
        (system(fstab=fstab("UUID=x /srv ext4")), {}, "/srv", "already mounts UUID=x at /srv"),
        (system(fstab=fstab(f"UUID={FS} /home ext4")), {}, "/srv", "already mounts it at /home"),
    ],
)
def test_an_impossible_request_is_refused_with_its_reason(
    files: System | None, facts: dict[str, object], mount: str | None, why: str
) -> None:
    with pytest.raises(Refused, match=why) as refused:
        persist(machine("raid1", files, **facts), mount=mount)
    assert refused.value.hint


def test_a_line_by_number_is_refused_where_the_content_of_the_array_is_unknown() -> None:
    inventory = machine("raid1", system(conf=CONF, fstab=fstab("/dev/md127 /srv ext4 nofail 0 2")))
    inventory = replace(inventory, disks=(*inventory.disks[:-1], unreadable(inventory.disks[-1])))
    with pytest.raises(Refused, match="the UUID of /dev/md127") as refused:
        persist(inventory, mount="/x")
    assert "the content of /dev/md127 could not be read" in str(refused.value)  # all reasons together


def test_a_drive_is_not_an_array() -> None:
    inventory = machine("raid1", system())
    with pytest.raises(Refused, match="not a running md array"):
        plan_persist(inventory.disks[0], inventory, PersistGoal())


@pytest.mark.needs_tools("findmnt")
def test_the_written_lines_are_valid_fstab_lines(tmp_path: Path) -> None:
    """findmnt(8) reads the resulting file, and finds the same source, mount point and options."""
    table = "# by hand\n/dev/md127\t/srv  ext4\tdefaults 0 2\nUUID=aa-bb /other vfat ro 0 0\n"
    inventory = machine("raid1", system(fstab=fstab(table)))
    texts = {"/etc/fstab": table, "/etc/mdadm/mdadm.conf": RIGHT}
    done(inventory, persist(inventory), texts)
    file = tmp_path / "fstab"
    file.write_text(texts["/etc/fstab"])
    said = run("findmnt", "--tab-file", file, "--noheadings", "--raw", "--output", "SOURCE,TARGET,FSTYPE,OPTIONS")
    assert said.splitlines() == [
        f"UUID={FS} /srv ext4 defaults,nofail,x-systemd.device-timeout=2min",
        "UUID=aa-bb /other vfat ro",
    ]
