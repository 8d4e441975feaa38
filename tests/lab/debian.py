"""A Debian on a disk image of its own, with everything that an array needs, made once and kept.

The image is raw and never written to: PCs write to overlays of it (`debian_pc`). It is in the git-ignored `.lab/`, in a
folder named after a hash of its inputs. Making it takes two minutes.
"""

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aligntool.units import GIB, MIB
from tests.boots.bootdisks import GRUB, LINUX_LINE, empty, install_grub, put_root
from tests.boots.system import install, mirror, start_always
from tests.conftest import run
from tests.lab.guest import KERNEL_OPTIONS
from tests.lab.kernel import CACHE

ROOT_START = MIB
ROOT_LENGTH = 3 * GIB
DISK_LENGTH = ROOT_START + ROOT_LENGTH + MIB
SECTOR = 512

# The kernel for clouds has NVMe, md, virtio and the file systems, and a fifth of the modules to put into an initramfs.
PACKAGES = ",".join(
    (
        *("linux-image-cloud-amd64", "initramfs-tools", "udev", "systemd-sysv", "kmod", "lz4"),
        *("mdadm", "nvme-cli", "fdisk", "parted", "pci.ids", "qemu-guest-agent"),
        *("xfsprogs", "e2fsprogs", "btrfs-progs", "dosfstools"),
        *("python3", "python3-parted", "python3-pyudev"),
    )
)
# Half of the work is the modules that this PC does not need; not in a chroot, where the needed ones are unknown.
QUICK = """COMPRESS=lz4
if [ -d /sys/block ]; then MODULES=dep; fi
"""
# Disable what a newly started system does by itself: every second takes ten here.
UNWANTED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "mdcheck_start.timer",
    "mdcheck_continue.timer",
    "mdmonitor-oneshot.timer",
    "serial-getty@ttyS0.service",
    "getty@tty1.service",
    "getty-static.service",
    "nvmf-autoconnect.service",
    "systemd-networkd.service",
)
MENU = GRUB.replace(LINUX_LINE, " ".join((LINUX_LINE, *KERNEL_OPTIONS)))
TOOL = """[Unit]
Description=aligntool as it is in the checkout
ConditionPathExists=/dev/disk/by-id/virtio-aligntool
After=dev-disk-by\\x2did-virtio\\x2daligntool.device
Before=qemu-guest-agent.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/mount -t squashfs -o ro /dev/disk/by-id/virtio-aligntool /opt/aligntool
[Install]
WantedBy=multi-user.target
"""


def disk() -> Path:
    """Return the image; if there is none for this content, it is made in two minutes."""
    folder = CACHE / f"debian-{_key()}"
    CACHE.mkdir(exist_ok=True)
    with _one_at_a_time():
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix="making-", dir=CACHE) as making:
                made = Path(making) / "made"
                made.mkdir()
                _make(Path(making), made / "disk.img")
                made.rename(folder)
    return folder / "disk.img"


def _key() -> str:
    """Return a hash of the mirror, the kernel's options, and the text of all building code: a change
    makes a new disk.
    """
    here = Path(__file__)
    sources = (here, *((here.parent.parent / "boots" / name) for name in ("system.py", "bootdisks.py")))
    words = " ".join((*mirror(), *KERNEL_OPTIONS))
    content = b"\0".join((words.encode(), *(source.read_bytes() for source in sources)))
    return hashlib.sha256(content).hexdigest()[:16]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (CACHE / "debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(folder: Path, image: Path) -> None:
    tree = install(folder / "root", PACKAGES)
    _settle(tree)
    run("chroot", tree, "update-initramfs", "-u", "-k", "all")
    empty(image, DISK_LENGTH)
    first, count = ROOT_START // SECTOR, ROOT_LENGTH // SECTOR
    run("sfdisk", "-q", image, stdin=f"label: dos\n{first},{count},83,*\n")
    put_root(folder, tree, image, first, length=ROOT_LENGTH, menu=MENU)
    install_grub(image)
    shutil.rmtree(tree)


def _settle(tree: Path) -> None:
    """Set the system up as an administrator would, but faster: a small initramfs, and no background services."""
    (tree / "etc/initramfs-tools/conf.d/quick").write_text(QUICK)
    for name in UNWANTED:
        (tree / "etc/systemd/system" / name).symlink_to("/dev/null")
    (tree / "opt/aligntool").mkdir()
    (tree / "usr/local/bin/aligntool").symlink_to("/opt/aligntool/bin/aligntool")
    start_always(tree, "aligntool-mounted.service", TOOL)
