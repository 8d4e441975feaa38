"""Everything that prevents the creation is reported before the first write, all reasons together."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import ArrayPlan, Bind
from aligntool.errors import Refused
from aligntool.raid.boot import bind_edits, directory_steps
from aligntool.raid.planning import Needs, needs_of_plan
from aligntool.raid.preflight import preflight, refuse_impossible
from aligntool.raid.steps_drives import read_disk
from aligntool.raid.steps_system import refuse_hooks
from aligntool.steps import (
    CheckInitramfs,
    EditFile,
    MakeMember,
    Mount,
    PrepareDirectory,
    RebuildInitramfs,
    Step,
    Subject,
)
from aligntool.units import MIB
from tests.conftest import run, unmount
from tests.raid.applying.builders import FS_UUID, LINE, fstab_step, member_step, paths_in, plan_of
from tests.raid.builders import drives, goal, planned

pytestmark = pytest.mark.needs_root
UUID = "01234567:89abcdef:01234567:89abcdef"
OTHER = "89abcdef:01234567:89abcdef:01234567"
FIRST = "ARRAY /dev/md/first UUID=11111111:22222222:33333333:44444444\n"
CONF = "/etc/mdadm/mdadm.conf"


def conf_step() -> EditFile:
    return EditFile(CONF, (f"ARRAY /dev/md/data UUID={UUID}",), f"UUID={UUID}", f"{CONF}.before")


def reasons(plan: ArrayPlan, folder: Path) -> str:
    with pytest.raises(Refused) as caught:
        refuse_impossible(plan, paths_in(folder))
    return str(caught.value)


def wrote(folder: Path) -> list[Path]:
    return [each for each in (folder / "root").rglob("*") if each.name.endswith((".before", "-aligntool"))]


def test_a_name_and_a_mount_point_in_use_are_reported_together(tmp_path: Path) -> None:
    etc = paths_in(tmp_path).of("/etc")
    (etc / "mdadm/mdadm.conf").write_text("# ARRAY /dev/md/data\nARRAY /dev/md/data UUID=f:f:f:f\n")
    (etc / "fstab").write_text("UUID=other /srv/data/ ext4 defaults 0 2\n")
    full = tmp_path / "full"
    full.mkdir()
    (full / "theirs").touch()
    steps: list[Step] = [conf_step(), fstab_step(), Mount(str(full))]
    said = reasons(plan_of(steps), tmp_path)
    assert "gives the name /dev/md/data to another array" in said
    assert "already mounts UUID=other at /srv/data" in said
    assert "would hide the file theirs" in said
    assert wrote(tmp_path) == []


@pytest.mark.parametrize(
    ("conf", "more", "said"),
    [
        (f"ARRAY data UUID={OTHER}\n", "", f"gives the name /dev/md/data to another array: ARRAY data UUID={OTHER}"),
        (f"array UUID={OTHER} /dev/md/data\n", "", "gives the name"),
        (FIRST, f"ARRAY /dev/md/data UUID={OTHER}\n", f"{CONF}.d/more.conf gives the name"),
        ("ARRAY /dev/md0 name=any:data\n", "", "also matches the new array"),
        (FIRST, "ARRAY /dev/md0\n  devices=/dev/sda1,/dev/nvme*p1\n", "also matches the new array"),
        ("", f"ARRAY /dev/md0 UUID={OTHER}\n", f"once {CONF} lists one array, it lists no other"),
        ("ARRAY /dev/md0 devices=/dev/sda1\nARRAY /dev/md1 name=here:data\n", "", ""),
        (f"ARRAY /dev/md0 UUID={OTHER} name=any:data\n", "", ""),
        ("", "DEVICE /dev/sd*\n", "does not permit"),
    ],
)
def test_a_line_that_mdadm_would_apply_to_the_new_array_is_refused(
    tmp_path: Path, conf: str, more: str, said: str
) -> None:
    paths = paths_in(tmp_path)
    paths.of(CONF).write_text(conf)
    paths.of(f"{CONF}.d").mkdir()
    paths.of(f"{CONF}.d/more.conf").write_text(more)
    plan = planned(goal("raid1"), *drives(2))
    steps = [step for step in plan.steps if isinstance(step, EditFile) and step.path == CONF]
    found = [reason.text for reason in preflight(Needs(steps=tuple(steps)), plan.steps, paths)]
    assert len(found) == bool(said) and all(said in text for text in found), found


@pytest.mark.parametrize(("name", "device"), [("0", "/dev/md0"), ("7", "md7"), ("md3", "/dev/md/3")])
def test_a_name_that_mdadm_reads_as_the_number_of_another_array_is_refused(
    tmp_path: Path, name: str, device: str
) -> None:
    paths = paths_in(tmp_path)
    paths.of(CONF).write_text(f"ARRAY {device} UUID={OTHER}\n")
    plan = planned(goal("raid1", name=name), *drives(2))
    steps = tuple(step for step in plan.steps if isinstance(step, EditFile) and step.path == CONF)
    (reason,) = preflight(Needs(steps=steps), plan.steps, paths)
    assert f"gives the name /dev/md/{name} to another array" in reason.text


@pytest.mark.parametrize("other", ["/etc/mdadm.conf", CONF])
def test_a_file_that_mdadm_would_no_longer_read_is_refused(tmp_path: Path, other: str) -> None:
    """Debian's mdadm reads only the first of the two that exists, that of others only the second: the lines of all
    other arrays would be lost.
    """
    paths = paths_in(tmp_path)
    paths.of(other).write_text(f"ARRAY /dev/md0 UUID={OTHER}\n")
    plan = planned(goal("raid1", system="debian" if other != CONF else "fedora"), *drives(2))
    steps = tuple(step for step in plan.steps if isinstance(step, EditFile) and step.path in ("/etc/mdadm.conf", CONF))
    (reason,) = preflight(Needs(steps=steps), plan.steps, paths)
    assert reason.hint == f"by hand, with mv on {other}, to {steps[0].path}: docs/by-hand.md#files-of-the-system"
    paths.of(other).rename(paths.of(steps[0].path))
    assert preflight(Needs(steps=steps), plan.steps, paths) == []


@pytest.mark.needs_tools("systemd-escape")
def test_a_mount_unit_that_would_be_used_instead_of_the_line_in_fstab_is_refused(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    units = paths.of("/etc/systemd/system")
    units.mkdir(parents=True, exist_ok=True)
    (units / "srv-data.mount").write_text("[Mount]\nWhat=/dev/sdb1\nWhere=/srv/data\n")
    (units / r"srv-my\x2ddata.mount").symlink_to("/dev/null")
    for place, is_refused in (("/srv/data", True), ("/srv/my-data", True), ("/srv/my/data", False)):
        step = Mount(place)
        found = [reason.text for reason in preflight(Needs(steps=(step,)), [step], paths)]
        assert len(found) == is_refused and all("is a mount unit" in text for text in found)


@pytest.mark.needs_tools("systemd-escape")
def test_a_path_for_a_directory_of_the_array_must_be_free_and_empty(tmp_path: Path) -> None:
    """In fstab and on the disk; a former line of the same array is replaced. Nobody is told to use --mount."""
    full, empty = tmp_path / "full", tmp_path / "empty"
    (full / "theirs").mkdir(parents=True)
    paths = paths_in(tmp_path)
    wanted = goal("raid1", mode="0750", binds=(Bind("a", str(full)), Bind("b", str(empty))))
    edits, mounts = tuple(bind_edits(wanted)), tuple(directory_steps(wanted))
    taken = f"UUID=other {empty} ext4 defaults 0 2\n"
    paths.of("/etc/fstab").write_text(f"{taken}/old/a {full} none bind,x-aligntool.bind=data 0 0\n")
    found = preflight(Needs(steps=(*edits, *mounts)), mounts, paths)
    assert [reason.code for reason in found] == ["mount-point"] * 2
    assert f"already mounts UUID=other at {empty}" in found[0].text
    assert f"{full} is not empty; a mount would hide the directory theirs" in found[1].text
    assert not any("--mount" in reason.hint or not reason.hint for reason in found)
    (unknown,) = preflight(Needs(steps=(PrepareDirectory("/srv", "/srv", group="no-such-group"),)), (), paths)
    assert "'no-such-group', the group of /srv, is not known here" in unknown.text


def test_edits_are_checked_in_sequence_and_in_place_of_the_lines_they_replace(tmp_path: Path) -> None:
    """The first of two lines is commented out before the second is replaced; swap spaces have no mount point."""
    paths = paths_in(tmp_path)
    lines = ("ARRAY /dev/md/data devices=/dev/a", f"ARRAY /dev/md127 UUID={OTHER}")
    paths.of(CONF).write_text("\n".join(lines))
    paths.of("/etc/fstab").write_text("/dev/sda3 none swap sw 0 0\n/dev/md127 /srv xfs\nx:/srv /srv nfs noauto\n")
    steps = [
        EditFile(CONF, (f"# {lines[0]}",), lines[0], "x"),
        EditFile(CONF, (f"ARRAY /dev/md/data UUID={UUID}",), lines[1], "x"),
        EditFile("/etc/fstab", (f"UUID={FS_UUID} none swap sw,nofail 0 0",), f"UUID={FS_UUID}", "x"),
        EditFile("/etc/fstab", ("UUID=y /srv xfs",), "/dev/md127 /srv xfs", "x"),
    ]
    assert preflight(Needs(steps=tuple(steps)), (), paths) == []
    (reason,) = preflight(Needs(steps=tuple(steps[1:])), (), paths)
    assert (reason.code, reason.subject) == ("name-taken", "/dev/md/data")


DEVICES = [
    ("", False),
    ("# DEVICE /dev/sd*\nDEVICE partitions containers\n", False),
    ("DEVICE /dev/sd* /dev/nvme*\n", False),
    ("DEVICE /dev/disk/by-id/*\n", False),
    ("DEVICE /dev/sd*\n", True),
    ("DEV /dev/nvme0n1p1\n", True),
    ("DEVICE /dev/sd*\n  /dev/hd*\nMAILADDR root\n", True),
    ("device containers\n", True),
]


@pytest.mark.parametrize(("text", "is_refused"), DEVICES)
def test_an_mdadm_conf_that_does_not_permit_the_members_is_refused(tmp_path: Path, text: str, is_refused: bool) -> None:
    """mdadm.conf(5), DEVICE: the array would have its line in every file, and would still not start."""
    paths = paths_in(tmp_path)
    paths.of(CONF).write_text(text)
    drives = [Subject(f"/dev/nvme{number}n1", 0, 512, None, None, None, None, None, "") for number in range(2)]
    members = [MakeMember(drive, f"{drive.path}p1", "gpt", wipe=True) for drive in drives]
    refusals = preflight(Needs(steps=(conf_step(), fstab_step())), members, paths)
    found = [reason for reason in refusals if reason.subject == CONF]
    assert [reason.code for reason in found] == ["file-conflict"] * is_refused
    assert all("/dev/nvme1n1p1: the array would not start" in reason.text for reason in found)


@pytest.mark.needs_tools("losetup", "blkid")
def test_a_drive_in_use_under_another_name_is_refused(
    tmp_path: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    """Two paths to one drive without multipathd: the kernel locks each of the two separately."""
    drive = loop(sparse(64 * MIB))
    paths = paths_in(tmp_path)
    step = member_step(paths, drive)
    step = replace(step, disk=replace(step.disk, wwn="naa.5000c500a1b2c3d4"))
    twin = replace(read_disk(str(drive)), path="/dev/sdx", wwn="naa.5000c500a1b2c3d4", mounted_at=("/srv",))
    plan = plan_of([step])
    for other, said in ((twin, ["same-drive"]), (replace(twin, mounted_at=()), [])):
        found = preflight(needs_of_plan(plan, here=True), plan.steps, paths, (other,))
        assert [each.code for each in found] == said


@pytest.mark.needs_tools("losetup", "mkfs.ext4", "mount", "chattr")
def test_a_file_that_cannot_be_replaced_is_reported_before_the_first_write(
    tmp_path: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    device, root = loop(sparse(16 * MIB)), tmp_path / "root"
    root.mkdir()
    run("mkfs.ext4", "-q", device)
    run("mount", device, root)
    try:
        paths_in(tmp_path).of("/etc/fstab").write_text("# mine\n")
        refuse_impossible(plan_of([fstab_step()]), paths_in(tmp_path))
        run("chattr", "+i", root / "etc/fstab")
        assert "with chattr on " in reasons(plan_of([fstab_step()]), tmp_path)
        run("chattr", "-i", root / "etc/fstab")
        run("mount", "-o", "remount,ro", root)
        said = reasons(plan_of([fstab_step()]), tmp_path)
        assert "/etc is on a file system that is mounted read-only" in said and "chattr" not in said
    finally:
        unmount(root)


def test_a_line_that_cannot_be_encoded_is_reported_before_the_first_write(tmp_path: Path) -> None:
    """A word of the command line may hold any byte; Python represents it as a lone surrogate."""
    (paths_in(tmp_path).of("/etc/fstab")).write_text("")
    step = fstab_step(LINE.replace("/srv/data", "/srv/caf\udce9"))
    assert "not UTF-8" in reasons(plan_of([step]), tmp_path)


def test_a_missing_program_of_a_script_is_reported_before_the_first_write(tmp_path: Path) -> None:
    found = [Path(folder, "lsinitcpio").exists() for folder in ("/usr/bin", "/bin", "/usr/sbin", "/sbin")]
    if any(found):
        pytest.skip("mkinitcpio is installed here")
    said = reasons(plan_of([CheckInitramfs("mkinitcpio", UUID)]), tmp_path)
    assert "lsinitcpio is not installed" in said
    (reason,) = preflight(Needs(frozenset({"no-such-program-here"})), (), paths_in(tmp_path))
    assert (reason.code, reason.subject) == ("not-installed", "no-such-program-here")


def test_an_identical_line_and_an_empty_folder_are_accepted(tmp_path: Path) -> None:
    etc = paths_in(tmp_path).of("/etc")
    (etc / "mdadm/mdadm.conf").write_text(f"ARRAY /dev/md/data UUID={UUID}\nARRAY /dev/md/b UUID=f:f:f:f\n")
    (tmp_path / "empty/lost+found").mkdir(parents=True)
    steps: list[Step] = [conf_step(), fstab_step(), Mount(str(tmp_path / "empty"))]
    refuse_impossible(plan_of(steps), paths_in(tmp_path))
    assert wrote(tmp_path) == []


@pytest.mark.parametrize(
    ("conf", "dropped", "told"),
    [
        ("HOOKS=(base udev block filesystems fsck)\n", "", True),
        ("# HOOKS=(mdadm_udev)\nHOOKS=(base udev # mdadm_udev\n block)\n", "", True),
        ("HOOKS=(base udev mdadm_udev filesystems)\n", "", False),
        ('HOOKS="base udev mdadm_udev filesystems"\n', "", False),
        ("HOOKS=(base udev filesystems)\n", "HOOKS+=(mdadm_udev)\n", False),
        ("HOOKS=(base\n  mdadm_udev\n  filesystems)\n", "HOOKS=(base systemd)\n", True),
        ("MODULES=()\n", "", False),
    ],
)
def test_an_arch_initramfs_without_mdadm_is_reported_before_the_first_write(
    tmp_path: Path, conf: str, dropped: str, told: bool
) -> None:
    """The expected result is that of bash for the same files."""
    paths = paths_in(tmp_path)
    (folder := paths.of("/etc/mkinitcpio.conf.d")).mkdir()
    (folder / "10-more.conf").write_text(dropped)
    paths.of("/etc/mkinitcpio.conf").write_text(conf)
    words = run("bash", "-c", '. "$1"; . "$2"; echo ${HOOKS[*]}', "-", folder.parent / "mkinitcpio.conf",
                folder / "10-more.conf").split()  # fmt: skip
    assert (bool(words) and "mdadm_udev" not in words) == told
    assert bool(list(refuse_hooks(RebuildInitramfs("mkinitcpio"), paths))) == told
    assert list(refuse_hooks(RebuildInitramfs("dracut"), paths)) == []


def test_a_second_system_array_does_not_replace_the_list_of_the_first(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = paths.of("/etc/default/esp-copies")
    file.parent.mkdir(parents=True)
    file.write_text('ESP_COPIES="AAAA-1111 AAAA-1112"\n')
    step = EditFile("/etc/default/esp-copies", ('ESP_COPIES="BBBB-1 BBBB-2"',), "ESP_COPIES=", "x")
    needs = needs_of_plan(plan_of([step]), here=True)
    assert preflight(needs, [step], paths) == []  # these drives are gone
    links = paths.of("/dev/disk/by-uuid")
    links.mkdir(parents=True)
    (links / "AAAA-1112").symlink_to("/dev/null")
    (reason,) = preflight(needs, [step], paths)
    assert reason.code == "file-conflict" and "keeps /dev/null, an EFI system partition" in reason.text


@pytest.mark.parametrize(("partition", "refused"), [("nvme1n1p1", False), ("nvme1n10p1", True)])
def test_an_esp_of_a_drive_with_a_longer_name_belongs_to_another_array(
    tmp_path: Path, partition: str, refused: bool
) -> None:
    paths = paths_in(tmp_path)
    for name, size in (("nvme1n1", 64 * MIB), (partition, 0)):
        paths.of(f"/dev/{name}").parent.mkdir(parents=True, exist_ok=True)
        with paths.of(f"/dev/{name}").open("wb") as file:
            file.truncate(size)
    link = paths.of("/dev/disk/by-uuid/AAAA-1111")
    link.parent.mkdir(parents=True)
    link.symlink_to(paths.of(f"/dev/{partition}"))
    copies = paths.of("/etc/default/esp-copies")
    copies.parent.mkdir(parents=True)
    copies.write_text('ESP_COPIES="AAAA-1111"\n')
    edit = EditFile("/etc/default/esp-copies", ('ESP_COPIES="BBBB-1"',), "ESP_COPIES=", "x")
    steps: list[Step] = [member_step(paths, paths.of("/dev/nvme1n1"), esp=True), edit]
    reasons = preflight(needs_of_plan(plan_of(steps), here=True), steps, paths)
    assert any("an EFI system partition of another array" in reason.text for reason in reasons) == refused
