"""Many snapshots made from a few: captured machines and made-up ones, with other drives, tables and counters."""

import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aligntool.units import GIB, MIB
from tests.linux.trees import MadeDisk, MadePartition, make_tree

MACHINES = Path(__file__).parent.parent / "machines"
DAY = 86400


def pc(
    folder: Path,
    *,
    start: int = 63 * 512,
    model: str = "WDC WD10EZEX",
    firmware: str = "1A01",
    written: int | None = None,
) -> Path:
    """Make the tree of a machine with a 512e disk of one partition. `written`: bytes per day to that partition."""
    udev = {"ID_BUS": "ata", "ID_MODEL_ENC": model.replace(" ", "\\x20"), "ID_REVISION": firmware}
    disk = MadeDisk(
        "sda", 100 * GIB, [MadePartition(1, start, 10 * GIB), MadePartition(2, 20 * GIB, MIB)], physical=4096,
        rotational=True, model=model, vendor="ATA", firmware=firmware, udev=udev,
    )  # fmt: skip
    root = make_tree(folder, [disk])
    if written is not None:
        sectors = written // 512 * 2  # in two days
        (root / "proc/diskstats").write_text(
            f"   8 0 sda 9 0 9 9 9 0 {10 * sectors} 9 0 9 9\n   8 1 sda1 9 0 9 9 9 0 {sectors} 9 0 9 9\n"
        )
        (root / "proc/uptime").write_text(f"{2 * DAY}.00 1.00\n")
    return root


Members = Mapping[str, tuple[tarfile.TarInfo, bytes]]


def members_of(source: Path) -> Members:
    """Return the members of a snapshot, or of a tree that is put into one."""
    if source.is_dir():
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for each in sorted(source.iterdir()):
                tar.add(each, each.name)
        packed.seek(0)
    else:
        packed = io.BytesIO(source.read_bytes())
    found = {}
    with tarfile.open(fileobj=packed) as tar:
        for info in tar:
            file = tar.extractfile(info) if info.isreg() else None
            found[info.name] = (info, file.read() if file else b"")
    return found


def pack(path: Path, members: Members, changed: Mapping[str, bytes]) -> Path:
    """Write a snapshot with changed contents of some of its files."""
    mode = {".xz": "w:xz", ".gz": "w:gz"}.get(path.suffix, "w")
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, (info, content) in ({name: (tarfile.TarInfo(name), b"") for name in changed} | dict(members)).items():
            new = changed.get(name, content)
            info = members[name][0] if name in members else info
            info.size = len(new)
            tar.addfile(info, io.BytesIO(new))
    return path


def multiplied(
    folder: Path, number: int, *, machines: Sequence[str] = ("lowest-aligned-7",), suffix: str = ".tar"
) -> Iterator[Path]:
    """Write this many snapshots: captured machines in turn, each with its own starts and counters."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [members_of(MACHINES / f"{name}.tar.xz") for name in machines]
    for at in range(number):
        members = sources[at % len(sources)]
        changed = {"proc/uptime": b"172800.00 1.00\n", "proc/diskstats": b""}
        for place, name in enumerate(members):
            if name.endswith("/start") and place % 3 == at % 3:  # a start on or off the boundary, by the number
                changed[name] = str(2048 + at % 2 * 63 + place * 4096).encode()
                node = name.split("/")[-2]
                changed["proc/diskstats"] += f"8 1 {node} 9 0 9 9 9 0 {(at + 1) * 2048} 9 0 9 9\n".encode()
            elif name.endswith("/firmware_rev") and at == 7:
                changed[name] = b"old\n"
        manifest = f'{{"date": "2026-11-{at % 28 + 1:02}T00:00:00Z", "aligntool": "0.1.0", "host": "host{at}"}}'
        yield pack(folder / f"{at:05}{suffix}", members, changed | {"aligntool/manifest.json": manifest.encode()})
