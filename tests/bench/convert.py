"""A disk gets a table and an ESP for sectors of 4096 bytes: `aligntool convert` compared with new file systems.

    sudo python -m tests.bench.convert [--repeats 5] [--gib 1] [--write docs/benchmarks.md]

The same image, an ESP and an ext4 a third full, is copied to a disk with sectors of 4096 bytes (a loop device) by
`convert -o`; by dd and `convert` in place; and by sfdisk, mkfs, mcopy and cp, as it is done by hand.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.old_disks import forget, write_out  # noqa: E402
from tests.bench.page import put  # noqa: E402
from tests.bench.timing import aligntool, once  # noqa: E402
from tests.conftest import run  # noqa: E402
from tests.mover.disks import place  # noqa: E402
from tests.mover.loop_mounts import looped  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20
COMMAND = "sudo python -m tests.bench.convert --write docs/benchmarks.md"
ESP = 64 * MIB
START = MIB + ESP
HAND = """set -e
printf 'label: gpt\\nstart=256, size={esp4}, type=U\\nstart={start4}, size={root4}, type=L\\n' \\
    | sfdisk -q -w always {target}
partx -u {target}
mkfs.fat -F 16 -S 4096 -s 1 -i feed0123 -n ESP {target}p1 > {folder}/said
mkfs.ext4 -q -F -b 4096 -U 20050701-0001-4001-8001-000000000001 {target}p2
printf 'drive o: file="{image}" offset=1048576\\ndrive n: file="{target}p1"\\n' > {folder}/mtoolsrc
MTOOLSRC={folder}/mtoolsrc mcopy -s -p -m -n 'o:/*' n:/
old=$(losetup -f --show -r -o {start} {image})
mkdir -p {folder}/old {folder}/new
mount -o ro,noload $old {folder}/old
mount {target}p2 {folder}/new
cp -a {folder}/old/. {folder}/new/
umount {folder}/old {folder}/new
losetup -d $old
partx -d {target}
sync {target}
"""
DD = "set -e\ndd if={image} of={target} bs=16M iflag=direct oflag=direct conv=fsync status=none\n{convert}\n"


def measured(folder: Path, size: int, repeats: int) -> dict[str, list[float]]:
    """Return the elapsed seconds by way; the first round is not counted."""
    image, disk = folder / "disk.img", folder / "target.img"
    _make(folder, image, size)
    write_out(disk, size)
    found: dict[str, list[float]] = {"copy": [], "dd": [], "hand": []}
    for number in range(repeats + 1):
        for way, seconds in found.items():
            with looped(disk, sector_size=4096) as target:
                run("wipefs", "-qa", target)
                run("dd", "if=/dev/zero", f"of={target}", "bs=1M", "count=1", "conv=fsync", "status=none")
                forget(image)
                forget(disk)
                taken = once(_words(way, folder, image, target, size)).wall
                if number:
                    seconds.append(taken)
    return found


def _words(way: str, folder: Path, image: Path, target: Path, size: int) -> Sequence[str]:
    root = size - START - MIB
    facts = {"image": image, "target": target, "folder": folder, "start": START}
    if way == "copy":
        return aligntool("convert", str(image), "-o", str(target), "--yes")
    if way == "dd":
        journal = folder / "journal"
        convert = aligntool("convert", str(target), "--yes", "--journal", str(journal))
        return ["sh", "-c", DD.format(**facts, convert=" ".join(map(str, convert)))]
    sectors = {"esp4": ESP // 4096, "start4": START // 4096, "root4": root // 4096}
    return ["sh", "-c", HAND.format(**facts, **sectors)]


def _make(folder: Path, image: Path, size: int) -> None:
    """Make an ESP with 8 MiB of files, and an ext4 a third full."""
    files, esp, root = folder / "files", folder / "esp", folder / "root"
    (files / "EFI").mkdir(parents=True)
    (files / "EFI" / "BOOT.EFI").write_bytes(os.urandom(8 * MIB))
    for path, length in ((image, size), (esp, ESP), (root, size - START - MIB)):
        path.write_bytes(b"")
        os.truncate(path, length)
    run("mkfs.fat", "-F", "32", "-s", "1", "-i", "feed0123", "-n", "ESP", "--mbr=n", esp)
    run("mcopy", "-s", "-i", esp, files / "EFI", "::")
    for number in range(size // 3 // (8 * MIB)):
        (files / f"{number}").write_bytes(os.urandom(8 * MIB))
    run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", files, root)
    sectors = f"start=2048,size={ESP // 512},type=U\nstart={START // 512},size={(size - START - MIB) // 512},type=L\n"
    run("sfdisk", "-q", image, stdin=f"label: gpt\n{sectors}")
    place(esp, image, MIB)
    place(root, image, START)
    run("rm", "-r", files, esp, root)


NAMES = {
    "copy": ("`aligntool convert -o`", "the source stays"),
    "dd": ("`dd`, then `aligntool convert`", "the source stays; `convert` itself: yes"),
    "hand": ("`sfdisk`, `mkfs.fat`, `mcopy`, `mkfs.ext4`, `cp -a`", "the source stays"),
}


def table(found: dict[str, list[float]], size: int) -> str:
    ours = found["copy"]
    lines = [
        f"An ESP with 8 MiB and an ext4 a third full on {size / GIB:.3g} GiB, to a loop device with sectors of 4096 "
        f"bytes, {len(ours)} interleaved rounds; repeat it with `{COMMAND}`.",
        "",
        "| way | survives a power cut | time | as long as `convert -o`: median (smallest–largest) |",
        "|---|---|---|---|",
    ]
    for way, (name, safe) in NAMES.items():
        ratios = [other / own for other, own in zip(found[way], ours, strict=True)]
        words = "" if way == "copy" else f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        lines.append(f"| {name} | {safe} | {statistics.median(found[way]):.1f} s | {words} |".replace("  ", " "))
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the disk")
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    given = parser.parse_args(words)
    size = int(given.gib * GIB) // MIB * MIB
    with tempfile.TemporaryDirectory(prefix="aligntool-convert-", dir="/var/tmp") as name:
        text = table(measured(Path(name), size, given.repeats), size)
    print(text)
    if given.write:
        put(given.write, "convert", text)


if __name__ == "__main__":
    main()
