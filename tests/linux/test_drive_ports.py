"""Which SCSI disks are one drive, by the paths of the kernel's transport classes."""

from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.inventory import Source
from aligntool.linux.look import look

BUS = "sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0/host0"
B1 = bytes((0, 0xB1, 0, 60))
# As in sysfs: mpt3sas with a drive behind an expander, aic7xxx, megaraid_sas, mpt3sas with a volume, qla2xxx.
PLACES = {
    "sas": f"{BUS}/port-0:0/expander-0:0/port-0:0:1/end_device-0:0:1/target0:0:1/0:0:1:0",
    "spi": f"{BUS}/target0:0:1/0:0:1:0",
    "raid": f"{BUS}/target0:2:0/0:2:0:0",
    "ir": f"{BUS}/target0:1:0/0:1:0:0",
    "fc": f"{BUS}/rport-0:0-1/target0:0:0/0:0:0:0",
}


def machine(root: Path, place: str, *, rpm: int | None, spi: bool = False) -> Path:
    device = root / place
    disk = device / "block/sda"
    queue = {"logical_block_size": 512, "physical_block_size": 512, "minimum_io_size": 512, "rotational": 1}
    (disk / "queue").mkdir(parents=True)
    for name, number in queue.items():
        (disk / "queue" / name).write_text(f"{number}\n")
    (disk / "dev").write_text("8:0\n")
    (disk / "size").write_text(f"{1 << 28}\n")
    (device / "vendor").write_text("ACME\n")
    (device / "model").write_text("X1\n")
    (disk / "device").symlink_to(device)
    if rpm is not None:
        (device / "vpd_pgb1").write_bytes(B1 + rpm.to_bytes(2, "big") + bytes(58))
    if spi:
        (device.parent / "spi_transport" / device.parent.name).mkdir(parents=True)
    for folder in ("sys/block", "sys/class/block"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "sda").symlink_to(disk)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("")
    return root


@pytest.mark.parametrize(
    ("place", "rpm", "source"),
    [
        ("sas", 10000, Source.REPORTED), ("sas", None, Source.REPORTED), ("sas", 0, Source.ASSUMED),
        ("spi", None, Source.REPORTED), ("raid", None, Source.ASSUMED), ("raid", 7200, Source.ASSUMED),
        ("ir", 0, Source.ASSUMED), ("fc", 15000, Source.ASSUMED),
    ],
)  # fmt: skip
def test_sectors_of_512_bytes_are_trusted_on_the_port_of_a_single_drive(
    tmp_path: Path, place: str, rpm: int | None, source: Source
) -> None:
    root = machine(tmp_path, PLACES[place], rpm=rpm, spi=place == "spi")
    report = audit(look([], sysroot=str(root)), {})
    disk = report.judged[0]
    assert disk.disk.drive_port == (place if place in ("sas", "spi") else None)
    assert disk.disk.rotation_rpm == rpm
    assert disk.grids[0].source is source
