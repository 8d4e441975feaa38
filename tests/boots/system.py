"""A small Debian that prints on its serial line that it has booted, and from where.

Its file tree is built in a folder, with packages from the mirror of this machine's own apt. It is slow to build, so it
is built once and is the same on every disk.
"""

from pathlib import Path

import pytest

from tests.conftest import run

BOOTED = "ALIGNTOOL BOOTED"
PACKAGES = "linux-image-cloud-amd64,initramfs-tools,udev,systemd-sysv,kmod"

ROOT_UUID = "20050701-0001-4001-8001-000000000001"
SWAP_UUID = "20050701-0002-4002-8002-000000000002"

# The kernel counts the start in sectors of 512 bytes, as in sysfs.
REPORT = f"""[Unit]
Description=Tell the serial line that this system has booted, and turn it off
After=multi-user.target swap.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'node=$(basename $(findmnt -no SOURCE /)); \
echo "{BOOTED} root $(cat /sys/class/block/$node/start) swap $(swapon --noheadings --show=UUID) \
failed $(systemctl --failed --no-legend | wc -l) files $(sha256sum /proving-ground | cut -c 1-16)" > /dev/ttyS0; \
systemctl poweroff --no-block'
[Install]
WantedBy=multi-user.target
"""


def mirror() -> tuple[str, str]:
    """Return (address, suite) of the mirror of this machine's own Debian."""
    said = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    for line in said.splitlines():
        address, suite, component = line.split()
        if component == "main" and "-" not in suite and address.rstrip("/").endswith("/debian"):
            return address, suite
    pytest.skip("this machine's apt knows no Debian mirror")


def build(folder: Path) -> Path:
    """Build the tree: a minimal Debian with a kernel, which mounts its root and its swap space by UUID."""
    root = install(folder / "root", PACKAGES)
    with (root / "etc/fstab").open("a") as fstab:
        fstab.write(f"UUID={SWAP_UUID} none swap sw 0 0\n")
    (root / "proving-ground").write_bytes(bytes(range(256)) * 5000)
    start_always(root, "aligntool-booted.service", REPORT)
    return root


def install(root: Path, packages: str) -> Path:
    """Install a minimal Debian with these packages (comma-separated), which mounts its root by UUID."""
    address, suite = mirror()
    run("debootstrap", "--variant=minbase", f"--include={packages}", suite, root, address, limit_s=1800)
    (root / "etc/fstab").write_text(f"UUID={ROOT_UUID} / ext4 defaults 0 1\n")
    (root / "etc/hostname").write_text("proving-ground\n")
    for cached in (root / "var/cache/apt/archives").glob("*.deb"):
        cached.unlink()
    return root


def start_always(root: Path, name: str, unit: str) -> None:
    """Install a systemd unit with this content, started at every boot."""
    units = root / "etc/systemd/system"
    (units / name).write_text(unit)
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / name).symlink_to(f"../{name}")
