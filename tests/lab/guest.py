"""A guest: Debian's kernel on this machine's own file tree, with emulated drives.

A shell script runs as root in the guest and writes its results to /lab, which is a folder of the host. virtme-ng
provides the tree, udev and the console of the guest.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import run
from tests.lab import drives as lab_drives
from tests.lab.drives import Drive
from tests.lab.emulator import started
from tests.lab.kernel import CACHE, Kernel, debian_kernel, virtme_run

INIT = Path(__file__).parent / "init.sh"
LIMIT_S = 600.0
KVM_LIMIT_S = 30.0
# On an emulated processor, mitigations for speculation cost most of the time and protect nothing; and if this machine's
# own processor is busy, the emulated timer is late, which the kernel takes for a broken one and panics
# (arch/x86/kernel/apic/io_apic.c, check_timer).
KERNEL_OPTIONS = (
    "mitigations=off",
    "no_timer_check",
    "nokaslr",
    "module_blacklist=kvm,kvm_amd,kvm_intel,powernow_k8,floppy,psmouse",
)
# QEMU's "max" has AVX, and the C library then uses it; such wide instructions cost an emulated processor 20 % more.
CPU = "Nehalem"
SCRIPT = "script.sh"


@dataclass(frozen=True, slots=True)
class Guest:
    """The definition of a guest before it is started. `folder` gets the images of the drives; a second start reuses
    them.
    """

    folder: Path
    drives: Sequence[Drive]
    memory_mib: int = 1536
    kvm: bool | None = None  # None: if it works
    cpus: int = 2
    kernel_options: Sequence[str] = ()

    def run(self, script: str, *, limit_s: float = LIMIT_S) -> Path:
        """Run this script in a fresh guest until its first failing command; return the folder it wrote to.

        Raises AssertionError with the console output if it fails or takes longer than the limit.
        """
        shared = self.folder / "lab"
        shared.mkdir(exist_ok=True)
        (shared / SCRIPT).write_text(f"set -eu\nexport LC_ALL=C\n{script}\n")
        command = self.command(debian_kernel(), "--show-boot-console", "--script-sh", f"bash /lab/{SCRIPT}")
        with started(command, self.folder / "console") as pc:
            pc.until_off(limit_s)
        return shared

    def cut_off(self, script: str, *, limit_s: float = LIMIT_S) -> Path:
        """Run this script until it creates /lab/cut, and cut the power; return the folder it wrote to."""
        shared = self.folder / "lab"
        shared.mkdir(exist_ok=True)
        (shared / SCRIPT).write_text(f"set -eu\nexport LC_ALL=C\n{script}\n")
        words = self.command(debian_kernel(), "--show-boot-console", "--script-sh", f"bash /lab/{SCRIPT}")
        with started(words, self.folder / "console") as pc:
            deadline = time.monotonic() + limit_s
            while not (shared / "cut").exists():
                assert pc.is_on(), pc.console()
                assert time.monotonic() < deadline, pc.console()
                time.sleep(0.2)
            pc.cut()
        return shared

    def command(self, kernel: Kernel, *options: str) -> list[str]:
        """Return the command line that starts it, with virtme-run's options for what to do inside."""
        (self.folder / "lab").mkdir(exist_ok=True)
        initramfs = self._initramfs(kernel)
        kvm = kvm_works() if self.kvm is None else self.kvm
        qemu = ("-machine", "q35", "-initrd", str(initramfs), *lab_drives.words(self.drives, self.folder))
        return [
            *_virtme(kernel),
            *(() if kvm else ("--disable-kvm",)),
            *("--memory", f"{self.memory_mib}M", "--cpus", str(self.cpus), "--rwdir", f"/lab={self.folder / 'lab'}"),
            *(word for option in (*KERNEL_OPTIONS, *self.kernel_options) for word in ("-a", option)),
            *options,
            *(f"-q={word}" for word in (*qemu, *(() if kvm else ("-cpu", CPU)))),
        ]

    def _initramfs(self, kernel: Kernel) -> Path:
        """Return virtme-ng's own initramfs, followed by an archive whose files replace those of the same name."""
        first, both = self.folder / "virtme.cpio", self.folder / "initramfs.cpio"
        first.unlink(missing_ok=True)
        run(*_virtme(kernel), "--save-initramfs", first, "--dry-run", "--script-sh", "true")
        ours = self.folder / "ours"
        (ours / "modules").mkdir(parents=True, exist_ok=True)
        shutil.copy(INIT, ours / "init")
        (ours / "init").chmod(0o755)
        shutil.copy(kernel.modules / "kernel/fs/overlayfs/overlay.ko", ours / "modules")
        second = self.folder / "ours.cpio"
        run("busybox", "sh", "-c", f"cd '{ours}' && find . | busybox cpio -o -H newc -F '{second}'")
        both.write_bytes(first.read_bytes() + second.read_bytes())
        return both


@cache
def kvm_works() -> bool:
    """Return whether a guest boots and powers off with KVM: a stock kernel hangs in the /dev/kvm of some machines.

    Tested once per boot of this machine.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answer = CACHE / f"kvm-{boot}"
    if not answer.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                Guest(Path(folder), (), kvm=True).run("true", limit_s=KVM_LIMIT_S)
                answer.write_text("yes")
            except AssertionError as error:
                answer.write_text(f"no: {error}")
    return answer.read_text() == "yes"


def _virtme(kernel: Kernel) -> tuple[str, ...]:
    return (
        *(virtme_run(), "--kimg", str(kernel.image), "--mods", "auto"),
        *("--disable-microvm", "--force-9p", "--force-initramfs", "--disable-monitor"),
    )
