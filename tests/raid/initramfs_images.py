"""Initramfs images, made by the programs that make them: mkinitramfs, dracut, cpio.

mkinitramfs reads the machine's own /etc and /lib/modules, so it runs here on a copy of the machine's tree that is in
memory and is dropped afterwards.
"""

import subprocess
from pathlib import Path

from tests.conftest import run

VERSION = "6.1.0-test"
UUID = "01234567:89abcdef:01234567:89abcdef"
LINE = f"ARRAY /dev/md/data metadata=1.2 UUID={UUID}"

# An overlay over the root: the configuration for mkinitramfs is written there, and nowhere else.
_DEBIAN = """set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"; cd "$1"; mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount --bind /proc root/proc; mount --bind /dev root/dev
mount -t tmpfs tmpfs root/tmp; mount -t tmpfs tmpfs root/var/tmp
mkdir -p root/lib/modules/$2 root/etc/mdadm root/boot
: > root/lib/modules/$2/modules.order; : > root/lib/modules/$2/modules.builtin
depmod -b root $2
printf 'CONFIG_RD_GZIP=y\\nCONFIG_RD_ZSTD=y\\n' > root/boot/config-$2
printf '%s\\n' "$3" > root/etc/mdadm/mdadm.conf
sed -i "s/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=$4/" root/etc/initramfs-tools/initramfs.conf
chroot root mkinitramfs -o /boot/made.img $2 >&2
cat root/boot/made.img
"""


def by_mkinitramfs(folder: Path, conf: str, *, compress: str = "zstd") -> Path:
    """Make Debian's image with Debian's own hook for mdadm. `conf`: the content of mdadm.conf."""
    image, place = folder / f"initrd.img-{VERSION}", folder / "copy"
    place.mkdir()
    words = ("unshare", "-m", "sh", "-c", _DEBIAN, "sh", str(place), VERSION, conf, compress)
    done = subprocess.run(words, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    image.write_bytes(done.stdout)
    return image


def by_dracut(folder: Path, conf: str, *, command_line: str = "") -> Path:
    """Make dracut's image without the modules of a kernel; `conf` becomes its /etc/mdadm.conf."""
    image, file, told = folder / f"initramfs-{VERSION}.img", folder / "mdadm.conf", folder / "90.conf"
    file.write_text(conf + "\n")
    told.write_text(command_line + "\n")
    more = ["--include", str(told), "/etc/cmdline.d/90mdraid.conf"] if command_line else []
    run(
        "dracut", "--no-kernel", "--force", "--no-hostonly", "--no-early-microcode", "--modules", "base mdraid",
        "--include", str(file), "/etc/mdadm.conf", *more, str(image),
    )  # fmt: skip
    return image


def by_cpio(folder: Path, files: dict[str, bytes], *, compress: str = "", early: bool = False) -> Path:
    """Make a plain archive of these files, packed by that program; `early`: after uncompressed microcode."""
    image = folder / "made.img"
    head = _archive(folder / "early", {"kernel/x86/microcode/GenuineIntel.bin": b"\1" * 5000}) if early else b""
    body = _archive(folder / "main", files)
    if compress:
        options = ("-l", "-c") if compress == "lz4" else ("-c",)  # the kernel reads its older format only
        body = subprocess.run((compress, *options), input=body, capture_output=True, check=True).stdout
    image.write_bytes(head + body)
    return image


def _archive(folder: Path, files: dict[str, bytes]) -> bytes:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    script = 'cd "$1" && find . | LC_ALL=C sort | cpio -o -H newc --quiet'
    return subprocess.run(("sh", "-c", script, "sh", str(folder)), capture_output=True, check=True).stdout
