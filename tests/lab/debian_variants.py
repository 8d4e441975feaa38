"""The Debian of `debian` with other packages: its disk is changed by its own apt, and stored next to it.

The image is raw and never written to. A variant is the same system after the commands that a user would type; other
tests need not wait for it.
"""

import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.boots.system import mirror
from tests.conftest import run
from tests.lab import debian
from tests.lab.kernel import CACHE, ROOT
from tests.mover.loop_mounts import mounted, partitioned

INSTALLER = ROOT / "docs/examples/debootstrap-raid1.sh"
# In its own mount namespace, which ends with it; without questions.
_APT = """set -e
mount -t proc proc "$1/proc"
tree=$1; shift
DEBIAN_FRONTEND=noninteractive exec chroot "$tree" apt-get -q -y --no-install-recommends "$@"
"""
QUICK = 'compress="lz4"\n'
# What `test_fresh_system` needs in a system that it installs: its agent, and what aligntool needs.
PACKAGES_OF_NEW = "qemu-guest-agent,python3,python3-parted,python3-pyudev,fdisk,nvme-cli"
# debootstrap takes minutes in an emulated PC and needs a network: the system that it installed here is unpacked there.
INSTALLED = "/srv/installed.tar"
UNPACK = f"""#!/bin/sh
for root; do :; done
exec tar -C "$root" -xpf {INSTALLED}
"""
LISTED = "COMPRESS=lz4\nMODULES=list\n"
# The small kernel of a suite, and what debootstrap needs to know of an Ubuntu that is newer than it.
KERNELS = {"bookworm": "linux-image-cloud-amd64", "trixie": "linux-image-cloud-amd64", "noble": "linux-image-virtual"}
KEYRING = os.environ.get("UBUNTU_KEYRING", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
UBUNTU = ("http://archive.ubuntu.com/ubuntu", "/usr/share/debootstrap/scripts/gutsy")


def disk_with_dracut() -> Path:
    """Return a disk whose initramfs is dracut's, as Debian's package makes it; initramfs-tools is removed."""
    return _variant("dracut", _put_dracut)


def disk_with_grub_at_hand() -> Path:
    """Return a disk with GRUB for UEFI in apt's cache, so that `apt-get install grub-efi-amd64` needs no network."""
    return _variant("grub", _put_grub_at_hand)


def disk_for_peers() -> Path:
    """Return a disk with the programs that other tools for arrays need (`peers_of_ensure`)."""
    return _variant("peers", _put_programs_of_peers)


def disk_for_installing(suite: str) -> Path:
    """Return a disk whose debootstrap unpacks this suite as it was installed here, whatever it is told: with the
    packages of docs/examples/debootstrap-raid1.sh, the small kernel, and PACKAGES_OF_NEW.
    """
    return _variant(f"installing-{suite}", lambda tree: _put_installer(tree, suite))


def _put_installer(tree: Path, suite: str) -> None:
    _apt(tree, "install", "dosfstools")
    _apt(tree, "clean")
    found = re.search(r"^base=\$\{.*?\},(.*)$", INSTALLER.read_text(), re.MULTILINE)
    assert found
    packages = f"{KERNELS[suite]},{found[1]},{PACKAGES_OF_NEW}"
    how: tuple[str, ...] = ()
    source: tuple[str, ...] = (mirror()[0],)
    if suite == "noble":
        how = ("--components=main,universe", f"--keyring={KEYRING}")
        source = UBUNTU
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        root = Path(folder) / "root"
        run("debootstrap", *how, f"--include={packages}", suite, root, *source, limit_s=1800)
        for cached in (root / "var/cache/apt/archives").glob("*.deb"):
            cached.unlink()
        (root / "etc/initramfs-tools/conf.d/quick").write_text(LISTED)
        (root / "etc/initramfs-tools/modules").write_text("nvme\next4\n")
        run("tar", "-C", root, "-cf", f"{tree}{INSTALLED}", ".")
    wrapper = tree / "usr/local/sbin/debootstrap"
    wrapper.write_text(UNPACK)
    wrapper.chmod(0o755)


def _put_programs_of_peers(tree: Path) -> None:
    _apt(tree, "install", "ansible", "python3-apt", "gdisk", "jq")
    _apt(tree, "clean")


def _put_dracut(tree: Path) -> None:
    (tree / "etc/dracut.conf.d").mkdir(parents=True)
    (tree / "etc/dracut.conf.d/quick.conf").write_text(QUICK)
    _apt(tree, "install", "dracut")
    _apt(tree, "clean")
    maker = run("lsinitrd", "-f", "usr/lib/dracut/build-parameter.txt", *(tree / "boot").glob("initrd.img-*"))
    assert maker.strip(), "dracut did not build the initramfs"


def _put_grub_at_hand(tree: Path) -> None:
    _apt(tree, "install", "--download-only", "grub-efi-amd64")
    assert list((tree / "var/cache/apt/archives").glob("grub-efi-amd64_*.deb"))


def _apt(tree: Path, *words: str) -> None:
    run("unshare", "--mount", "sh", "-c", _APT, "sh", tree, *words, limit_s=1800)


def _variant(name: str, put: Callable[[Path], None]) -> Path:
    base = debian.disk()
    inputs = Path(__file__).read_bytes() + INSTALLER.read_bytes()
    key = hashlib.sha256(base.parent.name.encode() + inputs).hexdigest()[:16]
    folder = CACHE / f"debian-{name}-{key}"
    with (CACHE / "debian-variants.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _make(base, folder, put)
    return folder / "disk.img"


def _make(base: Path, folder: Path, put: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="making-", dir=CACHE) as making:
        made = Path(making) / "made"
        made.mkdir()
        run("cp", "--sparse=always", base, made / "disk.img")
        _change(made / "disk.img", put)
        made.rename(folder)


def _change(image: Path, put: Callable[[Path], None]) -> None:
    with partitioned(image) as device, mounted(Path(f"{device}p1"), "mount") as tree:
        _apt(tree, "update")
        put(tree)
