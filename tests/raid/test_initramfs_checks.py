"""The checks of the initramfs images of Debian and of dracut: those of every kernel; one without the line is named."""

import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from aligntool.raid.boot import MAKERS, SYSTEMS, Maker
from aligntool.raid.commands import command_of
from aligntool.steps import CheckInitramfs
from tests.conftest import run
from tests.raid.initramfs_images import LINE, UUID, by_cpio

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("unshare", "mount", "cpio", "gzip")]

# A copy of the machine's tree in memory, with these boot images and kernels instead of its own.
_INSIDE = """set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"; cd "$1"; mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount --bind /proc root/proc; mount --bind /dev root/dev
mkdir -p root/lib/modules
for each in tmp boot lib/modules; do mount -t tmpfs tmpfs root/$each; done
cp -r "$2"/boot/. root/boot; cp -r "$2"/modules/. root/lib/modules
shift 2
exec chroot root "$@"
"""


NONE: Mapping[str, str] = MappingProxyType({})


class Machine:
    """`with_image`: add an image of a kernel with this mdadm.conf inside; None: without the file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("place", "files/boot", "files/modules"):
            (folder / name).mkdir(parents=True)

    def with_image(
        self, kernel: str, conf: str | None, *, maker: str, installed: bool = True, more: Mapping[str, str] = NONE
    ) -> None:
        name = "etc/mdadm/mdadm.conf" if maker == "debian" else "etc/mdadm.conf"
        files = {"usr/lib/dracut/modules.txt": b"mdraid\n", "conf/initramfs.conf": b"x"}
        files |= {name: text.encode() for name, text in ({} if conf is None else {name: conf} | dict(more)).items()}
        (made := self.folder / f"of-{kernel}").mkdir()
        image = by_cpio(made, files, compress="gzip")
        boot, modules = self.folder / "files/boot", self.folder / "files/modules" / kernel
        modules.mkdir()
        image.rename(boot / f"initrd.img-{kernel}" if maker == "debian" else modules / "initrd")
        if installed:
            (boot / f"vmlinuz-{kernel}").touch()
            (modules / "modules.dep").touch()

    def looked(self, word: str) -> subprocess.CompletedProcess[str]:
        step = CheckInitramfs(SYSTEMS[word].maker, UUID)
        folders = [str(self.folder / name) for name in ("place", "files")]
        words = ["env", "-u", "TMPDIR", "unshare", "-m", "sh", "-c", _INSIDE, "sh", *folders, *command_of(step)]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.needs_tools("unmkinitramfs")
def test_the_line_is_found_in_the_image_of_every_kernel(machine: Machine) -> None:
    for kernel in ("6.1.0-1-amd64", "6.1.0-2-amd64"):
        machine.with_image(kernel, f"HOMEHOST <system>\n{LINE}\n", maker="debian")
    done = machine.looked("debian")
    assert (done.returncode, done.stdout.splitlines()) == (0, [LINE, LINE]), done.stderr


OTHER_FORMS = (str(uuid.UUID(UUID.replace(":", ""))).upper(), UUID.replace(":", ""))


@pytest.mark.needs_tools("unmkinitramfs", "lsinitrd")
@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize(("word", "maker"), [("debian", "debian"), ("fedora", "dracut")])
def test_a_line_written_by_the_user_is_found_as_mdadm_reads_it(
    machine: Machine, word: str, maker: str, form: str
) -> None:
    """persist rebuilds an old image for a correct line, too, which may have the UUID as blkid prints it."""
    machine.with_image("6.1.0-1-amd64", LINE.replace(UUID, form), maker=maker)
    done = machine.looked(word)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs_tools("unmkinitramfs")
@pytest.mark.parametrize("conf", [None, "HOMEHOST <system>\n", f"# {LINE}\n"])
@pytest.mark.parametrize("bare", ["6.1.0-1-amd64", "6.1.0-2-amd64"])
def test_an_image_that_lacks_the_line_is_named(machine: Machine, bare: str, conf: str | None) -> None:
    """Whichever kernel is booted next."""
    for kernel in ("6.1.0-1-amd64", "6.1.0-2-amd64"):
        machine.with_image(kernel, conf if kernel == bare else LINE, maker="debian")
    done = machine.looked("debian")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"/boot/initrd.img-{bare} has no line for {UUID}"


@pytest.mark.needs_tools("unmkinitramfs")
def test_an_image_of_a_removed_kernel_is_ignored_and_no_image_at_all_is_an_error(machine: Machine) -> None:
    """update-initramfs leaves such an image as it is."""
    machine.with_image("5.10.0-9-amd64", None, maker="debian", installed=False)
    done = machine.looked("debian")
    assert UUID not in done.stdout
    machine = Machine(machine.folder / "other")
    machine.with_image("5.10.0-9-amd64", None, maker="debian", installed=False)
    machine.with_image("6.1.0-1-amd64", LINE, maker="debian")
    done = machine.looked("debian")
    assert (done.returncode, done.stdout.splitlines()) == (0, [LINE]), done.stderr


DRACUTS = pytest.mark.parametrize("word", ["debian-dracut", "fedora", "opensuse"])


@DRACUTS
@pytest.mark.needs_tools("lsinitrd")
def test_images_of_dracut_with_the_file_must_have_the_line(machine: Machine, word: str) -> None:
    machine.with_image("6.1.0-1", LINE, maker="dracut")
    machine.with_image("6.1.0-2", "HOMEHOST <system>\n", maker="dracut")
    done = machine.looked(word)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        f"6.1.0-1: {UUID} is inside",
        f"6.1.0-2: the mdadm.conf inside has no line for {UUID}",
    ]


@pytest.mark.needs_tools("lsinitrd")
@pytest.mark.parametrize(("conf", "found"), [(f"MAILADDR root\n{LINE}\n", True), (f"# {LINE}\n", False)])
def test_the_line_may_be_in_the_folder_next_to_the_file(machine: Machine, conf: str, found: bool) -> None:
    """persist replaces a wrong line where it is."""
    more = {"etc/mdadm.conf.d/10-raid.conf": "HOMEHOST <system>\n", "etc/mdadm.conf.d/20-raid.conf": conf}
    machine.with_image("6.1.0-1", "MAILADDR root\n", maker="dracut", more=more)
    done = machine.looked("fedora")
    assert (done.returncode == 0) is found, done.stdout
    assert (f"{UUID} is inside" in done.stdout) is found


@pytest.mark.needs_tools("lsinitrd")
def test_images_of_dracut_without_the_file_are_reported_as_such(machine: Machine) -> None:
    """dracut leaves the file out of images that are not for one machine: 90mdraid/module-setup.sh."""
    machine.with_image("6.1.0-1", None, maker="dracut")
    done = machine.looked("debian-dracut")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"6.1.0-1: no mdadm.conf inside, {UUID} starts after the initramfs\n"


@pytest.mark.needs_tools("lsinitrd")
def test_an_unreadable_image_of_dracut_is_an_error(machine: Machine) -> None:
    machine.with_image("6.1.0-1", LINE, maker="dracut")
    (machine.folder / "files/modules/6.1.0-1/initrd").write_bytes(b"no archive")
    done = machine.looked("debian-dracut")
    assert done.returncode == 1 and "the initramfs of 6.1.0-1 cannot be read" in done.stdout


@pytest.mark.needs_tools("shellcheck")
@pytest.mark.parametrize("maker", MAKERS.values(), ids=list(MAKERS))
def test_the_check_scripts_pass_shellcheck(maker: Maker, tmp_path: Path) -> None:
    shell, _, script, _ = maker.check
    (tmp_path / "check").write_text(f"{script}\n")
    # The presets are found at run time (SC1090), and the folder is known when the trap is set (SC2064).
    run("shellcheck", f"--shell={shell}", "--exclude=SC1090,SC2064", tmp_path / "check")
