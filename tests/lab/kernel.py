"""Debian's own kernel, unpacked into `.lab/`, which git ignores; and whether KVM runs it here.

It is downloaded once from the packages of this machine's apt. A machine without apt or network is detected here.
"""

import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import find_tool, run

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".lab"
META_PACKAGE = "linux-image-amd64"
_PARTS = re.compile(r"^ *Depends: (linux-(?:base|binary|modules)-\d\S*)$", re.MULTILINE)  # since Debian 14


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its image, and the tree with its modules in lib/modules/VERSION."""

    version: str
    tree: Path

    @property
    def image(self) -> Path:
        return self.tree / "boot" / f"vmlinuz-{self.version}"

    @property
    def modules(self) -> Path:
        return self.tree / "lib" / "modules" / self.version


def debian_kernel() -> Kernel:
    """Return the kernel in `.lab/`, or download the current one of apt. Skips if there is neither."""
    if platform.machine() != "x86_64":
        pytest.skip(f"the lab's kernel is {META_PACKAGE}, and this is a {platform.machine()}")
    for image in sorted(CACHE.glob("kernel-*/boot/vmlinuz-*"), reverse=True):
        return Kernel(image.name.removeprefix("vmlinuz-"), image.parent.parent)
    for tool in ("apt-cache", "apt-get", "dpkg"):
        if not find_tool(tool):
            pytest.skip(f"no {tool}: the lab's kernel is a package of Debian")
    depends = run("apt-cache", "depends", META_PACKAGE, fails=True)
    found = re.search(r"^ *Depends: (linux-image-(\S+))$", depends, re.MULTILINE)
    if not found:
        pytest.skip(f"apt knows no {META_PACKAGE} (has `apt-get update` run?)")
    return _fetch(found[1], found[2])


def _fetch(package: str, version: str) -> Kernel:
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as folder:
        parts = _PARTS.findall(run("apt-cache", "depends", package, fails=True))
        done = subprocess.run(
            ["apt-get", "-qq", "download", package, *parts], cwd=folder, capture_output=True, text=True, check=False
        )
        packages = list(Path(folder).glob("*.deb"))
        if done.returncode or not packages:
            pytest.skip(f"apt-get could not download {package}: {done.stderr.strip()}")
        made, ready = Path(folder) / "tree", CACHE / f"kernel-{version}"
        for each in packages:
            run("dpkg", "-x", each, made)
        if not (made / "lib").exists():  # since Debian 13 the modules are in /usr/lib
            (made / "lib").symlink_to("usr/lib")
        image = made / "boot" / f"vmlinuz-{version}"
        if not image.exists():  # since Debian 14 it is among the modules
            image.parent.mkdir(exist_ok=True)
            image.symlink_to(Path("../lib/modules", version, "vmlinuz"))
        packed = list(made.rglob("*.ko.xz"))  # since Debian 13; the first insmod of the guest knows only plain ones
        if packed:
            run("xz", "--decompress", *packed)
        run("depmod", "-b", made, version)
        if not ready.exists():
            made.rename(ready)
    return Kernel(version, ready)


def virtme_run() -> str:
    """Return virtme-ng's program that starts guests, from the environment of the tests."""
    busybox = find_tool("busybox")
    if busybox and "=>" in run("ldd", busybox, fails=True):
        pytest.skip("busybox is not linked statically, and an initramfs has no libraries (package busybox-static)")
    beside = Path(sys.executable).parent / "virtme-run"
    found = str(beside) if beside.exists() else shutil.which("virtme-run")
    if not found:
        pytest.skip("virtme-ng is not installed; `make test` installs it")
    return found
