"""A locked disk against programs that try to use it: mount, swapon, losetup, flock, other openers."""

import errno
import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest

from aligntool.convert.copying import _locked_source
from aligntool.errors import Refused
from aligntool.linux.in_use import caches, exports_of
from aligntool.linux.lock import lock_disk, refuse_disturbed, uses_by_other_paths, written_at
from aligntool.realign.preconditions import naming_loops
from aligntool.units import MIB, Extent
from tests.by_hand import type_by_hand
from tests.conftest import add_partition, attach, attached, detach, find_tool, run, unmount

Attach = Callable[..., Path]
Make = Callable[..., Path]

root = pytest.mark.needs_root


@pytest.fixture
def parted_disk(sparse: Make, loop: Attach) -> Path:
    """Make a loop device with one partition, which partx adds to the kernel."""
    image = sparse(32 * MIB)
    run("sfdisk", "-q", image, stdin="label: dos\nstart=63\n")
    node = loop(image)
    run("partx", "-a", node)
    if not first(node).is_block_device():
        pytest.skip("this kernel shows no partitions of loop devices")
    return node


def first(node: Path) -> Path:
    return node.with_name(f"{node.name}p1")


def refusal(path: Path | str) -> Refused:
    with pytest.raises(Refused) as caught, lock_disk(str(path)):
        pass
    return caught.value


def type_hint(refused: Refused) -> None:
    """Run the hint as printed, without sudo: the tests are root already."""
    for command in refused.hint.replace("sudo ", "").split(" && "):
        run(*shlex.split(command))


@contextmanager
def another_program(code: str, path: Path) -> Iterator[None]:
    """Run a program until the end of the block, which begins once the program is ready."""
    program = f"import fcntl, os, sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"ready\n"
            yield
        finally:
            assert process.stdin
            process.stdin.close()


def lockable(path: Path) -> bool:
    done = subprocess.run([find_tool("flock") or "flock", "-n", path, "true"], check=False)
    return done.returncode == 0


@root
@pytest.mark.needs_tools("sfdisk", "partx", "mkfs.ext4", "mount", "flock")
def test_a_locked_disk_cannot_be_opened_or_mounted_until_it_is_released(parted_disk: Path, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", first(parted_disk))
    mount = [find_tool("mount") or "mount", str(first(parted_disk)), str(tmp_path)]
    with lock_disk(str(parted_disk)) as locked:
        assert locked.is_block and locked.kernel.numbers() == (1,)
        with pytest.raises(OSError) as caught:
            os.open(parted_disk, os.O_RDONLY | os.O_EXCL)
        assert caught.value.errno == errno.EBUSY
        assert subprocess.run(mount, check=False, capture_output=True).returncode != 0
        assert not lockable(parted_disk)
        locked.device.write(0, locked.device.read(0, 4096))
    assert lockable(parted_disk)
    subprocess.run(mount, check=True)
    unmount(tmp_path)


@root
@pytest.mark.needs_tools("sfdisk", "partx", "mkfs.ext4", "mount")
def test_a_mounted_partition_is_named_with_all_its_mount_points(parted_disk: Path, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", first(parted_disk))
    places = [tmp_path / "with a space", tmp_path / "other"]
    for place in places:
        place.mkdir()
        run("mount", first(parted_disk), place)
    try:
        refused = refusal(parted_disk)
        for place in places:
            assert f"{first(parted_disk).name} is mounted at {place}" in str(refused)
        type_hint(refused)
    except BaseException:
        for place in places:
            run("umount", place, fails=True)
        raise
    assert not any(map(os.path.ismount, places))
    unmount(places[0], parted_disk)
    with lock_disk(str(parted_disk)):
        pass


@root
@pytest.mark.needs_tools("mkfs.btrfs", "btrfs", "mount")
def test_each_device_of_a_mounted_btrfs_is_named(sparse: Make, loop: Attach, tmp_path: Path) -> None:
    """The mount table names only one of them."""
    nodes = [loop(sparse(128 * MIB, f"{number}.img")) for number in range(2)]
    run("mkfs.btrfs", "-q", *nodes)
    run("btrfs", "device", "scan", *nodes)
    place = tmp_path / "place"
    place.mkdir()
    if subprocess.run(("mount", nodes[0], place), check=False, capture_output=True).returncode:
        pytest.skip("this kernel mounts no btrfs")
    try:
        for node in nodes:
            assert f"{node.name} is mounted at {place}" in str(refusal(node))
        type_hint(refusal(nodes[1]))
    finally:
        unmount(place)
    assert all(map(lockable, nodes))


@root
@pytest.mark.needs_tools("sfdisk", "partx", "mkswap", "swapon", "swapoff")
def test_swap_is_named(parted_disk: Path) -> None:
    run("mkswap", first(parted_disk))
    try:
        run("swapon", first(parted_disk))
    except AssertionError as error:
        pytest.skip(f"this machine swaps nowhere: {error}")
    try:
        refused = refusal(parted_disk)
        assert f"{first(parted_disk).name} is used as swap" in str(refused)
    finally:
        run("swapoff", first(parted_disk))
    assert refused.hint == f"sudo swapoff {first(parted_disk)}"


@root
@pytest.mark.needs_tools("sfdisk", "partx", "losetup")
def test_a_loop_device_over_a_partition_is_named(parted_disk: Path) -> None:
    with attached(first(parted_disk)) as above:
        refused = refusal(parted_disk)
    assert f"{first(parted_disk).name} is attached to {above}" in str(refused)
    assert refused.hint == f"sudo losetup -d {above}"


@root
def test_an_image_file_under_a_loop_device_is_refused(sparse: Make, loop: Attach, tmp_path: Path) -> None:
    image = sparse(MIB)
    node = loop(image)
    (tmp_path / "other-name.img").hardlink_to(image)
    assert f"attached to {node}" in str(refusal(tmp_path / "other-name.img"))
    image.unlink()  # as for a loop device of another mount namespace
    assert f"attached to {node}" in str(refusal(tmp_path / "other-name.img"))


@root
@pytest.mark.needs_tools("mkfs.ext4")
@pytest.mark.parametrize("autoclear", [True, False])
def test_a_mounted_loop_device_is_unmounted_before_it_is_detached(
    sparse: Make, tmp_path: Path, *, autoclear: bool
) -> None:
    """As long as it is mounted, `losetup -d` reports success and leaves it attached."""
    image, place = sparse(8 * MIB), tmp_path / "place"
    run("mkfs.ext4", "-q", "-F", image)
    place.mkdir()
    with attached(image) as node:
        try:
            run("mount", "-o", "ro", node, place)
            if autoclear:
                run("losetup", "-d", node)
            assert refusal(image).hint == f"sudo umount {place}" + f" && sudo losetup -d {node}" * (not autoclear)
        finally:
            unmount(place)


@root
@pytest.mark.needs_tools("mkfs.btrfs", "mkfs.ext4")
@pytest.mark.parametrize("kind", ["btrfs", "ext4"])
def test_a_loop_device_that_is_detached_after_an_unmount_is_in_use_until_then(
    sparse: Make, tmp_path: Path, kind: str
) -> None:
    """The mount of a btrfs has another number than the device, and so has that of a partition."""
    image, place = sparse(200 * MIB), tmp_path / "place"
    place.mkdir()
    node = attach(image)
    try:
        if kind == "ext4":
            add_partition(node, 1, Extent(MIB, 100 * MIB))
        part = f"{node}p1" if kind == "ext4" else node
        run(f"mkfs.{kind}", "-q", part)
        run("mount", part, place)
        run("losetup", "-d", node)
        with pytest.raises(Refused, match="attached to"):
            refuse_disturbed(str(image), written_at(str(image)))
        assert refusal(image).hint == f"sudo umount {place}"
    finally:
        unmount(place)


@root
def test_a_second_loop_device_over_the_same_bytes_is_named(sparse: Make, loop: Attach, tmp_path: Path) -> None:
    """None of them is opened exclusively by the kernel, so one may be mounted while the other is changed."""
    image = sparse(MIB)
    other, node = loop(image), loop(image)
    refused = refusal(node)
    assert f"{image} is attached to {other}" in str(refused) and refused.hint == f"sudo losetup -d {other}"
    above = loop(node)
    assert f"attached to {other}" in str(refusal(above))
    with pytest.raises(Refused, match=f"attached to {other}") as named, naming_loops(str(node)):
        raise Refused("was not unmounted cleanly", hint="sudo e2fsck")
    assert "e2fsck" not in named.value.hint
    detach(other)
    assert f"{node.name} is attached to {above}" in str(refusal(node)) and lockable(above)


@root
def test_the_backing_file_or_device_of_a_loop_device_is_locked_with_it(
    sparse: Make, loop: Attach, tmp_path: Path
) -> None:
    image = sparse(MIB)
    node = loop(image)
    above = loop(node)
    for code, path in [
        ("file = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(file, fcntl.LOCK_EX)", image),
        ("file = os.open(sys.argv[1], os.O_RDWR); fcntl.lockf(file, fcntl.LOCK_EX)", image),
        ("file = os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)", node),
    ]:
        with another_program(code, path):
            assert "by another program" in str(refusal(above))
    with lock_disk(str(above)):
        with image.open("rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(OSError, match="busy"):
            os.open(node, os.O_RDONLY | os.O_EXCL)
    assert lockable(above)


@root
@pytest.mark.needs_tools("sfdisk", "partx")
def test_a_partition_is_refused_and_its_disk_is_named(parted_disk: Path, tmp_path: Path) -> None:
    link = tmp_path / "by-id"
    link.symlink_to(first(parted_disk))
    refused = refusal(link)
    assert f"{link} is partition 1 of {parted_disk}" in str(refused)
    assert str(parted_disk) in refused.hint


@root
@pytest.mark.needs_tools("blockdev")
def test_a_read_only_disk_is_refused_until_it_is_writable(sparse: Make, loop: Attach) -> None:
    node = loop(sparse(MIB))
    run("blockdev", "--setro", node)
    refused = refusal(node)
    assert f"{node} is read-only" in str(refused)
    type_by_hand(refused.hint, "blockdev --setrw", DISK=node)
    with lock_disk(str(node)):
        pass


@root
def test_a_program_that_opened_the_disk_exclusively_is_reported(sparse: Make, loop: Attach) -> None:
    node = loop(sparse(MIB))
    with another_program("f = os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)", node):
        refused = refusal(node)
    assert "opened exclusively" in str(refused)
    assert refused.hint == f"sudo fuser -v {node}"


@pytest.mark.parametrize(
    "lock",
    [
        "fcntl.flock(f, fcntl.LOCK_SH)",
        "fcntl.lockf(f, fcntl.LOCK_EX, 1, 100)",
        "fcntl.fcntl(f, fcntl.F_OFD_SETLK, __import__('struct').pack('hhqqi4x', fcntl.F_RDLCK, 0, 100, 1, 0))",
    ],
    ids=["flock", "POSIX", "as QEMU does"],
)
def test_a_lock_of_another_program_is_reported(sparse: Make, lock: str) -> None:
    image = sparse(MIB)
    with another_program(f"f = os.open(sys.argv[1], os.O_RDWR)\n{lock}", image):
        assert "locked by another program" in str(refusal(image))
    with lock_disk(str(image)):
        pass


@pytest.mark.needs_tools("qemu-io")
def test_no_virtual_machine_is_started_on_an_image_during_a_change(sparse: Make) -> None:
    image = sparse(MIB)
    write = ("qemu-io", "-f", "raw", "-c", "write -P 1 0 512", image)
    with lock_disk(str(image), keep_posix=True):
        run(*write, fails=True)
        assert image.read_bytes() == bytes(MIB)
    run(*write)
    assert image.read_bytes()[:512] == b"\1" * 512


@root
@pytest.mark.needs_tools("qemu-io")
def test_no_virtual_machine_is_started_on_the_file_under_a_loop_device(sparse: Make, loop: Attach) -> None:
    image = sparse(MIB)
    with lock_disk(str(loop(image)), keep_posix=True):
        run("qemu-io", "-f", "raw", "-c", "write -P 1 0 512", image, fails=True)
    assert image.read_bytes() == bytes(MIB)


@pytest.mark.needs_tools("qemu-io")
def test_no_virtual_machine_is_started_on_the_source_of_a_copy(sparse: Make) -> None:
    image = sparse(MIB)
    with _locked_source(str(image)) as source:
        assert source.read(0, 512) == bytes(512)
        run("qemu-io", "-f", "raw", "-c", "write -P 1 0 512", image, fails=True)
    assert image.read_bytes() == bytes(MIB)


def test_a_lock_that_is_released_soon_is_waited_for(sparse: Make) -> None:
    image = sparse(MIB)
    code = (
        "f = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(f, fcntl.LOCK_SH)\n"
        "import threading; threading.Timer(0.5, os.close, [f]).start()"
    )
    with another_program(code, image), lock_disk(str(image)) as locked:
        assert locked.device.size == MIB


@pytest.mark.needs_tools("flock")
def test_an_image_file_is_locked_like_a_disk(sparse: Make) -> None:
    image = sparse(MIB)
    with lock_disk(str(image), image_sector_size=4096) as locked:
        assert not locked.is_block and locked.device.sector_size == 4096
        assert locked.kernel.numbers() == ()
        assert not lockable(image)
        assert "locked" in str(refusal(image))
        locked.device.write(4096, b"x" * 4096)
    assert lockable(image)
    assert image.read_bytes() == bytes(4096) + b"x" * 4096 + bytes(MIB - 8192)


@root
def test_a_missing_write_permission_is_reported_with_a_hint(sparse: Make, loop: Attach, tmp_path: Path) -> None:
    image, node = sparse(MIB), loop(sparse(MIB, "other.img"))
    tmp_path.chmod(0o755)
    with chdir(tmp_path):
        os.seteuid(65534)
        try:
            denied, device = refusal(image.name), refusal(node)
        finally:
            os.seteuid(0)
    assert "is not writable" in str(denied)
    assert denied.hint == f"by hand, with chmod on {image.name}: docs/by-hand.md#a-disk-or-file-is-read-only"
    assert "is not writable" in str(device) and "sudo" in device.hint


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/nowhere/disk", "No such file"), ("/dev", "neither a block"), ("/dev/null", "neither a block")],
)
def test_a_path_that_is_not_a_disk_is_refused(path: str, reason: str) -> None:
    assert reason in str(refusal(path))


def test_no_file_stays_open_and_no_child_process_remains(sparse: Make) -> None:
    image = sparse(MIB)

    def left() -> tuple[int, str]:
        children = Path("/proc/self/task", str(os.getpid()), "children").read_text()
        return len(list(Path("/proc/self/fd").iterdir())), children

    before = left()
    with lock_disk(str(image)):
        pass
    with pytest.raises(ZeroDivisionError), lock_disk(str(image)):
        raise ZeroDivisionError
    with image.open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refusal(image)
    assert left() == before


EXPORTS = [  # the folder below /sys/kernel/config, and the file that names the exported disk
    ("nvmet/subsystems/nqn.2014-08.org.example:1/namespaces/1", "device_path"),
    ("target/core/fileio_0/data", "udev_path"),
]


@pytest.mark.parametrize(("place", "word"), EXPORTS)
@pytest.mark.parametrize("kind", ["file", pytest.param("disk", marks=root)])
def test_a_disk_that_the_kernel_exports_to_other_machines_is_in_use(
    sparse: Make, loop: Attach, tmp_path: Path, place: str, word: str, kind: str
) -> None:
    """nvmet and LIO's fileio have it open, but not exclusively. A test cannot load them: the folder is made up."""
    image = sparse(8 * MIB)
    disk = loop(image) if kind == "disk" else image
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / word).write_text(f"{disk}\n")
    (folder / "enable").write_text("0\n")
    assert not list(exports_of(disk.stat(), tmp_path))
    (folder / "enable").write_text("1\n")
    (found,) = exports_of(disk.stat(), tmp_path)
    assert found.what.endswith("is served to other machines") and str(folder) in found.end
    (folder / word).write_text("/dev/null\n")
    assert not list(exports_of(disk.stat(), tmp_path))


def test_the_cache_of_a_bcache_is_named_with_the_command_that_ends_it(tmp_path: Path) -> None:
    """As Linux 6.1 shows a cache and a backing device; an exclusive open of either fails, and only one has a holder."""
    (tmp_path / "set").mkdir()
    for name in ("nvme0n1", "cciss!c0d0"):
        (tmp_path / name / "bcache").mkdir(parents=True)
    (tmp_path / "cciss!c0d0/bcache/set").symlink_to(tmp_path / "set")
    (found,) = caches(("nvme0n1", "cciss/c0d0"), tmp_path)
    assert found.what == "cciss/c0d0 is the cache of a bcache"
    assert found.end == f"echo 1 | sudo tee '{tmp_path}/cciss!c0d0/bcache/set/unregister'"


@root
@pytest.mark.needs_tools("unshare", "mount")
@pytest.mark.parametrize("has_proc", [True, False])
def test_a_kernel_without_swap_has_no_list_of_it(sparse: Make, loop: Attach, tmp_path: Path, has_proc: bool) -> None:
    """Without /proc, the users of a disk are not known, and it is not locked."""
    script = "set -e\nmount --rbind /proc .\nmount -t tmpfs none /proc\n"
    script += "for each in self locks; do ln -s $PWD/$each /proc/; done\n" * has_proc
    code = "import sys\nfrom aligntool.linux.lock import lock_disk\nwith lock_disk(sys.argv[1]): print('locked')"
    words = ["unshare", "-m", "sh", "-c", f'{script}exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run([*words, loop(sparse(MIB))], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "locked\n" * has_proc
    assert has_proc or "Refused: /proc is not mounted" in done.stderr


@root
@pytest.mark.needs_tools("mkfs.ext4")
def test_a_drive_that_is_mounted_through_another_path_is_in_use(sparse: Make, loop: Attach, tmp_path: Path) -> None:
    """Without multipath, the second path is another drive to the kernel: an exclusive open of the first succeeds."""
    images = [sparse(8 * MIB, name) for name in ("first.img", "second.img")]
    run("mkfs.ext4", "-q", "-F", images[0])
    images[1].write_bytes(images[0].read_bytes())
    target, other = (loop(image) for image in images)
    for node, place, size in (
        (target, "device/wwid", "16384"),
        (other, "wwid", "16384"),
        (Path("loop0A"), "wwid", "9"),
    ):
        file = tmp_path / "block" / node.name / place
        file.parent.mkdir(parents=True)
        file.write_text("naa.5000c500a1b2c3d4\n")
        (tmp_path / "block" / node.name / "size").write_text(f"{size}\n")

    def uses() -> list[tuple[str, str]]:
        return [(use.what, use.end) for use in uses_by_other_paths(target.stat(), tmp_path / "block")]

    folder = tmp_path / "mnt"
    folder.mkdir()
    assert uses() == []
    run("mount", other, folder)
    try:
        what = f"{other.name} is another path to the same drive: {other.name} is mounted at {folder}"
        assert uses() == [(what, f"sudo umount {folder}")]
        for signature, is_same in ((b"\1\2\3\4", False), (bytes(4), True)):
            with target.open("r+b") as device:  # another drive with the same identifier, as of a cheap adapter
                device.seek(440)
                device.write(signature)
            assert bool(uses()) == is_same
        # A second path whose state cannot be read, as of a drive that is just being removed (here ENOTDIR).
        (tmp_path / "block/null!x").mkdir()
        for name, text in (("wwid", "naa.5000c500a1b2c3d4\n"), ("size", "16384\n")):
            (tmp_path / "block/null!x" / name).write_text(text)
        what = "null/x is another path to the same drive: whether it is in use is unknown: Not a directory"
        assert (what, "lsblk /dev/null/x") in uses()
        (tmp_path / "block" / target.name / "device/wwid").write_text("naa.5000c500a1b2c3d5\n")
        assert uses() == []
        (tmp_path / "block" / target.name / "device/wwid").write_text("\n")
        assert uses() == []
    finally:
        unmount(folder)
