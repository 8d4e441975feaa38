"""Move a partition from sector 63 to 2048: aligntool compared with the closest tools.

`python -m tests.bench.moving --write docs/benchmarks.md` measures whole commands, verification included, on a disk that
is a third used. Here the disks are large and have to be restored before each run.

All commands alternate in each round, so ratios are taken per round. Every command is timed as a whole process including
the final flush, on a disk that is in no cache.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.old_disks import ALIGNED, CONTENTS, MIB, START, OldDisk, make_disk, make_sparse_disk, reset, write_out
from tests.bench.page import put
from tests.bench.timing import Run, aligntool, once
from tests.conftest import attached, find_tool, run

GIB = 1 << 30
OURS, UNVERIFIED = "aligntool", "aligntool, not reading back"
COPYING = "aligntool, its verified copying alone"
UNZEROED, UNLEASED = "aligntool, zeroing nothing", "aligntool --no-lease"
SFDISK, SFDISK_FSYNC, E2IMAGE = "sfdisk --move-data", "sfdisk --move-data --move-use-fsync", "e2image -ra -p"
DD = "dd, direct, of as many bytes"

# The minimum speed of aligntool without verification, as a multiple of the other tool's.
AIMS = {
    ("third", "loop"): {SFDISK: 5.0, E2IMAGE: 1.5, DD: 0.7},
    ("third", "file"): {SFDISK: 5.0, E2IMAGE: 1.0, DD: 0.7},
    ("dense", "loop"): {SFDISK: 1.5, DD: 0.7},
    ("dense", "file"): {SFDISK: 1.0, DD: 0.7},
}

Rounds = Mapping[str, Sequence[Run]]


def moving(folder: Path, size: int, contents: Sequence[str], repeats: int) -> Iterator[str]:
    """Yield the tables, line by line. `size`: bytes of the disk, a multiple of 1 MiB. `contents`: keys of CONTENTS."""
    missing = [name for name in ("sfdisk", "e2image", "mkfs.ext4", "debugfs", "e2fsck") if not find_tool(name)]
    if missing:
        yield f"The mover was not timed: {', '.join(missing)} not installed."
        return
    media = ("loop", "file") if os.geteuid() == 0 else ("file",)
    yield f"One partition on {size / GIB:.3g} GiB, moved from sector 63 to 2048; {repeats} rounds."
    work = folder / "moved.img"
    write_out(work, size)
    results: list[tuple[OldDisk, str, Rounds]] = []
    for content in contents:
        disk = make_disk(folder, size, content)
        left_out = (COPYING, UNZEROED, UNLEASED)
        results += [(disk, medium, _rounds(disk, work, medium, repeats, left_out)) for medium in media]
        disk.image.unlink()
    work.unlink()
    yield ""
    yield from _compared(results)
    yield ""
    yield from _verified(results)


def _rounds(disk: OldDisk, work: Path, medium: str, repeats: int, left_out: Sequence[str] = ()) -> Rounds:
    runs: dict[str, list[Run]] = {}
    for number in range(repeats):
        names = [name for name in _commands(disk, "") if name not in left_out]
        for name in names if number % 2 == 0 else reversed(names):
            reset(disk, work)
            with medium_of(work, medium) as target:
                timed = copying if name == COPYING else once
                runs.setdefault(name, []).append(timed(_commands(disk, target)[name]))
                if name in (OURS, UNVERIFIED, COPYING, UNZEROED, UNLEASED):
                    _see_that_it_moved(disk, target)
    return runs


def _commands(disk: OldDisk, target: str) -> dict[str, list[str]]:
    """Return the commands; each ends with a flush. dd overwrites data it has yet to read; it is there for its rate
    only.
    """
    sfdisk = f"echo 2048, | {find_tool('sfdisk')} -q --no-reread -N 1 {target}"
    e2image = f"{find_tool('e2image')} -ra -p -o {START} -O {ALIGNED} {target} && sync {target}"
    place = f"skip={START} seek={ALIGNED} count={disk.used}"
    flags = "bs=1M iflag=direct,skip_bytes,count_bytes oflag=direct,seek_bytes conv=notrunc,fdatasync"
    commands = {
        OURS: aligntool("realign", target, "--yes"),
        COPYING: aligntool("realign", target, "--yes", "--json"),
        UNZEROED: [sys.executable, str(Path(__file__).with_name("unzeroed.py")), "realign", target, "--yes"],
        UNLEASED: aligntool("realign", target, "--yes", "--no-lease"),
        UNVERIFIED: [sys.executable, str(Path(__file__).with_name("unverified.py")), target],
        SFDISK: ["sh", "-c", f"{sfdisk} --move-data && sync {target}"],
        SFDISK_FSYNC: ["sh", "-c", f"{sfdisk} --move-data --move-use-fsync && sync {target}"],
        E2IMAGE: ["sh", "-c", e2image],
        DD: ["sh", "-c", f"dd if={target} of={target} {place} {flags}"],
    }
    if not disk.is_ext:
        del commands[E2IMAGE]
    return commands


def copying(command: Sequence[str]) -> Run:
    """Return the seconds that the copying steps take, by their events; a step ends when its data are durable and
    verified.
    """
    wall = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for line in process.stdout or ():
            event = json.loads(line)
            if event.get("step") == "CopyContent" and event["event"] != "progress":
                now = time.perf_counter()
                wall += now if event["event"] == "step-done" else -now
    if process.returncode or wall <= 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Run(wall, 0)


@contextmanager
def medium_of(image: Path, medium: str, *, start: int = 0) -> Iterator[str]:
    """Return the image itself, or a loop device over it that bypasses the page cache."""
    if medium == "file":
        yield str(image)
        return
    with attached(image, "--direct-io=on", "-o", str(start)) as device:
        yield str(device)


def _see_that_it_moved(disk: OldDisk, target: str) -> None:
    if f"start={ALIGNED // 512}," not in run("sfdisk", "-d", target).replace(" ", ""):
        raise SystemExit(f"aligntool did not move the partition of {target}")
    if disk.is_ext:
        run("e2fsck", "-f", "-n", f"{target}?offset={ALIGNED}")


def _compared(results: Sequence[tuple[OldDisk, str, Rounds]]) -> Iterator[str]:
    yield "| content | on | compared with | its time / aligntool's, not reading back | its time / aligntool's | aim |"
    yield "|---|---|---|---|---|---|"
    for disk, medium, runs in results:
        for name in runs:
            if name not in (OURS, UNVERIFIED, COPYING):
                aim = _aim(disk, medium, name)
                ratios = f"{_words(runs[name], runs[UNVERIFIED])} | {_words(runs[name], runs[OURS])}"
                yield f"| {disk.content} | {medium} | `{name}` | {ratios} | {aim} |"


def _aim(disk: OldDisk, medium: str, name: str) -> str:
    least = AIMS["third" if disk.content == CONTENTS[0] else "dense", medium].get(name)
    return f"at least {least}" if least else ""


def _words(theirs: Sequence[Run], ours: Sequence[Run]) -> str:
    """Return how many times as long they take, per round."""
    ratios = [their.wall / our.wall for their, our in zip(theirs, ours, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def _verified(results: Sequence[tuple[OldDisk, str, Rounds]]) -> Iterator[str]:
    yield "| content | on | copied | aligntool | rate | peak memory | reading back: time with / without |"
    yield "|---|---|---|---|---|---|---|"
    for disk, medium, runs in results:
        wall = statistics.median(one.wall for one in runs[OURS])
        peak = max(one.peak for one in runs[OURS]) / MIB
        copied = disk.used / MIB
        yield (f"| {disk.content} | {medium} | {copied:,.0f} MiB | {wall:.1f} s | {copied / wall:,.0f} MiB/s "
               f"| {peak:.0f} MiB | {_words(runs[OURS], runs[UNVERIFIED])} |")  # fmt: skip


def growing(folder: Path, sizes: Sequence[int], repeats: int) -> Iterator[str]:
    """Move random bytes: the time per byte must not grow with their number."""
    yield "| disk, all of it moved | median | time a GiB, against the first row | peak memory |"
    yield "|---|---|---|---|"
    first = 0.0
    for size in sizes:
        work = folder / "grown.img"
        disk = make_disk(folder, size, CONTENTS[2])
        write_out(work, size)
        runs = []
        for _ in range(repeats):
            reset(disk, work)
            runs.append(once(aligntool("realign", str(work), "--yes")))
        for image in (disk.image, work):
            image.unlink()
        wall = statistics.median(one.wall for one in runs)
        each = wall / disk.length
        first = first or each
        peak = max(one.peak for one in runs) / MIB
        yield f"| {size / GIB:.3g} GiB | {wall:.1f} s | {each / first:.2f} | {peak:.0f} MiB |"


def nearly_empty(folder: Path, size: int) -> Iterator[str]:
    """Move nearly empty file systems of many TiB: dumpe2fs looks at the bit of every block, xfs_db at runs."""
    yield "| sparse disk | content | used | plan | plan, check and move | the map alone | peak memory |"
    yield "|---|---|---|---|---|---|---|"
    for kind in ("ext4", "xfs") if os.geteuid() == 0 else ("ext4",):
        disk = make_sparse_disk(folder, size, kind)
        is_root = os.geteuid() == 0
        with medium_of(disk.image, "loop" if is_root else "file", start=34 * 512 if is_root else 0) as target:
            # Without root only up to e2fsprogs 1.47.0, which takes an offset.
            ext = ["dumpe2fs", target if is_root else f"{target}?offset={34 * 512}"]
            words = ["xfs_db", "-r", "-c", "freesp -d", target] if kind == "xfs" else ext
            alone = once([str(find_tool(words[0])), *words[1:]])
        plan = once(aligntool("plan", "realign", str(disk.image)))
        move = once(aligntool("realign", str(disk.image), "--yes"))
        _see_that_it_moved(disk, str(disk.image))
        disk.image.unlink()
        peak = max(plan.peak, move.peak) / MIB
        yield (f"| {size / GIB:,.0f} GiB | {disk.content} | {disk.used / MIB:,.0f} MiB | {plan.wall:.1f} s "
               f"| {move.wall:.1f} s | {alone.wall:.1f} s, `{words[0]}` | {peak:.0f} MiB |")  # fmt: skip


def whole_commands(folder: Path, size: int, repeats: int) -> Iterator[str]:
    """Move a disk that is a third used: what parts of a move cost, with everything read back."""
    yield f"{size / GIB:.3g} GiB, a third used, {repeats} interleaved rounds; repeat it with"
    yield "`sudo python -m tests.bench.moving --write docs/benchmarks.md`."
    yield ""
    yield "| on | aligntool | compared with | its time / aligntool's: median (smallest–largest) |"
    yield "|---|---|---|---|"
    work = folder / "moved.img"
    write_out(work, size)
    disk = make_disk(folder, size, CONTENTS[0])
    for medium in ("loop", "file") if os.geteuid() == 0 else ("file",):
        runs = _rounds(disk, work, medium, repeats, (UNVERIFIED, SFDISK, SFDISK_FSYNC, E2IMAGE))
        wall = statistics.median(one.wall for one in runs[OURS])
        for name in (UNZEROED, *((UNLEASED,) if medium == "file" else ())):
            yield f"| {medium} | {wall:.1f} s | `{name}` | {_words(runs[name], runs[OURS])} |"
        wall = statistics.median(one.wall for one in runs[COPYING])
        yield f"| {medium} | {wall:.1f} s, its copying alone | `{DD}` | {_words(runs[DD], runs[COPYING])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="MiB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aligntool-bench-") as folder:
        text = "\n".join(whole_commands(Path(folder), given.size * MIB, given.repeats))
    print(text)
    if given.write:
        put(given.write, "moved", text)


if __name__ == "__main__":
    main()
