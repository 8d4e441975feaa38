"""Machines with an array in short form: drives, the array on their first partitions, and the system's files."""

from collections.abc import Sequence
from dataclasses import replace

from aligntool.audit.report import Report
from aligntool.inventory import ArrayFacts, Disk, DiskKind, Inventory, Layer
from aligntool.system import Initramfs, MdadmConf, System, TableLine, parse_fstab, parse_mdadm_conf
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.builders import made_disk

UUID = "01234567:89abcdef:01234567:89abcdef"
OTHER = "89abcdef:01234567:89abcdef:01234567"
FS = "11111111-2222-4333-8444-555555555555"
RIGHT = f"ARRAY /dev/md/data metadata=1.2 UUID={UUID}"
SIZE = 500 * GIB
LEVELS = {"raid0": 2, "raid1": 2, "raid10": 4, "raid5": 3, "raid6": 4}


def drive(number: int, *, size: int = SIZE, rotational: bool = False, logical: int = 512) -> Disk:
    name = f"nvme{number}n1"
    kind = DiskKind.ATA if rotational else DiskKind.NVME
    sectors = (size - 2 * MIB) // logical
    disk = made_disk(
        f"{MIB // logical}+{sectors}", name=name, kind=kind, logical=logical, physical=4096, rotational=rotational,
        size=size,
    )  # fmt: skip
    parts = tuple(replace(part, node=f"{name}p{part.number}") for part in disk.partitions)
    return replace(disk, partitions=parts, limits=replace(disk.limits, discard_max=2 << 40), content_read=True)


def array(drives: Sequence[Disk], level: str = "raid1", **facts: object) -> Disk:
    """Return the array as the kernel reports a healthy one; `facts` change that."""
    nodes = tuple(f"{disk.name}p1" for disk in drives)
    chunked = level != "raid1"
    made = ArrayFacts(
        level, 64 * KIB if chunked else None, nodes, tuple((node, 131 * MIB) for node in nodes), "1.2", 0,
        devices=len(nodes), each=SIZE - 132 * MIB, uuid=UUID, name="any:data", links=("md/data",), state="clean",
        sync_action=None if level == "raid0" else "idle", policy="none" if level == "raid0" else "bitmap",
        bitmap="none" if level == "raid0" else "internal",
        bitmap_chunk=GIB if level in ("raid5", "raid6") else 64 * MIB,
    )  # fmt: skip
    made = replace(made, **facts)  # type: ignore[arg-type]
    disk = made_disk(name="md127", kind=DiskKind.MD, physical=4096, rotational=False, size=SIZE)
    layer = Layer("ext4", Extent(0, SIZE), uuid=FS, stripe_unit=made.chunk or 0)
    discards = 0 if level in ("raid5", "raid6") else 2 << 40
    limits = replace(disk.limits, minimum_io_size=made.chunk or 4096, discard_max=discards)
    return replace(disk, array=made, slaves=nodes, content=(layer,), content_read=True, limits=limits)


def machine(level: str = "raid1", system: System | None = None, **facts: object) -> Inventory:
    drives = [drive(number) for number in range(LEVELS[level])]
    return Inventory((*drives, array(drives, level, **facts)), system=system)


def lines(*texts: str) -> MdadmConf:
    return parse_mdadm_conf("\n".join(texts), "/etc/mdadm/mdadm.conf")


def fstab(*texts: str) -> tuple[TableLine, ...]:
    return parse_fstab("\n".join(texts))


def image(*texts: str, maker: str = "initramfs-tools", mdadm: bool = True, asked: tuple[str, ...] = ()) -> Initramfs:
    """Return an initramfs; without lines it contains no mdadm.conf."""
    conf = parse_mdadm_conf("\n".join(texts), "etc/mdadm/mdadm.conf") if texts else None
    return Initramfs("/boot/initrd.img-6.1", maker, mdadm, conf, asked)


def system(
    *,
    conf: MdadmConf | None = None,
    fstab: tuple[TableLine, ...] = (),
    crypttab: tuple[TableLine, ...] = (),
    images: tuple[Initramfs, ...] | None = None,
    family: str = "debian",
    hostname: str = "here",
    words: tuple[str, ...] = (),
) -> System:
    """Return a correctly configured system; arguments change that."""
    return System(
        family, hostname, lines(RIGHT) if conf is None else conf, fstab, crypttab,
        (image(RIGHT),) if images is None else images, words, late_start=True,
    )  # fmt: skip


def finding_codes(report: Report) -> list[tuple[str, str]]:
    """Return the code and severity of every finding about arrays."""
    found = [(one.code.value, one.severity.value) for one in report.findings]
    return sorted(pair for pair in found if pair[0].startswith("AT6"))
