"""Disks of odd geometry, for which the audit is compared with the kernel and parted.

The parameters of `scsi_debug`, the tables and the NVMe drives, as values. Two programs read them: the tests here, and
`reference_tools` in the guest.
"""

from dataclasses import dataclass

from tests.lab.drives import MIB, Nvme, Port, Switch

# First block and length, in logical blocks. Multiples of 8 and not, 7 past a multiple of 8 and not, whole MiB and not.
TABLES = {
    "dos": ((63, 937), (2048, 2056), (4104, 2048), (10001, 1999)),
    "gpt": ((63, 900), (1088, 900), (2055, 1000), (5000, 2000), (8192, 2048)),
}


@dataclass(frozen=True, slots=True)
class Geometry:
    """One configuration of the module scsi_debug: a disk of this geometry with this table."""

    name: str
    parameters: str  # of the module; sizes in blocks
    table: str


GEOMETRIES = (
    Geometry("512e", "sector_size=512 physblk_exp=3", "dos"),
    Geometry("4Kn", "sector_size=4096", "gpt"),
    Geometry("lowest-aligned-7", "sector_size=512 physblk_exp=3 lowest_aligned=7", "gpt"),
    # As USB bridges report it: 65535 blocks. The kernel accepts it unless it is not a multiple of the physical block.
    Geometry("bogus-optimal", "sector_size=512 opt_blks=65535", "dos"),
    Geometry(
        "unmap-alignment",
        "sector_size=512 physblk_exp=3 opt_blks=65528 lbpu=1 unmap_granularity=64 unmap_alignment=8",
        "gpt",
    ),
)

ALWAYS = ("lowest-aligned-7", "bogus-optimal")  # NVMe drives are also 512e and 4Kn


@dataclass(frozen=True, slots=True)
class Drive:
    """An NVMe drive with a table."""

    nvme: Nvme
    table: str


NVME = (
    Drive(Nvme("512", size=64 * MIB), "dos"),
    Drive(Nvme("512e", size=64 * MIB, physical=4096), "gpt"),
    Drive(Nvme("4Kn", size=64 * MIB, block=4096), "gpt"),
)

SWITCH = Switch("switch", Port("uplink", speed="8", width=4))
BEHIND_SWITCH = (Nvme("left", size=1024 * MIB, behind=SWITCH), Nvme("right", size=1024 * MIB, behind=SWITCH))
X4, X2, SLOWED = (
    Nvme(name, size=1024 * MIB, behind=Port(f"port-{name}", speed="8", width=width))
    for name, width in (("x4", 4), ("x2", 2), ("slowed", 4))
)
DRIVES = (*(drive.nvme for drive in NVME), *BEHIND_SWITCH, X4, X2, SLOWED)


@dataclass(frozen=True, slots=True)
class Link:
    """A PCIe link as one of its two ends reports it."""

    speed: float  # GT/s
    width: int
    max_speed: float
    max_width: int


# QEMU 7.2 gives every drive one lane of 2.5 GT/s, and its ports capabilities that are not used. So the configuration
# space that the guest sees is changed: of the drive, and of the port above it.
LINKS = {
    X4.serial: (Link(8, 4, 8, 4), Link(8, 4, 8, 4)),
    X2.serial: (Link(8, 2, 8, 4), Link(8, 2, 8, 2)),
    SLOWED.serial: (Link(2.5, 1, 8, 4), Link(2.5, 1, 8, 4)),
}

# The drives and the level of each planned array.
PLANS = {
    "behind-switch": (0, ("left", "right")),
    "x4-and-x2": (0, ("x4", "x2")),
    "slowed-mirror": (1, ("x4", "slowed")),
}
