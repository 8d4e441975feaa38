"""`aligntool raid plan` for drives that are not here: of a captured machine, and image files in their place."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.cli.arrays import since_planned
from aligntool.commands import typed
from aligntool.errors import Refusal
from aligntool.linux.look import look
from aligntool.linux.snapshot import Masks, collect, mask_file
from aligntool.linux.sysfs import Tree
from aligntool.linux.system import find_distribution
from tests.conftest import run
from tests.raid.test_preflight import needs_rebuild
from tests.run_aligntool import run_aligntool
from tests.schemas import check

MACHINES = Path(__file__).parents[1] / "audit/machines"
ARRAYS = MACHINES / "md-on-misaligned-partitions.tar.xz"
SWITCH = MACHINES / "nvme-behind-switch.tar.xz"
GIB = 1 << 30
RAID1 = ("raid", "plan", "--level", "1", "--fs", "ext4")
WIPED = ("--spare-end", "1MiB", "--wipe", "nvme0n1", "--wipe", "nvme2n1", "nvme0n1", "nvme2n1")


def unpacked(machine: Path, folder: Path, **files: str) -> Path:
    """Unpack a captured machine, and add files of its system."""
    folder.mkdir(parents=True)
    run("tar", "-xf", machine, "-C", folder)
    for name, text in files.items():
        file = folder / "etc" / name.replace("_", "-" if name == "os_release" else ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder


def words(text: str) -> str:
    return " ".join(text.split())


def block(text: str) -> list[str]:
    """Return the sentences of the block on what was not checked."""
    (found,) = re.findall(r"^Not checked here\n((?:  .*\n)+)", text, re.MULTILINE)
    return [words(each) for each in re.split(r"^  - ", found, flags=re.MULTILINE)[1:]]


def test_a_captured_machine_gets_a_plan_that_says_once_what_was_not_checked() -> None:
    done = run_aligntool(*RAID1, "--system", "debian", "--sysroot", SWITCH, *WIPED, code=0)
    said = block(done.stdout)
    assert said[0].startswith("what is on the drives")
    assert [each for each in said if "health" in each] == ["the health of nvme0n1, nvme2n1"]
    assert sum("they are not known to be empty" in each for each in said) == 1
    assert "no data seen" not in done.stdout and done.stdout.count("not read\n") == 2
    assert "health not read" not in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("→ on the captured machine: sudo aligntool raid create --level 1")
    assert "--sysroot" not in last and last.endswith(" --system debian --spare-end 1MiB DRIVE DRIVE")
    assert "nvme0n1" not in last and "--wipe" not in last  # those of other drives, after another boot
    assert any(each.startswith("DRIVE stands for each drive's name on the captured machine") for each in said)
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]


def test_a_plan_of_a_capture_says_once_that_its_uuids_are_not_those_of_another_run() -> None:
    done = run_aligntool(*RAID1, "--system", "debian", "--sysroot", SWITCH, *WIPED, code=0)
    assert [each for each in block(done.stdout) if "UUID" in each] == [
        "UUIDs: `aligntool raid create` makes new ones, also for the kernel command line"
    ]


@pytest.mark.parametrize("given", [(), ("--system", "arch")])
def test_a_plan_for_image_files_names_the_system_that_it_assumes(
    sparse: Callable[..., Path], given: tuple[str, ...]
) -> None:
    if not given and find_distribution() is None:
        pytest.skip("this machine's system is not known")
    images = sparse(GIB, "a.img"), sparse(GIB, "b.img")
    said = block(run_aligntool(*RAID1, *given, *images, code=0).stdout)
    assert sum(": that of this machine; --system for another)" in each for each in said) == (not given)
    assert [each for each in said if "UUID" in each] == [
        "UUIDs: `aligntool raid create` makes new ones, also for the kernel command line"
    ]


def test_the_saved_plan_of_a_captured_machine_has_its_facts(tmp_path: Path) -> None:
    """Model, size and sectors as nvme-cli listed them on it: tests/audit/machines/README.md."""
    kept = tmp_path / "plan.json"
    run_aligntool(*RAID1, "--system", "debian", "--sysroot", SWITCH, *WIPED, "-o", kept, code=0)
    document = json.loads(kept.read_text())
    check(document)
    plan = document["plan"]
    members = [step for step in plan["steps"] if step["step"] == "MakeMember"]
    assert [(step["disk"]["path"], step["disk"]["model"], step["disk"]["size"]) for step in members] == [
        ("/dev/nvme0n1", "QEMU NVMe Ctrl", 300 << 20), ("/dev/nvme2n1", "QEMU NVMe Ctrl", 300 << 20)
    ]  # fmt: skip
    assert document["wanted"]["made_from"] == "capture" and plan["unchecked"]
    assert any("format" in note for note in plan["notes"]) and any("link" in note for note in plan["notes"])
    assert (
        json.loads(run_aligntool(*RAID1, "--system", "debian", "--json", "--sysroot", SWITCH, *WIPED, code=0).stdout)[
            "wanted"
        ].keys()
        == document["wanted"].keys()
    )


def test_what_a_capture_shows_on_a_drive_refuses_it() -> None:
    done = run_aligntool(*RAID1, "--system", "debian", "--sysroot", ARRAYS, "vda", "vdi", code=3)
    assert "vda1 is in use by md0" in done.stderr and "vdi is not empty: ext4" in done.stderr
    hints = [line for line in done.stderr.splitlines() if "sudo" in line]
    assert hints and all(line.startswith("  → on the captured machine: sudo ") for line in hints)


def test_an_array_on_the_drives_of_a_captured_machine_is_named() -> None:
    done = run_aligntool(*RAID1, "--system", "debian", "--sysroot", ARRAYS, "vda3", "vdb3", "vdc3", code=3)
    assert "/dev/md2 exists on these drives" in done.stderr and "--stop" not in done.stderr
    hint = done.stderr.splitlines()[-1].strip(" →")
    assert "md2: raid5" in run_aligntool(*shlex.split(hint)[1:], code=0).stdout


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("vda", "nope"), "nope is not in the captured tree"),
        (("--lba-size", "4096", "vda", "vdb"), "neither whether a drive is empty"),
        (("--wipe", "nope", "vda", "vdb"), "nope is not in the captured tree"),
    ],
)
def test_what_a_capture_cannot_answer_is_refused(more: tuple[str, ...], said: str) -> None:
    done = run_aligntool(*RAID1, "--system", "debian", "--sysroot", ARRAYS, *more, code=3)
    assert said in done.stderr and done.stdout == ""


def test_files_of_a_captured_system_refuse_a_name_and_a_mount_point(tmp_path: Path) -> None:
    line = "ARRAY /dev/md/data UUID=11111111:22222222:33333333:44444444\n"
    files = {"os_release": "ID=debian\n", "mdadm_conf": line, "fstab": "UUID=aa /srv ext4 defaults 0 0\n"}
    root = unpacked(SWITCH, tmp_path / "machine", **files)
    (root / "etc/mdadm").mkdir()
    (root / "etc/mdadm.conf").rename(root / "etc/mdadm/mdadm.conf")
    plan = (*RAID1, "--sysroot", root)
    done = run_aligntool(*plan, "--mount", "/srv", *WIPED, code=3)
    assert "gives the name /dev/md/data to another array" in done.stderr
    assert "/etc/fstab already mounts UUID=aa at /srv" in done.stderr
    (other,) = re.findall(r"--mount (/srv/\S+)$", done.stderr, re.MULTILINE)
    assert run_aligntool(*plan, "--name", "another", "--mount", other, *WIPED).returncode == 0


def test_the_system_of_a_capture_is_its_own(tmp_path: Path) -> None:
    done = run_aligntool(*RAID1, "--sysroot", SWITCH, *WIPED, code=3)
    assert "the family of the captured system is unknown" in done.stderr
    family = "fedora" if find_distribution() != "fedora" else "arch"
    root = unpacked(SWITCH, tmp_path / "machine", os_release=f"ID={family}\n")
    plan = json.loads(run_aligntool(*RAID1, "--json", "--sysroot", root, *WIPED, code=0).stdout)
    assert plan["wanted"]["goal"]["system"] == family


def test_links_of_a_captured_machine_lead_to_its_drives(tmp_path: Path) -> None:
    root = unpacked(SWITCH, tmp_path / "machine", os_release="ID=debian\n")
    for disk, number in (("nvme0n1", 0), ("nvme2n1", 2)):
        record = root / "run/udev/data" / f"b{(root / 'sys/block' / disk / 'dev').read_text().strip()}"
        with record.open("a") as file:
            file.write(f"S:disk/by-id/nvme-a{number}\nS:disk/by-id/nvme-b{number}\n")
    names = [f"/dev/disk/by-id/nvme-{which}{number}" for number in (0, 2) for which in "ab"]
    done = run_aligntool(*RAID1, "--json", "--sysroot", root, *WIPED[:6], *names, code=0)
    document = json.loads(done.stdout)
    assert document["wanted"]["drives"] == [names[0], names[2]]
    assert [step["disk"]["path"] for step in document["plan"]["steps"][:2]] == ["/dev/nvme0n1", "/dev/nvme2n1"]
    assert done.stderr.count("it counts once") == 2


def test_the_plan_of_another_machine_is_refused_in_one_sentence(tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    run_aligntool(*RAID1, "--system", "debian", "--sysroot", SWITCH, *WIPED, "-o", kept, code=0)
    done = run_aligntool("apply", "--yes", kept, code=3)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 2
    assert "the plan is for drives that are not on this machine: QEMU NVMe Ctrl, serial " in done.stderr


@pytest.mark.parametrize("size", [512, 4096])
def test_image_files_stand_for_drives_of_their_size(sparse: Callable[..., Path], size: int) -> None:
    """The table ends where sgdisk has it: 33 sectors of 512 bytes, 5 of 4096 (UEFI, 5.3)."""
    images = sparse(3 * GIB, "a.img"), sparse(2 * GIB, "b.img")
    plan = (*RAID1, "--system", "debian", "--spare-end", "1MiB", "--sector-size", str(size), *images)
    document = json.loads(run_aligntool(*plan, "--json", code=0).stdout)
    check(document)
    members = [step for step in document["plan"]["steps"] if step["step"] == "MakeMember"]
    assert [step["disk"]["size"] for step in members] == [3 * GIB, 2 * GIB]
    assert {step["disk"]["sector_size"] for step in members} == {size}
    made = next(step for step in document["plan"]["steps"] if step["step"] == "MakeArray")
    assert made["level"] == "raid1" and 1 * GIB < document["plan"]["disk"]["size"] < 2 * GIB
    text = run_aligntool(*plan, code=0).stdout
    assert "the drives that these files stand for" in block(text)[0]
    there = "raid create --level 1 --fs ext4 --system debian --spare-end 1MiB DRIVE DRIVE"
    assert text.splitlines()[-1] == f"→ with the drives themselves: sudo aligntool {there}"


def test_a_plan_of_image_files_says_that_sectors_are_taken_as_512_bytes(sparse: Callable[..., Path]) -> None:
    images = sparse(GIB, "a.img"), sparse(GIB, "b.img")
    assert any("512 bytes are assumed" in each for each in block(run_aligntool(*RAID1, *images).stdout))
    said = block(run_aligntool(*RAID1, "--sector-size", "4096", *images).stdout)
    assert said and not any("assumed" in each for each in said)


def test_other_blocks_of_image_files_are_planned_with_sector_size(sparse: Callable[..., Path]) -> None:
    images = [sparse(GIB, name) for name in ("a.img", "b.img")]
    refused = run_aligntool(*RAID1, "--lba-size", "4096", *images, code=3).stderr
    (hint,) = re.findall(r"--sector-size \d+", refused)
    assert "replace it" not in refused
    assert "4096-byte sectors" in run_aligntool(*RAID1, *hint.split(), *images, code=0).stdout


def test_one_drive_is_reported_to_have_no_effect_on_several(sparse: Callable[..., Path]) -> None:
    images = [sparse(GIB, name) for name in ("a.img", "b.img")]
    words = ("raid", "plan", "--level", "0", "--one-drive")
    assert "--one-drive has no effect here: 2 drives are named" in run_aligntool(*words, *images, code=0).stderr
    assert "--one-drive" not in run_aligntool(*words, images[0], code=0).stderr


def test_an_array_is_never_made_of_image_files(sparse: Callable[..., Path], tmp_path: Path) -> None:
    images = sparse(GIB, "a.img"), sparse(GIB, "b.img")
    kept = tmp_path / "plan.json"
    run_aligntool(*RAID1, *images, "-o", kept, code=0)
    refused = run_aligntool("apply", "--yes", kept, code=3)
    assert refused.stdout == "" and "the plan is for image files in place of drives" in refused.stderr
    for more in (("--yes",), ("--dry-run",)):
        done = run_aligntool("raid", "create", "--level", "1", *more, *images, code=3)
        assert done.stderr.count("md works on block devices") == 2
    assert all(run("wipefs", "--no-act", "--parsable", image) == "" for image in images)


def test_a_plan_never_replaces_the_image_that_it_is_for(sparse: Callable[..., Path]) -> None:
    images = sparse(GIB, "a.img"), sparse(GIB, "b.img")
    images[1].write_bytes(b'{"schema": "aligntool.plan"}'.ljust(1 << 20) + bytes(GIB - (1 << 20)))
    done = run_aligntool(*RAID1, "--wipe", images[1], *images, "--overwrite", "-o", images[1])
    assert done.returncode == 3
    assert images[1].stat().st_size == GIB


def test_content_of_an_image_file_refuses_it_like_that_of_a_drive(sparse: Callable[..., Path]) -> None:
    images = sparse(GIB, "a.img"), sparse(GIB, "b.img")
    run("mkfs.ext4", "-q", images[1])
    done = run_aligntool(*RAID1, *images, code=3)
    assert f"{images[1]} is not empty: ext4" in done.stderr
    assert run_aligntool(*RAID1, "--wipe", images[1], *images).returncode == 0


def test_a_saved_plan_for_image_files_ends_with_its_file_which_apply_refuses(
    sparse: Callable[..., Path], tmp_path: Path
) -> None:
    images, kept = (sparse(GIB, "a.img"), sparse(GIB, "b.img")), tmp_path / "plan.json"
    plan = (*RAID1, "--system", "arch", *images)
    assert "is written" not in run_aligntool(*plan, code=0).stdout
    said = words(run_aligntool(*plan, "-o", kept, code=0).stdout)
    assert f"{kept} is written; `aligntool apply` refuses it: image files stand for its drives → " in said
    assert said.endswith("raid create --level 1 --fs ext4 --system arch DRIVE DRIVE")
    assert "image files in place of drives" in run_aligntool("apply", "--yes", kept, code=3).stderr
    assert "is written" not in run_aligntool(*plan, "--json", "-o", kept, "--overwrite", code=0).stdout


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_saved_plan_of_a_capture_with_serials_ends_with_where_it_is_applied(tmp_path: Path, form: tuple[str]) -> None:
    root = unpacked(SWITCH, tmp_path / "machine")
    (root / "aligntool" / "manifest.json").write_text('{"version": 1, "serials": true}')
    kept = tmp_path / "plan.json"
    done = run_aligntool(*RAID1, "--system", "debian", *form, "--sysroot", root, *WIPED, "-o", kept, code=0)
    last = (done.stderr if form else done.stdout).rstrip().split("\n")[-1]
    assert last.strip() == f"→ on the captured machine, with a copy of {kept}: sudo aligntool apply {kept}"


@pytest.mark.parametrize("serials", [False, True])
def test_a_saved_plan_that_no_machine_applies_says_why_and_ends_with_create(tmp_path: Path, *, serials: bool) -> None:
    """Drives that report no serial number are not told from others, also in a capture with serial numbers."""
    root = unpacked(SWITCH, tmp_path / "machine")
    (root / "aligntool" / "manifest.json").write_text(json.dumps({"version": 1, "serials": serials}))
    for name in ("serial", "wwid"):
        for file in (*root.glob(f"sys/**/{name}"), *root.glob(f"sys/**/device/{name}")):
            file.write_text("\n")
    for file in root.glob("run/udev/data/*"):
        file.write_text("".join(line for line in file.open() if "SERIAL" not in line and "WWN" not in line))
    kept = tmp_path / "plan.json"
    plan = (*RAID1, "--system", "debian", f"--sysroot={root}", *WIPED)
    saved = run_aligntool(*plan, "-o", kept, code=0).stdout
    shown = run_aligntool(*plan, code=0).stdout
    words_there = (*RAID1[2:], "--system debian", *WIPED[:2], "DRIVE", "DRIVE")
    made = f"→ on the captured machine: sudo aligntool raid create {' '.join(words_there)}"
    assert saved.splitlines()[-1] == shown.splitlines()[-1] == made
    why = "/dev/nvme0n1, /dev/nvme2n1 report no serial number" if serials else "the capture has no serial numbers"
    assert f"{kept} is written; `aligntool apply` refuses it on every machine: {why}" in words(saved)
    assert "saved plan" not in shown and "is written" not in shown


def test_sector_sizes_are_only_given_for_image_files() -> None:
    done = run_aligntool(*RAID1, "--sector-size", "4096", "--sysroot", SWITCH, *WIPED)
    assert done.returncode == 2 and "for image files" in done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mdadm", "blkid", "mkfs.ext4")
@pytest.mark.skipif(find_distribution() is None, reason="whose files make an array permanent is not known here")
@needs_rebuild
def test_a_capture_of_this_machine_gives_the_plan_that_is_made_here(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    """Steps, notes and goal are equal but for the UUIDs, and a change of a drive since refuses the plan."""
    images = sparse(GIB, "a.img"), sparse(GIB, "b.img")
    drives = [loop(image) for image in images]
    capture, kept = tmp_path / "machine.tar.xz", tmp_path / "plan.json"
    run_aligntool("snapshot", "--serials", "-o", capture, code=0)
    run_aligntool(*RAID1, "--sysroot", capture, *drives, "-o", kept, code=0)
    theirs = json.loads(kept.read_text())
    ours = json.loads(run_aligntool(*RAID1, "--json", *drives, code=0).stdout)
    assert _without_uuids(theirs["plan"]["steps"]) == _without_uuids(ours["plan"]["steps"])
    assert theirs["plan"]["notes"] == ours["plan"]["notes"]
    assert "Not checked here" in run_aligntool(*RAID1, "--sysroot", capture, *drives, code=0).stdout
    other = "fedora" if find_distribution() != "fedora" else "arch"
    shown = run_aligntool(*RAID1, "--sysroot", capture, "--system", other, *drives, "-o", tmp_path / "b.json", code=0)
    assert shown.stdout.splitlines()[-1].startswith("→ on the captured machine: sudo aligntool raid create --level 1")
    assert "of the same size, so `aligntool apply` refuses the saved plan" in words(shown.stdout)
    refused = run_aligntool("apply", "--yes", tmp_path / "b.json", code=3)
    assert f"make a new plan: --system {find_distribution()}" in refused.stderr and refused.stdout == ""
    refused = run_aligntool("apply", "--yes", kept, code=3)
    unknown = f"{drives[0]}, {drives[1]} report no serial number: nothing distinguishes them from other drives"
    assert f"the plan was made from a capture, and {unknown} of the same size" in words(refused.stderr)
    assert "make a new plan on the machine itself" in words(refused.stderr) and refused.stdout == ""


def test_a_saved_plan_keeps_commands_and_asks_for_a_new_plan_instead_of_options() -> None:
    commands = ("lsblk -d --json", "if it is not needed: sudo umount /srv/a--b", typed("mdadm --detail", "/dev/md0"))
    hints = (*commands, "name that drive once more, with --wipe", "omit --chunk")
    reason = since_planned(Refusal("other", "sda", "text", "\n".join(hints)), seen=False)
    assert reason.hint.split("\n") == [*commands, "make a new plan with the command that made this one"]


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mdadm", "blkid", "mkfs.ext4")
@needs_rebuild
def test_content_that_appeared_since_a_plan_asks_for_a_new_plan(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    drives = [loop(sparse(GIB, name)) for name in ("a.img", "b.img")]
    kept = tmp_path / "plan.json"
    shown = run_aligntool(*RAID1, *drives, "-o", kept, code=0)
    unknown = f"{drives[0]}, {drives[1]} report no serial number: nothing distinguishes them from other drives"
    assert unknown in words(shown.stdout)
    waits = run_aligntool("apply", kept, stdin="")
    assert waits.returncode == 3 and "confirm" in waits.stderr
    assert unknown in words(waits.stdout)
    run("mkfs.ext4", "-q", drives[1])
    changed = run_aligntool("apply", "--yes", kept, code=3)
    assert f"the content of {drives[1].name} has changed since the plan was made" in words(changed.stderr)
    assert "make a new plan with the command that made this one" in words(changed.stderr)
    assert "--wipe" not in changed.stderr and changed.stdout == ""


def _without_uuids(steps: object) -> str:
    return re.sub(r"[0-9a-f]{8}([-:][0-9a-f]{4,8}){3,4}([0-9a-f]{4})?", "UUID", json.dumps(steps))


def test_a_snapshot_without_an_array_has_what_a_plan_needs(tmp_path: Path) -> None:
    files = {"os_release": 'ID=debian\nNAME="Alice"\n', "fstab": "UUID=0a-0b /home/alice ext4 user=alice 0 1\n"}
    root = unpacked(SWITCH, tmp_path / "machine", **files)
    entries = {entry.path: entry.content for entry in collect(Tree(str(root)), serials=False)}
    assert entries["etc/os-release"] == b"ID=debian\n"
    assert entries["etc/fstab"].startswith(b"UUID=masked") and b"alice" not in entries["etc/fstab"]
    assert not [path for path in entries if path.startswith("aligntool/initramfs")]
    assert json.loads(entries["aligntool/manifest.json"])["serials"] is False


def test_the_distribution_of_a_debian_with_dracut_is_kept_by_a_capture(tmp_path: Path) -> None:
    assert mask_file(Masks(), "/usr/bin/dracut", b"#!/bin/bash\n") == b""
    root = unpacked(ARRAYS, tmp_path / "machine", os_release="ID=debian\n")
    system = look((), sysroot=str(root)).system
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/dracut").touch()
    with_dracut = look((), sysroot=str(root)).system
    assert system and with_dracut
    assert (system.family, with_dracut.family) == ("debian", "debian-dracut")
