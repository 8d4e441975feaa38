"""A system that is installed below a folder: an ext4 of its own with busybox as its programs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import run, unmount
from tests.mover.loop_mounts import looped, mounted

PROGRAMS = ("env", "sh", "true", "cat", "ls", "grep", "mkdir", "readlink", "sleep", "touch", "mount")
FOLDERS = ("dev", "proc", "sys", "run", "tmp", "boot", "srv", "etc/mdadm", "usr/bin", "usr/sbin", "usr/local/lib")
# What Debian's program does, for an image that is a copy of mdadm.conf.
UPDATE_INITRAMFS = """#!/usr/bin/sh
cat /etc/mdadm/mdadm.conf > /boot/image
echo "$0 $* $(readlink -f /proc/self/root)" >> /boot/log
"""


@contextmanager
def installed_system(folder: Path, **files: str) -> Iterator[Path]:
    """Yield the folder at which the system is mounted. `files`: further ones, "__" for a slash."""
    image = folder / "system.img"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    run("mkfs.ext4", "-q", image)
    with looped(image) as device, mounted(device, "mount") as root:
        for name in FOLDERS:
            (root / name).mkdir(parents=True)
        shutil.copy(shutil.which("busybox") or "", root / "usr/bin/busybox")
        for name in PROGRAMS:
            (root / "usr/bin" / name).symlink_to("busybox")
        texts = {"etc__os-release": "ID=debian\n", "etc__hostname": "there\n", "etc__fstab": "", **files}
        texts |= {"usr__sbin__update-initramfs": UPDATE_INITRAMFS}
        for name, text in texts.items():
            (root / name.replace("__", "/")).write_text(text)
        (root / "usr/sbin/update-initramfs").chmod(0o755)
        try:
            yield root
        finally:
            below = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
            for name in reversed([name for name in below if name.startswith(f"{root}/")]):
                unmount(Path(name))
