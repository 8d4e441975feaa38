"""A rescue stick: a Debian live system, which runs in memory, and one file next to it.

The live system contains only the Debian packages that docs/install.md names: no pip and no network.
"""

import shutil
from pathlib import Path

from aligntool.units import MIB
from tests.boots.bootdisks import SECTOR, empty, install_grub, put_root
from tests.boots.system import install
from tests.conftest import run
from tests.lab.guest import KERNEL_OPTIONS

# What makes a Debian a live system, as in the official live images.
LIVE = (
    *("linux-image-cloud-amd64", "initramfs-tools", "systemd-sysv", "udev", "kmod"),
    *("live-boot", "live-config", "live-config-systemd", "user-setup", "sudo"),
)
LEFT_OUT = ("boot", "initrd.img", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man")
STICK_UUID = "20050701-0003-4003-8003-000000000003"
START = 2048
LENGTH = 768 * MIB
# On a busy machine the emulated processors stall for seconds.
BUSY = ("nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1")
PATIENT = "[Manager]\nDefaultDeviceTimeoutSec=15min\nDefaultTimeoutStartSec=15min\n"
MENU = f"""serial --unit=0
terminal_input serial
terminal_output serial
search --no-floppy --fs-uuid --set=root {STICK_UUID}
linux /live/vmlinuz boot=live components toram console=ttyS0 quiet nonetworking {" ".join((*KERNEL_OPTIONS, *BUSY))}
initrd /live/initrd.img
boot
"""


def stick(folder: Path, file: Path, packages: tuple[str, ...]) -> Path:
    """Return the image of the stick: a live system with these additional packages, and this file."""
    root = install(folder / "live-root", ",".join((*LIVE, *packages)))
    (root / "etc/fstab").write_text("")
    (root / "etc/systemd/system.conf.d").mkdir()
    (root / "etc/systemd/system.conf.d/patient.conf").write_text(PATIENT)
    run("chroot", root, "update-initramfs", "-u", "-k", "all")
    return pack(folder, root, file)


def pack(folder: Path, root: Path, file: Path) -> Path:
    """Return the image of a stick with an existing live system."""
    content, image = folder / "stick-content", folder / "stick.img"
    (content / "boot").mkdir(parents=True)
    (content / "live").mkdir()
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(root / name, content / "live" / name)
    shutil.copy(file, content)
    squashed = content / "live/filesystem.squashfs"
    run("mksquashfs", root, squashed, "-quiet", "-no-progress", "-comp", "lz4", "-e", *LEFT_OUT, limit_s=600)
    empty(image, START * SECTOR + LENGTH + MIB)
    run("sfdisk", "-q", image, stdin=f"label: dos\n{START},{LENGTH // SECTOR},83,*\n")
    put_root(folder, content, image, START, length=LENGTH, menu=MENU, uuid=STICK_UUID)
    shutil.rmtree(content)
    install_grub(image)
    return image
