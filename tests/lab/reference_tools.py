"""Record what each program in a guest reports of its odd disks; runs in the guest, as root.

A part of `in_guest`. It writes one file per program and disk of `odd_disks`.
"""

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab.in_guest import OUT, by_serial, ended, start
from tests.lab.odd_disks import DRIVES, GEOMETRIES, LINKS, NVME, PLANS, TABLES, Geometry, Link

SCSI_DEBUG = Path("/sys/bus/pseudo/drivers/scsi_debug")
LIBC, BIND = ctypes.CDLL(None, use_errno=True), 4096  # MS_BIND, mount(2)
SPEED_CODES = {2.5: 1, 5: 2, 8: 3, 16: 4}  # PCI Express Base Specification, Link Capabilities Register


def main(names: Sequence[str]) -> None:
    """Query the links, the NVMe drives and the geometries with these names."""
    # virtme-ng has mounted one of its own there, which could not take the line of an array; another part may have run
    # before.
    subprocess.run(("umount", "/etc/fstab"), check=False)
    Path("/etc/fstab").touch()
    drives = {drive.serial: by_serial()[drive.serial] for drive in DRIVES}
    for drive in NVME:
        partition(drives[drive.nvme.serial], drive.table)
    ask_about_links(drives)
    for drive in NVME:
        serial = drive.nvme.serial
        ask(drives[serial], f"nvme-{serial}")
        for command in ("id-ns", "id-ctrl"):
            say(f"{command}-{serial}.json", "nvme", command, "-o", "json", drives[serial])
    for geometry in (each for each in GEOMETRIES if each.name in names):
        with odd_disk(geometry) as disk:
            partition(disk, geometry.table)
            ask(disk, geometry.name)
            fork(f"audit-{geometry.name}.json", "audit", "--json", str(disk))


@contextlib.contextmanager
def odd_disk(geometry: Geometry) -> Iterator[Path]:
    """Make a disk with the module scsi_debug."""
    print(f"{time.monotonic():.0f} s: {geometry.name}", flush=True)
    run("modprobe", "scsi_debug", "dev_size_mb=64", *geometry.parameters.split())
    run("udevadm", "settle")
    (disk,) = (Path("/dev") / path.name for path in SCSI_DEBUG.glob("adapter*/host*/target*/*:*/block/*"))
    yield disk
    run("udevadm", "settle")
    run("modprobe", "-r", "scsi_debug")


def partition(disk: Path, table: str) -> None:
    first = ["first-lba: 34"] if table == "gpt" else []
    lines = [f"label: {table}", *first, *(f"start={start},size={blocks}" for start, blocks in TABLES[table])]
    run("sfdisk", "--quiet", "--wipe=always", disk, stdin="\n".join(lines))
    run("udevadm", "settle")


def ask(disk: Path, name: str) -> None:
    """Record the kernel's attributes, and parted's answer for each partition."""
    here = Path("/sys/class/block") / disk.name
    kept = [*here.glob("*"), *here.glob("queue/*"), *here.glob(f"{disk.name}*/*")]
    lines = [
        f"{path.relative_to(here)} {path.read_text().strip()}"
        for path in sorted(kept)
        if path.name in ATTRIBUTES and path.is_file()
    ]
    (OUT / f"sysfs-{name}").write_text("\n".join(lines) + "\n")
    numbers = [path.parent.name.removeprefix(disk.name).removeprefix("p") for path in here.glob("*/partition")]
    kinds = ("minimal", "optimal")
    checks = [("align-check", kind, number) for kind in kinds for number in sorted(numbers, key=int)]
    say(f"parted-{name}", "parted", disk, *(word for check in checks for word in check))


ATTRIBUTES = {
    *("alignment_offset", "discard_alignment", "start", "size"),
    *("logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "discard_granularity"),
}


# Links


def ask_about_links(drives: dict[str, Path]) -> None:
    for serial, (drive, port) in LINKS.items():
        device = device_of(drives[serial])
        show(device, drive)
        show(device.parent, port)
    say("lspci", "lspci", "-vv", "-D")
    places = [f"{serial} {device_of(disk)}" for serial, disk in drives.items()]
    (OUT / "places").write_text("\n".join(places) + "\n")
    fork("audit-nvme.json", "audit", "--json", *map(str, drives.values()))
    for name, (level, members) in PLANS.items():
        chosen = [str(drives[serial]) for serial in members]
        fork(f"plan-{name}.json", "raid", "plan", "--level", str(level), "--json", *chosen)


def device_of(disk: Path) -> Path:
    """Return the folder of its PCI device; its parent folders are the devices above it."""
    return (Path("/sys/class/block") / disk.name / "device/device").resolve()


def show(device: Path, link: Link) -> None:
    """Show another link than QEMU has: in the configuration space, which lspci reads, and in the
    kernel's attributes.
    """
    config = bytearray((device / "config").read_bytes())
    at = config[0x34]
    while config[at] != 0x10:
        at = config[at + 1]
    put(config, at + 0x0C, SPEED_CODES[link.max_speed], link.max_width, length=4)
    put(config, at + 0x12, SPEED_CODES[link.speed], link.width, length=2)
    cover(device / "config", bytes(config))
    for word, speed, width in (("current", link.speed, link.width), ("max", link.max_speed, link.max_width)):
        cover(device / f"{word}_link_speed", f"{speed:.1f} GT/s PCIe\n".encode())
        cover(device / f"{word}_link_width", f"{width}\n".encode())


def put(config: bytearray, at: int, speed: int, width: int, *, length: int) -> None:
    """Set bits 3:0 and 9:4 of the link's capabilities and of its status."""
    said = int.from_bytes(config[at : at + length], "little") & ~0x3FF
    config[at : at + length] = (said | speed | width << 4).to_bytes(length, "little")


def cover(path: Path, content: bytes) -> None:
    """Mount another file over one of sysfs."""
    instead = Path("/run/shown") / str(path).replace("/", "-")
    instead.parent.mkdir(exist_ok=True)
    instead.write_bytes(content)
    if LIBC.mount(os.fsencode(instead), os.fsencode(path), None, BIND, None):  # a process for each takes seconds
        raise OSError(ctypes.get_errno(), f"cannot mount over {path}")


# Programs


def run(*words: str | Path, stdin: str = "") -> None:
    subprocess.run([str(word) for word in words], input=stdin, text=True, check=True)


def say(name: str, *words: str | Path) -> None:
    """Record a program's standard output, whatever its exit code: parted's is about the last partition only."""
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    (OUT / name).write_bytes(done.stdout)
    (OUT / f"{name}.err").write_bytes(done.stderr)


def fork(name: str, *words: str) -> None:
    """Run aligntool's command line with these arguments; its exit code is stored next to its standard output."""
    (OUT / f"{name}.exit").write_text(str(ended(start(name, *words))))
