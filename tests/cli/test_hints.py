"""Suggested commands can be typed as printed; and files that are not disks are refused in one sentence."""

import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from aligntool.audit.wording import hints_for_disk
from aligntool.cli import arrays
from aligntool.cli.arrays import find_record
from aligntool.commands import DISK, ByHand, Command, Hint, command, shell_word, typed
from aligntool.errors import Refusal, Refused, Stopped, refuse
from aligntool.linux.lock import lock_disk
from aligntool.linux.system import RECORDS
from aligntool.units import MIB
from tests.by_hand import command_of, type_by_hand
from tests.cli.old_disks import LENGTH, START, make_old_disk
from tests.conftest import attached, run
from tests.mover.loop_mounts import looped, mounted
from tests.run_aligntool import program, run_aligntool
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "debugfs", "e2fsck", "blkid")


def hint_of(refused: subprocess.CompletedProcess[str]) -> str:
    """Return the hint, also when the tests run as root on a machine without sudo."""
    assert refused.returncode == 3, refused.stderr
    return refused.stderr.rpartition("→ ")[2].strip().replace("sudo ", "")


def _repaired(hint: str, image: Path, begin: str, **names: str) -> None:
    """Follow a hint: attach the bytes that it names to a loop device, and repair what is there."""
    place = re.search(r"(\d+) bytes from byte (\d+)", hint)
    assert place and shell_word(str(image)) in hint
    with attached(image, "-o", place[2], "--sizelimit", place[1]) as device:
        words = command_of(hint, begin, PARTITION=device, **names)
        subprocess.run(["sh", "-c", words], check=False, timeout=300, capture_output=True)


@pytest.fixture
def dirty_disk(tmp_path: Path) -> Path:
    """Make a disk with an ext4 that was not unmounted."""
    (tmp_path / "old disks").mkdir()
    image = make_old_disk(tmp_path / "old disks" / "a.img")
    run("debugfs", "-w", "-R", "set_super_value state 0", f"{image}?offset={START}")
    return image


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_a_dirty_file_system_in_an_image_is_repaired_by_hand(dirty_disk: Path) -> None:
    before = dirty_disk.read_bytes()
    hint = hint_of(run_aligntool("plan", "realign", dirty_disk))
    undo = dirty_disk.with_name("undo")
    _repaired(hint, dirty_disk, "e2fsck -f -z", FILE=f"'{undo}' -y")
    assert run_aligntool("plan", "realign", dirty_disk).returncode == 0
    _repaired(hint, dirty_disk, "e2undo", FILE=f"'{undo}'")
    assert dirty_disk.read_bytes() == before


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_a_journal_in_an_image_is_replayed_by_hand(tmp_path: Path) -> None:
    image = make_old_disk(tmp_path / "old disk.img")
    run("debugfs", "-w", "-R", "feature needs_recovery", f"{image}?offset={START}")
    hint = hint_of(run_aligntool("plan", "realign", image))
    _repaired(hint, image, "e2fsck -f -z", FILE=f"{tmp_path}/undo -y")
    assert run_aligntool("plan", "realign", image).returncode == 0


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_the_check_of_an_overlong_file_system_respects_the_end_of_the_partition(tmp_path: Path) -> None:
    image = make_old_disk(tmp_path / "a.img")
    run("sfdisk", "-q", "-N", "1", image, stdin=f",{LENGTH // 512 - 8000}\n")
    hint = hint_of(run_aligntool("plan", "realign", image))
    done = subprocess.run(hint, shell=True, check=False, timeout=300, capture_output=True)
    assert b"the superblock or the partition table is likely to be corrupt" in done.stdout


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_a_question_mark_in_a_name_does_not_mislead_e2fsck(dirty_disk: Path, tmp_path: Path) -> None:
    """Behind the first one it expects options: it would open another file."""
    folder = tmp_path / "old?disks"
    image = (tmp_path / "old disks").rename(folder) / dirty_disk.name
    hint = hint_of(run_aligntool("plan", "realign", image))
    _repaired(hint, image, "e2fsck -f -z", FILE=f"{tmp_path}/undo -y")
    assert "e2fsck -f -n DEVICE" in run_aligntool("plan", "realign", "-v", image, code=0).stdout
    run_aligntool("realign", "--yes", image.name, cwd=folder, code=0)


@pytest.mark.needs_root
@pytest.mark.needs_tools("mkfs.fat", "fsck.fat", "losetup")
def test_a_fat_in_an_image_is_repaired_by_hand(dirty_disk: Path, tmp_path: Path) -> None:
    fat = tmp_path / "fat"
    with fat.open("wb") as file:
        file.truncate(48 * MIB)
    run("mkfs.fat", "-F", "16", fat)
    content = bytearray(fat.read_bytes())
    content[37] |= 1  # BS_Reserved1 of a FAT16: not unmounted
    with dirty_disk.open("r+b") as file:
        file.seek(START)
        file.write(content)
    run("sfdisk", "-q", "--part-type", dirty_disk, "1", "6")
    hint = hint_of(run_aligntool("plan", "realign", dirty_disk))
    assert "with fsck.fat on " in hint
    _repaired(hint, dirty_disk, "fsck.fat -a")
    assert run_aligntool("plan", "realign", dirty_disk).returncode == 0
    assert str(dirty_disk) not in run("losetup", "--list")


@pytest.mark.needs_tools("mkfs.fat", "fsck.fat")
def test_a_mark_that_a_checker_leaves_is_not_to_be_cleared_with_it(dirty_disk: Path, tmp_path: Path) -> None:
    fat = tmp_path / "fat"
    with fat.open("wb") as file:
        file.truncate(48 * MIB)
    run("mkfs.fat", "-F", "16", "-a", "-R", "1", "-f", "1", fat)
    with fat.open("r+b") as file:
        file.seek(512 + 2)
        file.write(b"\xff\xbf")  # errors on the medium: Microsoft's FAT specification, "FAT Volume Initialization"
    run("fsck.fat", "-a", fat)
    with dirty_disk.open("r+b") as file:
        file.seek(START)
        file.write(fat.read_bytes())
    run("sfdisk", "-q", "--part-type", dirty_disk, "1", "6")
    assert "chkdsk /r" in hint_of(run_aligntool("plan", "realign", dirty_disk))


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
@pytest.mark.parametrize("words", [("realign",), ("partition", "--undo"), ("convert", "--sector-size", "4096")])
def test_a_dirty_image_attached_to_a_loop_device_is_to_be_detached_first(
    words: tuple[str, ...], dirty_disk: Path
) -> None:
    """It may be mounted there."""
    with attached(dirty_disk) as node:
        assert hint_of(run_aligntool("plan", *words, dirty_disk)) == f"losetup -d {node}"
    assert "with e2fsck on " in run_aligntool("plan", *words, dirty_disk).stderr


@pytest.mark.parametrize("words", [("plan", "realign"), ("audit",)])
def test_a_result_file_never_replaces_the_disk_that_is_read(words: tuple[str, ...], dirty_disk: Path) -> None:
    before = dirty_disk.read_bytes()
    link = dirty_disk.with_name("a link")
    link.symlink_to(dirty_disk)
    for output in (dirty_disk, link):
        for more in ((), ("--overwrite",)):
            refused = run_aligntool(*words, dirty_disk, "-o", output, *more)
            assert (refused.returncode, "--overwrite" in refused.stderr) == (3, False), refused.stderr
    assert dirty_disk.read_bytes() == before


READ_AS_NOBODY = """
import os, pathlib, sys
from aligntool.raid.record import find_records
os.setuid(65534)
find_records(pathlib.Path(sys.argv[1]))
"""


@pytest.mark.needs_root
def test_unreadable_records_are_not_reported_as_missing(tmp_path: Path) -> None:
    (tmp_path / "arrays").mkdir(mode=0o700)
    words = (sys.executable, "-c", READ_AS_NOBODY, tmp_path)
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "cannot be read: Permission denied" in ended.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx")
@pytest.mark.parametrize("word", ["status", "resume", "rollback"])
def test_a_partition_is_refused_with_the_name_of_its_disk(
    dirty_disk: Path, word: str, loop: Callable[[Path], Path]
) -> None:
    node = loop(dirty_disk)
    run("partx", "-a", node)
    assert hint_of(run_aligntool(word, f"{node}p1")) == f"give {node}"


@pytest.mark.parametrize("words", [("status",), ("resume",), ("rollback",), ("audit",), ("plan", "realign")])
def test_a_name_that_is_too_long_for_a_file_is_refused(words: tuple[str, ...]) -> None:
    if words[0] in {"status", "resume", "rollback"} and Path(RECORDS).exists() and not os.access(RECORDS, os.R_OK):
        pytest.skip(f"only root may read the records of arrays in {RECORDS}, and an array may have any name")
    done = run_aligntool(*words, "x" * 256, code=3)
    assert "File name too long" in done.stderr and "Traceback" not in done.stderr


def test_a_result_file_may_replace_a_file_if_the_target_is_missing(tmp_path: Path) -> None:
    (tmp_path / "old").touch()  # only empty files and aligntool's own are replaced
    for words in (("audit", "x" * 256), ("audit", "--sysroot", "x" * 256), ("report", "x" * 256)):
        done = run_aligntool(*words, "-o", tmp_path / "old", "--overwrite", code=3)
        assert "x" * 256 in done.stderr and "Traceback" not in done.stderr  # Python 3.14 has another reason


def test_an_inaccessible_target_is_refused_if_the_records_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> NoReturn:
        raise Refused("the records cannot be read")

    monkeypatch.setattr(arrays, "find_records", unreadable)
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    assert find_record("/") is None
    with pytest.raises(Refused, match="the records cannot be read"):
        find_record("x" * 256)  # as without permission, Path.exists raises OSError


@sample(8)
@pytest.mark.parametrize("size", [0, 6, 512, 1000, 4096])
@pytest.mark.parametrize("words", [("status",), ("resume",), ("rollback",), ("plan", "realign"), ("realign", "--yes")])
def test_a_file_too_small_for_partitions_is_refused_in_one_sentence(
    tmp_path: Path, words: tuple[str, ...], size: int
) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"x" * size)
    done = run_aligntool(*words, file)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert file.read_bytes() == b"x" * size


def test_a_move_in_an_image_lists_every_step_and_does_not_mention_sleep(tmp_path: Path) -> None:
    image = make_old_disk(tmp_path / "old.img")
    done = run_aligntool("realign", "--yes", image)
    assert done.returncode == 0 and "inhibited" not in done.stderr, done.stderr
    lines = done.stderr.splitlines()
    steps = [line.partition("/")[0] for line in lines if line[:1].isdigit()]
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert len(steps) == int(lines[0].partition("/")[2].split()[0])


@pytest.mark.on_disk
def test_a_demo_prints_its_commands_and_their_output_in_sequence(tmp_path: Path) -> None:
    image = tmp_path / "old.img"
    done = subprocess.run(
        ["sh", "-c", '"$0" -m aligntool demo "$1" 2>&1', sys.executable, image],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    said = [
        done.stdout.find(words) for words in ("$ aligntool audit", "AT101", "$ aligntool plan", "To copy:", "\nSteps")
    ]
    assert said == sorted(said) and -1 not in said


@pytest.mark.parametrize("text", [None, "", "notes", "{}", '{"schema": "aligntool.plan", "version": 99}'])
def test_the_command_suggested_for_an_invalid_plan_file_can_be_typed_verbatim(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "plan.json"
    if text is not None:
        file.write_text(text)
    hint = hint_of(run_aligntool("apply", file))
    # 3: the disks of other tests are present, and one may not be judged
    assert run_aligntool(*shlex.split(hint)[1:]).returncode in (0, 1, 3), hint


CHANGES: list[tuple[str, object]] = [
    ("digest", "0"),
    ("asked", {"goal": {"partitions": 1, "none": 2}}),
    ("asked", {"goal": {"grain": 0}}),
    ("asked", {"sector_size": 0}),
    ("asked", {"physical_sector_size": -4096}),
    ("asked", {"page_size": 0}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_modified_plan_is_refused_with_the_command_to_plan_again(tmp_path: Path, change: tuple[str, object]) -> None:
    (tmp_path / "old disks").mkdir()
    image, file = make_old_disk(tmp_path / "old disks" / "a.img"), tmp_path / "plan.json"
    assert run_aligntool("plan", "realign", image, "-o", file).returncode == 0
    file.write_text(json.dumps(json.loads(file.read_text()) | dict([change])))
    hint = hint_of(run_aligntool("apply", "--yes", file))
    assert str(image) in shlex.split(hint)
    assert run_aligntool(*shlex.split(hint)[1:]).returncode == 0


def test_a_plan_whose_image_is_missing_is_refused_with_what_may_have_happened(tmp_path: Path) -> None:
    image = make_old_disk(tmp_path / "disk.img")
    plan = tmp_path / "plan.json"
    run_aligntool("plan", "realign", image, "-o", plan, code=0)
    image.rename(tmp_path / "moved.img")
    refused = run_aligntool("apply", plan, "--yes", code=3).stderr
    assert f"{image}: No such file or directory" in refused and "aligntool audit" not in refused
    assert f"{plan} is a plan for this path: the image was moved or deleted" in refused


def test_an_outdated_layout_plan_is_refused_with_a_command_for_its_disk(tmp_path: Path) -> None:
    image, file = tmp_path / "empty.img", tmp_path / "plan.json"
    with image.open("wb") as empty:
        empty.truncate(64 * MIB)
    assert run_aligntool("plan", "layout", image, "--part", "rest:linux", "-o", file).returncode == 0
    with image.open("r+b") as empty:
        empty.truncate(65 * MIB)
    hint = hint_of(run_aligntool("apply", "--yes", file))
    assert f"aligntool plan layout {image}" in hint and "DISK" not in hint


def _whole_disk_ext4(image: Path) -> None:
    run("mkfs.ext4", "-q", "-F", image, "32M")


def _ext4_below_an_empty_table(image: Path) -> None:
    run("mkfs.ext4", "-q", "-F", image, "32M")
    run("sfdisk", "-q", "--wipe", "never", image, stdin="label: dos\n")


def _ext4_in_a_partition(image: Path) -> None:
    run("sfdisk", "-q", image, stdin="label: gpt\nstart=2048\n")
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={MIB}", image, "32M")


def _luks_as_a_whole(image: Path) -> None:
    with image.open("r+b") as file:
        file.write(b"LUKS\xba\xbe\x00\x01" + b"aes".ljust(32, b"\0") + b"xts-plain64".ljust(32, b"\0"))


def _half_a_gpt(image: Path) -> None:
    """The first MiB, and with it the primary copy, is gone; the backup copy lists partitions."""
    _ext4_in_a_partition(image)
    with image.open("r+b") as file:
        file.write(bytes(64 * 512))


def _both_copies_corrupt(image: Path) -> None:
    _ext4_in_a_partition(image)
    for at in (1024, image.stat().st_size - 33 * 512):
        with image.open("r+b") as file:
            file.seek(at)
            file.write(b"\xff" * 512)


RECOGNISED = [
    _whole_disk_ext4,
    _ext4_below_an_empty_table,
    _ext4_in_a_partition,
    _luks_as_a_whole,
    _half_a_gpt,
    _both_copies_corrupt,
]


@sample(16)
@pytest.mark.parametrize("make", RECOGNISED)
@pytest.mark.parametrize(
    "words",
    [
        ("realign",),
        ("plan", "realign"),
        ("layout", "--part", "32MiB:linux"),
        ("plan", "layout", "--part", "32MiB:linux"),
        ("status",),
        ("resume",),
        ("rollback",),
        ("audit",),
    ],
    ids=" ".join,
)
def test_a_new_table_is_not_suggested_if_content_is_recognised(
    tmp_path: Path, make: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    make(image)
    done = run_aligntool(*words, image)
    hints = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if "→" in line]
    assert not any("layout" in hint or "--wipe" in hint for hint in hints), hints
    if words[0] == "layout":
        assert done.returncode == 3


def test_a_new_table_is_suggested_for_a_blank_disk(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    hint = hint_of(run_aligntool("realign", image))
    assert shlex.split(hint)[1:3] == ["plan", "layout"]
    assert run_aligntool(*shlex.split(hint)[1:]).returncode == 0


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "unshare")
def test_a_disk_without_a_node_in_dev_is_refused(dirty_disk: Path, loop: Callable[[Path], Path]) -> None:
    """The kernel lists it in /sys/block; udev may be late, or /dev may be that of a container."""
    node = loop(dirty_disk)
    words = " ".join(program("plan", "realign", node.name))
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none /dev && mknod /dev/null c 1 3 && {words}"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 3 and str(node) in done.stderr and "Traceback" not in done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "sfdisk")
def test_a_file_in_dev_shm_is_not_treated_as_a_device() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        image = Path(folder, "disk.img")
        run("truncate", "-s", "64M", image)
        run("sfdisk", "-q", image, stdin="label: dos\nunit: sectors\nstart=63, size=2000\n")
        shown = run_aligntool("audit", image).stdout
        assert f"aligntool plan realign {image}" in shown and "sudo" not in shown
        with attached(image) as device:
            [disk] = json.loads(run_aligntool("audit", "--json", device).stdout)["disks"]
    assert disk["stands_on"] == [f"file {image}"]


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "mount")
def test_an_image_on_a_read_only_file_system_needs_a_writable_mount() -> None:
    with mounted(Path("none"), "mount", "-t", "tmpfs") as folder:
        image = make_old_disk(folder / "old.img")
        run("mount", "-o", "remount,ro", folder)
        with pytest.raises(Refused, match="Read-only file system") as refused, lock_disk(str(image)):
            pass
        assert refused.value.hint.startswith("mount its file system for writing again")


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mkfs.ext4", "mount", "chattr")
def test_the_command_that_makes_an_immutable_image_writable_is_named(tmp_path: Path) -> None:
    (around := tmp_path / "around.img").write_bytes(bytes(64 * MIB))
    run("mkfs.ext4", "-q", around)
    with looped(around) as device, mounted(device, "mount") as folder:
        image = make_old_disk(folder / "old.img")
        run("chattr", "+i", image)
        try:
            hint = hint_of(run_aligntool("plan", "realign", image, code=3))
            assert "x0a" not in run_aligntool("audit", image, code=1).stdout, "a finding has one line for it"
        finally:
            type_by_hand(hint, "chattr -i -a", FILE=image)
        run_aligntool("plan", "realign", image, code=0)


def test_each_reason_of_a_refusal_names_the_disk() -> None:
    look = typed("od -A d -c -j", 5, "-N", 7, DISK)
    reasons = (Refusal("a", "x", "a", command("audit")), Refusal("b", "x", "b", Hint("see ", look, "; then again")))
    full = "aligntool audit 'a b.img'\nsee od -A d -c -j 5 -N 7 'a b.img'; then again"
    with pytest.raises(Refused) as refused, hints_for_disk("a b.img"):
        refuse(reasons)
    assert refused.value.hint == full == "\n".join(reason.hint for reason in refused.value.refusals)
    with pytest.raises(Stopped) as stopped, hints_for_disk("/dev/sda"):
        raise Stopped("a", hint=reasons[1].hint)
    assert stopped.value.hint == "see sudo od -A d -c -j 5 -N 7 /dev/sda; then again"


@pytest.mark.parametrize("name", ["x DISK;touch it;#.img", "DISK.img", "a 'DISK' b", "DISK"])
def test_a_disk_in_the_name_of_a_file_is_not_replaced_in_a_hint(name: str) -> None:
    """The name would end its own quotation marks; and a hint may pass through several callers that know the disk."""
    hint = Hint(command("resume"), "\n", typed("sgdisk -v", DISK, sudo=False), f"\nls -l {shell_word(name)}")
    with pytest.raises(Refused) as refused, hints_for_disk("y.img"), hints_for_disk(name):
        raise Refused("a", hint=hint)
    expected = [["aligntool", "resume", name], ["sgdisk", "-v", name], ["ls", "-l", name]]
    assert [shlex.split(line) for line in refused.value.hint.split("\n")] == expected


def test_another_program_gets_no_virtual_disk_but_aligntool_does() -> None:
    erase = Command("wipefs", (DISK,), section=ByHand.SIGNATURES)
    with pytest.raises(Refused) as refused, hints_for_disk("a.qcow2", "qemu-img convert a.qcow2 new.img"):
        raise Refused("a", hint=pickle.loads(pickle.dumps(Hint(erase, "\n", command("audit")))))  # as from a child
    assert refused.value.hint == "make it a raw image first: qemu-img convert a.qcow2 new.img\naligntool audit a.qcow2"


@pytest.mark.parametrize(
    ("name", "options", "full"),
    [
        ("plan realign", ("--shrink",), "aligntool plan realign a.img -p 3 --grain 4KiB --shrink"),
        ("partition", ("--grain 1MiB",), "aligntool partition a.img -p 3 --grain 1MiB"),
        ("plan realign", (), "aligntool plan realign a.img"),
        ("convert", ("--journal FILE",), "fill in FILE: aligntool convert a.img --journal FILE"),
    ],
)
def test_a_hint_to_plan_again_keeps_the_options_of_the_user(name: str, options: tuple[str, ...], full: str) -> None:
    with pytest.raises(Refused) as refused, hints_for_disk("a.img", typed=("-p 3", "--grain 4KiB")):
        raise Refused("a", hint=command(name, "a.img", *options))
    assert refused.value.hint == full


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
@pytest.mark.parametrize(
    "name", ["", "a'b", "\\", "'\\", r"\\''\\", r"x\';echo it;#'", "a=b", "=ls", '$(echo)`echo`!"&~*']
)
def test_every_shell_reads_a_quoted_name_as_it_is(shell: str, name: str) -> None:
    """Within quotation marks fish takes a backslash for an escape, other shells do not."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert run(shell, "-c", f"printf %s {shell_word(name)}") == name


def test_a_traceback_has_no_control_characters() -> None:
    """A message in it may have a name from a disk."""
    fail = "def fail(**_): raise ValueError('a \\x1b]0;b\\x07\\u202e')"
    code = f"from aligntool.cli import app\n{fail}\napp.app = fail\napp.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 5 and "ValueError: a \\x1b]0;b\\x07\\u202e\n" in done.stderr
    assert all(char.isprintable() or char == "\n" for char in done.stderr)


def test_a_file_that_cannot_be_an_image_gets_a_next_command(tmp_path: Path) -> None:
    path = tmp_path / "cut.img"
    for content in (b"", bytes(1000), b"text " * 1024):
        path.write_bytes(content)
        for words in (("audit",), ("plan", "realign")):
            refused = run_aligntool(*words, path, code=3).stderr
            assert content == b"" or f"→ file {path}" in refused
            assert "→ " in refused
