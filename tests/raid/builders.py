"""Drives and goals for arrays in short form."""

from dataclasses import replace

from aligntool.audit.judge import audit
from aligntool.audit.report import Judged
from aligntool.change import ArrayPlan, RaidGoal
from aligntool.inventory import Disk, DiskKind, Health, Inventory, KnownGeometry, Layer, LinkHop, Port, Uplink
from aligntool.raid.planning import plan_raid
from aligntool.units import Extent
from tests.audit.builders import made_disk

SIZE = 960_197_124_096  # of many drives sold as 960 GB
ARRAY_UUID = "01234567:89abcdef:01234567:89abcdef"
FS_UUID = "11111111-2222-4333-8444-555555555555"


def drive(number: int, *, size: int = SIZE, logical: int = 512, parts: str = "", phase: int = 0) -> Disk:
    """Return an NVMe drive that was read; `parts` as in tests/audit/builders.py, empty: the drive is blank."""
    name = f"nvme{number}n1"
    disk = made_disk(
        parts, name=name, kind=DiskKind.NVME, logical=logical, physical=4096, rotational=False, size=size, offset=phase
    )
    named = tuple(replace(part, node=f"{name}p{part.number}") for part in disk.partitions)
    return replace(
        disk, partitions=named, content_read=True, model="ACME NV1", serial=f"S{number:04}",
        wwn=f"eui.{number:016x}", firmware="1.0", health=Health(passed=True),
    )  # fmt: skip


def drives(count: int, *, size: int = SIZE, logical: int = 512) -> tuple[Disk, ...]:
    return tuple(drive(number, size=size, logical=logical) for number in range(count))


def linked(disk: Disk, bandwidth: int | None, *, gts: float = 8, width: int = 4, hidden: int | None = None) -> Disk:
    """Put the drive on its own root port; `hidden`: the link of the chipset above that."""
    number = int(disk.name[4:-2])
    end = LinkHop(
        f"0000:0{number}:00.0", Port.ENDPOINT, speed_gts=gts, width=width, bandwidth=bandwidth, max_bandwidth=bandwidth
    )
    root = LinkHop(
        f"0000:00:1{number}.0", Port.CHIPSET_ROOT if hidden else Port.CPU_ROOT, bandwidth=bandwidth,
        hidden_uplink="DMI 3.0 x4" if hidden else None, hidden_bandwidth=hidden,
    )  # fmt: skip
    return replace(disk, links=((end, root),))


def judged(*disks: Disk, known: tuple[KnownGeometry, ...] = ()) -> tuple[Judged, ...]:
    return audit(Inventory(disks), {disk.name: known for disk in disks}).judged


def goal(level: str = "raid1", **words: object) -> RaidGoal:
    """Return a goal with fixed UUIDs."""
    made = RaidGoal(level, array_uuid=ARRAY_UUID, filesystem_uuid=FS_UUID)
    return replace(made, **words)  # type: ignore[arg-type]


def planned(
    wanted: RaidGoal, *disks: Disk, uplinks: tuple[Uplink, ...] = (), known: tuple[KnownGeometry, ...] = ()
) -> ArrayPlan:
    rows = {disk.name: known for disk in disks}
    return plan_raid(judged(*disks, known=known), Inventory(disks, uplinks), wanted, known=rows)


def layer(kind: str, label: str = "") -> Layer:
    return Layer(kind, Extent(0, 4096), label=label)
