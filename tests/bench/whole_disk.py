"""A file system or a LUKS on a whole disk becomes a partition: `aligntool partition` and the ways over a second disk.

    sudo python -m tests.bench.whole_disk [--repeats 5] [--gib 1] [--write docs/benchmarks.md]

The same ext4, a third of it files of 8 MiB all over the disk, on an image without holes that is restored before each
run; the ways alternate. The others need a second disk of the same size, and do not survive a power
cut; they write less to a medium, because nothing is moved on top of itself and nothing is read back.
The LUKS2 is full of random bytes, as an old one is, and its header states its length, so it is moved without its key.
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
from tests.mover.containers import rewrite_segment  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20
COMMAND = "sudo python -m tests.bench.whole_disk --write docs/benchmarks.md"
EXT4, LUKS = "ext4, a third used", "LUKS2, full"
FREE = 64 * MIB  # behind the file system: for the table and the journal
DD = """set -e
printf 'label: gpt\\nstart=1MiB, size={sectors}\\n' | sfdisk -q -w always {other}
dd if={disk} of={other} bs=1M count={mib} seek=1 iflag=direct oflag=direct conv=notrunc,fsync status=none
"""
FILES = """set -e
printf 'label: gpt\\nstart=1MiB, size={sectors}\\n' | sfdisk -q -w always {other}
old=$(losetup -f --show -r {disk})
new=$(losetup -f --show -o 1048576 --sizelimit {length} {other})
mkfs.ext4 -q -F -U $(blkid -s UUID -o value $old) $new
mkdir -p {folder}/old {folder}/new
mount -o ro,noload $old {folder}/old
mount $new {folder}/new
cp -a {folder}/old/. {folder}/new/
umount {folder}/old {folder}/new
losetup -d $old
losetup -d $new
sync {other}
"""


def measured(folder: Path, size: int, repeats: int, content: str) -> dict[str, list[float]]:
    """Return the elapsed seconds by way; the first round is not counted."""
    kept, disk, other = folder / "kept.img", folder / "disk.img", folder / "other.img"
    length = size - FREE
    (_make_luks if content == LUKS else make_ext4)(folder, kept, size, length)
    for image in (disk, other):
        write_out(image, size)
    facts = {"disk": disk, "other": other, "sectors": length // 512, "mib": length // MIB, "length": length}
    ways = {
        "aligntool": aligntool("partition", str(disk), "--yes", "--not-suspended"),
        "dd": ["sh", "-c", DD.format(**facts)],
        "files": ["sh", "-c", FILES.format(**facts, folder=folder)],
    }
    if content == LUKS:
        del ways["files"]  # would need its key
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(repeats + 1):
        for way, words in ways.items():
            run("dd", f"if={kept}", f"of={disk}", "bs=4M", "conv=notrunc,fsync", "status=none")
            for image in (disk, other):
                forget(image)
            seconds = once(words).wall
            if number:
                found[way].append(seconds)
    return found


def make_ext4(folder: Path, image: Path, size: int, length: int) -> None:
    """Write files until it is nine tenths full, and delete two of every three."""
    files = folder / "files"
    files.mkdir()
    count = length * 9 // 10 // (8 * MIB)
    for number in range(count):
        (files / f"{number}").write_bytes(os.urandom(8 * MIB))
    image.write_bytes(b"")
    os.truncate(image, size)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-d", files, image, f"{length // 1024}k")
    gone = [f"rm /{number}" for number in range(count) if number % 3]
    run("debugfs", "-w", "-f", "-", image, stdin="\n".join(gone))
    run("e2fsck", "-fy", image, fails=True)
    run("rm", "-r", files)


def _make_luks(_folder: Path, image: Path, size: int, length: int) -> None:
    run("dd", "if=/dev/urandom", f"of={image}", "bs=4M", f"count={size >> 22}", "status=none")
    words = ("--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", "-")
    run("cryptsetup", "luksFormat", "-q", *words, image, stdin="secret")
    rewrite_segment(image, {"size": str(length - 16 * MIB)})


def table(found: dict[str, dict[str, list[float]]], size: int) -> str:
    rounds = len(found[LUKS]["aligntool"])
    lines = [
        f"{size / GIB:.3g} GiB, {rounds} interleaved rounds; repeat it with `{COMMAND}`.",
        "",
        "| content | way | second disk | survives a power cut | time | its time / aligntool's (range) |",
        "|---|---|---|---|---|---|",
    ]
    names = {"dd": "`sfdisk`, `dd` to another disk", "files": "`sfdisk`, `mkfs.ext4`, `cp -a` to another disk"}
    for content, ways in found.items():
        ours = ways["aligntool"]
        lines.append(f"| {content} | `aligntool partition` | no | yes | {statistics.median(ours):.1f} s | |")
        for way in (way for way in names if way in ways):
            ratios = [other / own for other, own in zip(ways[way], ours, strict=True)]
            words = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
            time = f"{statistics.median(ways[way]):.1f} s"
            lines.append(f"| {content} | {names[way]} | yes | the old disk stays | {time} | {words} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1.0, help="size of the disk")
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    given = parser.parse_args(words)
    size = int(given.gib * GIB) // MIB * MIB
    found = {}
    for content in (EXT4, LUKS):
        with tempfile.TemporaryDirectory(prefix="aligntool-whole-disk-") as name:
            found[content] = measured(Path(name), size, given.repeats, content)
    text = table(found, size)
    print(text)
    if given.write:
        put(given.write, "whole-disk", text)


if __name__ == "__main__":
    main()
