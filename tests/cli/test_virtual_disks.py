"""Virtual disks are judged by their content, and an image cannot make QEMU open another file or pass for another
format.

The images are made by qemu-img; each verdict is compared with the audit of the raw file that the image was made from.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aligntool.api import apply, plan_realign
from aligntool.change import Event, StepDone
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Inventory
from aligntool.linux.look import look
from aligntool.linux.targets import UserLimits, find_virtual, read_image
from aligntool.linux.virtual import show_disks
from aligntool.units import MIB
from tests.conftest import digest, find_tool, run
from tests.linux.test_look import as_nobody
from tests.mover.loop_mounts import looped
from tests.run_aligntool import program, run_aligntool

pytestmark = pytest.mark.needs_tools("qemu-img", "qemu-storage-daemon", "unshare", "setpriv", "sfdisk", "mkfs.ext4")
START = 35 * 512
CREATED = {"qcow2": (), "vmdk": (), "vdi": (), "vhdx": (), "vhd": ("-o", "force_size")}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Make a GPT whose only partition is off every grid."""
    tmp_path.chmod(0o755)
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    run("sfdisk", "-q", path, stdin="label: gpt\nfirst-lba: 34\nstart=35, size=30000\n")
    run("mkfs.ext4", "-q", "-E", f"offset={START}", path, "15000k")
    return path


def made(raw: Path, kind: str, *options: str) -> Path:
    path = raw.with_suffix(f".{kind}")
    driver = "vpc" if kind == "vhd" else kind
    run("qemu-img", "convert", "-f", "raw", "-O", driver, *CREATED.get(kind, ()), *options, raw, path)
    return path


def audited(path: Path) -> dict[str, Any]:
    """Return everything but the name and the time."""
    done = run_aligntool("audit", "--json", path, code=1)
    document: dict[str, Any] = json.loads(done.stdout.replace(str(path), "DISK"))
    return document | {"date": None}


@contextmanager
def in_use(image: Path) -> Iterator[None]:
    """Hold the image open like a virtual machine that runs from it."""
    ready = image.with_suffix(".pid")
    daemon = subprocess.Popen(
        [find_tool("qemu-storage-daemon") or "", "--nbd-server", f"addr.type=unix,addr.path={image}.socket",
         "--blockdev", f"driver=file,node-name=file,filename={image}",
         "--blockdev", "driver=qcow2,node-name=disk,file=file",
         "--export", "type=nbd,id=export,node-name=disk,writable=on", "--pidfile", str(ready)],
    )  # fmt: skip
    try:
        while not ready.exists():
            assert daemon.poll() is None
            time.sleep(0.01)
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def test_each_format_has_the_same_audit_as_the_raw_image(raw: Path) -> None:
    expected = audited(raw)
    assert expected["disks"][0]["partitions"]
    for kind in CREATED:
        assert audited(made(raw, kind)) == expected, kind


def test_the_footer_of_a_fixed_vhd_is_not_part_of_the_disk(raw: Path) -> None:
    expected = audited(raw)
    with_bytes(raw, 60, b"\0\0\0\4")  # where a VHD with its footer in front has its type
    image = made(raw, "vhd", "-o", "subformat=fixed")
    before = image.read_bytes()
    assert before[-512:].startswith(b"conectix") and audited(image) == expected
    assert "of virtual disks only qcow2 can" in run_aligntool("partition", "--yes", image, code=3).stderr
    assert image.read_bytes() == before


@pytest.mark.needs_tools("sfdisk")
def test_an_empty_qcow2_gets_a_table_that_sfdisk_reads(tmp_path: Path) -> None:
    image, plan, moved = tmp_path / "empty.qcow2", tmp_path / "plan.json", tmp_path / "disk.img"
    run("qemu-img", "create", "-q", "-f", "qcow2", image, "64M")
    words = (image, "--part", "20MiB:esp", "--part", "rest:linux")
    before = image.read_bytes()
    run_aligntool("layout", *words, "--dry-run", code=0)
    run_aligntool("plan", "layout", *words, "-o", plan, code=0)
    assert image.read_bytes() == before
    run_aligntool("apply", "--yes", plan, code=0)
    assert "No errors" in run("qemu-img", "check", image)
    run("qemu-img", "convert", "-O", "raw", image, moved)
    parts = json.loads(run("sfdisk", "--json", moved))["partitiontable"]["partitions"]
    assert [(part["start"], part["size"]) for part in parts] == [(2048, 40960), (43008, 86016)]
    assert "is not empty" in run_aligntool("layout", "--yes", image, "--part", "rest:linux", code=3).stderr


@pytest.mark.needs_tools("xz", "gzip", "zstd")
def test_a_compressed_image_has_the_same_audit_as_the_raw_image(raw: Path) -> None:
    expected = audited(raw)
    for tool in ("xz", "gzip", "zstd"):
        packed = raw.with_suffix(f".img.{tool}")
        run("sh", "-c", f"{tool} -c {raw} > {packed}")
        assert audited(packed) == expected, tool


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder)
    yield folder
    run("umount", folder)


@pytest.mark.needs_root
def test_unpacking_stops_before_the_file_system_is_full(tmp_path: Path, small: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"x" * 100 * MIB)
    run("xz", "-1", image)
    done = run_aligntool("audit", f"{image}.xz", code=3, env={"TMPDIR": str(small)})
    assert "unpacks to more than there is space for" in done.stderr
    assert "Traceback" not in done.stderr
    left = os.statvfs(small)
    assert left.f_bavail == left.f_blocks, "the temporary file is removed"


def test_an_audit_leaves_no_mount_and_does_not_change_the_image(raw: Path) -> None:
    image = made(raw, "qcow2")
    before = digest(image)
    run_aligntool("plan", "realign", image, code=0)
    run_aligntool("report", image, "-o", raw.with_suffix(".html"), code=0)
    assert str(image) not in Path("/proc/self/mounts").read_text()
    assert digest(image) == before
    with in_use(image):  # which takes its lock
        pass


def test_a_name_with_a_misleading_suffix_is_reported_with_the_actual_format(raw: Path) -> None:
    image = made(raw, "qcow2").rename(raw.with_name("other.img"))
    done = run_aligntool("audit", image, code=1)
    assert done.stderr.startswith(f"aligntool: {image} has the signature of qcow2")


def test_an_image_in_use_is_read_with_a_note_and_not_written_to(raw: Path) -> None:
    image = made(raw, "qcow2")
    with in_use(image):
        assert "in use by another program" in run_aligntool("audit", image, code=1).stderr
        refused = run_aligntool("realign", "--yes", image, code=3)
    assert "in use by another program" in refused.stderr and f"fuser -v {image}" in refused.stderr


def test_an_image_behind_a_running_overlay_is_in_use(raw: Path) -> None:
    image, overlay = made(raw, "qcow2"), raw.with_name("overlay.qcow2")
    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", image, "-F", "qcow2", overlay)
    with in_use(overlay):
        refused = run_aligntool("realign", "--yes", image, code=3)
    assert "is open in another program: qemu-storage-da" in refused.stderr and f"fuser -v {image}" in refused.stderr


def test_an_image_with_blocks_that_qemu_does_not_support_is_not_in_use(raw: Path) -> None:
    image = with_bytes(made(raw, "vdi"), 0x178, b"\0\0\x20\0")
    refused = run_aligntool("convert", image, "--sector-size", "4096", "-o", raw.with_name("new.img"), "--yes", code=3)
    assert "block size 2097152 is not 1048576" in refused.stderr and "in use" not in refused.stderr


def test_a_copy_is_not_made_while_a_machine_writes_to_the_source(raw: Path, tmp_path: Path) -> None:
    raw.write_bytes(bytes(64 * MIB))
    run("sfdisk", "-q", raw, stdin="label: gpt\nstart=2048, size=30720\n")
    run("mkfs.ext4", "-q", "-b", "4096", "-E", f"offset={MIB}", raw, "15m")
    image, new, plan = made(raw, "qcow2"), tmp_path / "new.img", tmp_path / "plan.json"
    words = ("convert", image, "--sector-size", "4096", "-o", new)
    plan.write_text(run_aligntool(*words, "--dry-run", "--json", code=0).stdout)
    with in_use(image):
        assert "in use by another program" in run_aligntool(*words, "--dry-run", code=0).stderr
        for copying in (words, ("apply", plan)):
            refused = run_aligntool(*copying, "--yes", code=3)
            assert "in use by another program" in refused.stderr and f"fuser -v {image}" in refused.stderr
    assert not new.exists()
    refused = run_aligntool(*words[:-1], tmp_path / "new.vhd", "--yes", code=3)
    assert "would be a raw image" in refused.stderr and "-O vpc NEW.img" in refused.stderr
    run_aligntool("apply", "--yes", plan, code=0)
    assert '"sectorsize": 512' in run("sfdisk", "--json", raw) and new.stat().st_size == 64 * MIB


def test_an_image_that_cannot_be_opened_does_not_stop_the_audit_of_the_others(raw: Path) -> None:
    image, broken = made(raw, "qcow2"), raw.with_name("broken.qcow2")
    broken.write_bytes(b"QFI\xfb\0\0\0\3".ljust(4096, b"\0"))
    done = run_aligntool("audit", "--json", broken, image, code=3)
    found = json.loads(done.stdout)
    assert [disk["path"] for disk in found["disks"]] == [str(image)]
    assert [one["what"] for one in found["unseen"]] == [str(broken)]


# What headers may contain. Offsets: docs/interop/qcow2.txt of QEMU; VMware's Virtual Disk Format 5.0; Microsoft's
# Virtual Hard Disk Image Format.


def with_bytes(image: Path, at: int, content: bytes) -> Path:
    with image.open("r+b") as file:
        file.seek(at)
        file.write(content)
    return image


def hostile(raw: Path, name: str) -> Path:
    image = raw.with_suffix(".qcow2")
    create = ("qemu-img", "create", "-q", "-f", "qcow2")
    match name:
        case "a file of this machine behind it":
            run(*create, "-u", "-b", "/etc/passwd", "-F", "raw", image, "64M")
        case "a line of a terminal behind it":
            run(*create, "-u", "-b", "/x\nsudo", "-F", "raw", image, "64M")
        case "a server behind it":
            server = '{"driver":"nbd","host":"127.0.0.1","port":"1"}'
            run(*create, "-u", "-b", f"json:{server}", "-F", "raw", image, "64M")
        case "data in another file":
            run(*create, "-o", f"data_file={raw}.data,data_file_raw=on", image, "64M")
        case "encrypted":
            with_bytes(made(raw, "qcow2"), 32, b"\0\0\0\1")  # AES
        case "clusters of 2^64 bytes":
            with_bytes(made(raw, "qcow2"), 20, b"\0\0\0\x40")
        case "a huge table":
            with_bytes(made(raw, "qcow2"), 36, b"\xff\xff\xff\xff")
        case "a huge disk":
            with_bytes(made(raw, "qcow2"), 24, b"\x7f" + b"\xff" * 7)
        case "its end missing":
            os.truncate(made(raw, "qcow2"), 4096)
        case "a descriptor in place of data":
            return with_bytes(made(raw, "vmdk"), 12, bytes(8))
        case "a disk of differences":
            return with_bytes(made(raw, "vhd"), 60, b"\0\0\0\4")
    return image


HOSTILE = {
    "a file of this machine behind it": "is an overlay of /etc/passwd",
    "a line of a terminal behind it": r"is an overlay of $'/x\012sudo'",
    "a server behind it": "is an overlay of 'json:",
    "data in another file": "keeps its data in other files",
    "encrypted": "is encrypted",
    "clusters of 2^64 bytes": "Unsupported cluster size",
    "a huge table": "L1 table too large",
    "a huge disk": "too big",
    "its end missing": "is damaged according to qemu-img check",
    "a descriptor in place of data": "keeps its data in other files",
    "a disk of differences": "is an overlay of another disk",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_one_clear_refusal(raw: Path, name: str) -> None:
    image = hostile(raw, name)
    for words in (("audit",), ("realign", "--yes")):
        done = run_aligntool(*words, image, code=3)
        reason, *hints = done.stderr.splitlines()
        assert HOSTILE[name] in reason and done.stdout == ""
        assert hints and all(hint.startswith("  → ") for hint in hints)
        other_files = "behind it" in name or "in other files" in HOSTILE[name]
        assert other_files == any("if you trust the image" in hint for hint in hints)


@pytest.mark.parametrize("name", ["nbd:localhost:1", "-disk"])
def test_in_suggested_commands_a_file_name_is_not_read_as_a_server_or_an_option(
    raw: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(raw.parent)
    made(raw, "vdi").rename(raw.with_name(name))
    done = run_aligntool("realign", "--yes", "--", name, code=3)
    assert f" ./{name} new.qcow2" in done.stderr


def test_the_suggested_command_decrypts_the_image(raw: Path) -> None:
    (raw.parent / "KEYFILE").write_text("key")
    image = raw.with_name("old, new.qcow2")
    # Not "luks": qemu-img times its key derivation by the processor time of the thread, and ends with "Unable to get
    # accurate CPU usage" where the kernel counts none for those milliseconds.
    run("qemu-img", "convert", "--object", f"secret,id=key,file={raw.parent}/KEYFILE", "-O", "qcow2",
        "-o", "encrypt.format=aes,encrypt.key-secret=key", raw, image)  # fmt: skip
    _, hint = run_aligntool("audit", image, code=3, cwd=raw.parent).stderr.splitlines()
    run("sh", "-c", f"cd {raw.parent} && {hint.partition('→ ')[2]}")
    assert raw.with_name("disk-2.img").read_bytes() == raw.read_bytes()


# Other programs find the container where aligntool sees the disk: sgdisk or mkswap would destroy it.

FOREIGN = "sgdisk|sfdisk|mkswap|losetup|e2fsck|fsck|wipefs|dd|truncate|cryptsetup|pvresize|blkid|mount|tune2fs|parted"
TABLE = "start=35, size=30000, type=L\n"


def told_of(image: Path, *words: str) -> str:
    done = run_aligntool(*words[:-1], image, *words[-1].split(), env={"COLUMNS": "1000"}, cwd=image.parent)
    return done.stdout + done.stderr


@pytest.mark.needs_tools("sgdisk", "mkswap", "mkfs.fat", "debugfs")
@pytest.mark.parametrize(
    "story", ["mbr for both", "swap", "unclean ext4", "unclean fat", "odd size", "backup not at the end", "damaged"]
)
def test_no_suggested_command_treats_a_container_as_a_disk(raw: Path, story: str) -> None:
    """Of a raw image, each of these refusals or findings names another program."""
    words = spoilt(raw, story)
    assert re.search(rf"\b({FOREIGN})\b[^;&|\n]*{raw}", told_of(raw, *words)), "the story has no such command"
    image = made(raw, "qcow2")
    told = told_of(image, *words)
    assert not re.search(rf"\b({FOREIGN})\b[^\n]*{image}", told), told
    assert f"qemu-img convert -f qcow2 -O raw {image} disk-2.img" in told, "disk.img exists: a copy would overwrite it"


def spoilt(raw: Path, story: str) -> tuple[str, ...]:
    """Change the disk so that a command of another program would help. Return the arguments for aligntool."""
    match story:
        case "mbr for both":
            run("sfdisk", "-q", raw, stdin=f"label: dos\n{TABLE}")
            return "plan", "convert", "--both"
        case "swap":
            raw.write_bytes(bytes(64 * MIB))
            run("mkswap", "-q", raw)
            return "plan", "partition", ""
        case "unclean ext4":
            run("debugfs", "-w", "-R", "set_super_value state 0", f"{raw}?offset={START}")
            return "plan", "realign", ""
        case "unclean fat":
            run("mkfs.fat", "--offset", "35", raw, "15000")
            content = bytearray(raw.read_bytes())
            content[START + 37] |= 1  # BS_Reserved1 of a FAT16: not unmounted
            raw.write_bytes(content)
            return "plan", "realign", ""
        case "odd size":
            os.truncate(raw, 64 * MIB + 512)
            return "plan", "convert", "--sector-size 4096"
        case "backup not at the end":
            os.truncate(raw, 65 * MIB)
            return "audit", ""
    with_bytes(raw, 512, bytes(512))
    return "plan", "realign", ""


@pytest.mark.needs_tools("xz")
def test_the_suggested_command_unpacks_a_nested_image(raw: Path) -> None:
    image, packed = made(raw, "qcow2"), raw.with_name("disk.qcow2.xz")
    run("xz", "-k", image)
    assert told_of(packed, "audit", "").endswith(f"(qcow2), not a raw disk image\n  → xz -dc {packed} > disk-2.img\n")
    nested = raw.with_name("nested.qcow2")
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", image, nested)
    assert told_of(nested, "audit", "").endswith(f"  → qemu-img convert -f qcow2 -O raw {nested} disk-2.img\n")


def test_an_image_of_an_unsupported_format_is_refused_with_its_converter(
    raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(raw.parent)
    for kind in ("parallels", "qed"):
        told = told_of(made(raw, kind), "audit", "")
        subprocess.run(told.partition("→ ")[2], shell=True, check=True, timeout=300)
        new = raw.with_name("disk-2.img")
        assert new.read_bytes() == raw.read_bytes()
        new.unlink()


def test_no_suggested_command_overwrites_an_existing_file(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(raw.parent)
    image, packed = made(raw, "vdi"), raw.with_name("packed")
    run("sh", "-c", f"gzip -c {raw} > {packed}")
    raw.with_name("new.qcow2").touch()
    assert f"{image} new-2.qcow2\n" in told_of(image, "realign", "--yes")
    assert f"gzip -dc {packed} > disk-2.img\n" in told_of(packed, "realign", "--yes")
    with pytest.raises(Refused) as refusal:
        read_image(str(packed), UserLimits())
    assert refusal.value.hint == f"gzip -dc {packed} > disk-2.img && aligntool audit disk-2.img"


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup")
def test_a_volume_that_contains_a_container_is_not_empty(raw: Path) -> None:
    """oVirt and Cinder keep the disks of machines on volumes in these formats."""
    for kind in CREATED:
        image = made(raw, kind)
        os.truncate(image, 70 * MIB)
        before = image.read_bytes()
        with looped(image) as device:
            for words in (("layout", device, "--part", "rest:linux"), ("probe", device, "--destructive")):
                assert f"is not empty: {kind}" in run_aligntool(*words, "--yes", code=3).stderr, (kind, words)
        assert image.read_bytes() == before


def test_unclosed_images_snapshots_and_other_formats_are_read_but_not_changed(raw: Path) -> None:
    snapshot, dirty = made(raw, "qcow2"), raw.with_name("dirty.qcow2")
    dirty.write_bytes(snapshot.read_bytes())
    with_bytes(dirty, 79, b"\1")  # incompatible features, bit 0
    run("qemu-img", "snapshot", "-c", "before", snapshot)
    for image, reason in (
        (snapshot, "internal snapshots"),
        (dirty, "was not closed"),
        (made(raw, "vdi"), "of virtual disks only qcow2 can"),
    ):
        before = image.read_bytes()
        run_aligntool("plan", "realign", image, code=0)
        assert reason in run_aligntool("realign", "--yes", image, code=3).stderr
        assert image.read_bytes() == before


def test_the_plan_of_a_read_only_format_ends_with_the_command_that_converts_it(raw: Path) -> None:
    image = made(raw, "vdi")
    (command,) = run_aligntool("plan", "realign", image, code=0).stdout.splitlines()[-1:]
    assert command == f"→ qemu-img convert -f vdi -O qcow2 {image} new.qcow2"
    subprocess.run(command.removeprefix("→ "), shell=True, check=True, cwd=raw.parent)
    told = run_aligntool("plan", "realign", "new.qcow2", cwd=raw.parent, code=0).stdout
    assert told.splitlines()[-1] == "→ aligntool realign new.qcow2"


@pytest.mark.parametrize("kind", ["vmdk", "img.xz"])
def test_a_move_in_a_read_only_format_is_resumed_in_the_raw_image_that_status_names(
    raw: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, StepDone) and event.index > 2:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        apply(plan_realign(raw), interrupt)
    image = made(raw, "vmdk") if kind == "vmdk" else Path(f"{raw}.xz")
    if kind != "vmdk":
        run("xz", "-0", "-k", raw)
    raw.unlink()
    monkeypatch.chdir(raw.parent)
    ways = json.loads(run_aligntool("status", "--json", image, code=0).stdout)["next"]
    assert len(ways) == 1 and "resume" not in ways[0]
    run("sh", "-c", ways[0])
    run_aligntool("resume", "--yes", raw, code=0)
    run_aligntool("audit", raw, code=0)


def test_a_missing_qemu_img_is_reported_with_its_package(raw: Path, tmp_path: Path) -> None:
    image = made(raw, "qcow2")
    done = run_aligntool("audit", image, code=3, env={"PATH": str(tmp_path)})
    assert "qemu-img is not installed" in done.stderr and "qemu-utils" in done.stderr


@pytest.mark.needs_root
def test_a_missing_fuse_is_reported_with_the_command_to_convert_the_image(raw: Path) -> None:
    image = made(raw, "qcow2")
    without = 'mount --bind /dev/null /dev/fuse && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", without, "sh", *program("audit", image)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert f"qemu-img convert -f qcow2 -O raw {image} disk.img" in done.stderr


@pytest.mark.needs_root
def test_without_root_a_virtual_disk_is_judged_and_realigned_the_same_way(raw: Path) -> None:
    image, vdi = made(raw, "qcow2"), made(raw, "vdi")
    for path in (raw, image, vdi):
        os.chown(path, 65534, 65534)

    def looked(path: Path, *, writes: bool = False) -> Inventory:
        assert show_disks(find_virtual([str(path)], 10), str, writes=writes) == ()
        if writes:
            os.close(os.open(path, os.O_RDWR))  # before any other access: the kernel does not know the owner yet
            apply(plan_realign(path))
        return look([str(path)])

    read_image(str(raw), UserLimits())  # this loads modules that the child may not read
    plan_realign(raw)
    (expected,) = as_nobody(lambda: looked(raw)).disks
    for path in (image, vdi):
        (disk,) = as_nobody(lambda path=path: looked(path)).disks  # type: ignore[misc]
        assert disk == replace(expected, name=str(path), path=str(path))
    (disk,) = as_nobody(lambda: looked(image, writes=True)).disks
    assert disk.partitions[0].extent.start == MIB
    run("qemu-img", "check", "-q", image)
