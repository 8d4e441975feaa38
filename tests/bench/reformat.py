"""Another LBA format for a RAID1 of NVMe drives: `aligntool raid reformat` compared with two ways to do it by hand.

    python -m tests.bench.reformat [--repeats 3] [--write docs/benchmarks.md]

One emulated PC with three NVMe drives that have formats of 512 and 4096 bytes; the ways alternate, each on a new array
that is filled, and hashed before and after. The processor is emulated, so only ratios mean anything.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.page import put  # noqa: E402

COMMAND = "python -m tests.bench.reformat --write docs/benchmarks.md"
MEMBER = """printf 'label: gpt\\nstart=256, size=61440, type=R, name=data\\n' | sfdisk -q $drive
udevadm settle
"""
WAYS = {
    "aligntool": "exec {python} -m aligntool raid reformat /dev/md/data --lba-size 4096 --yes",
    "one by one": """set -e
for drive in {first} {second}; do
  mdadm -q /dev/md/data --fail ${{drive}}p1
  mdadm -q /dev/md/data --remove ${{drive}}p1
  nvme format $drive --lbaf=4 --ses=0 --force
  """
    + MEMBER
    + """  mdadm -q /dev/md/data --add ${{drive}}p1
  mdadm --wait /dev/md/data || true
done
""",
    "restored": """set -e
mkfs.ext4 -q -F {other}
mkdir -p /run/array /run/copy
mount {other} /run/copy
mount /dev/md/data /run/array
cp -a /run/array/. /run/copy/
umount /run/array
mdadm -q --stop /dev/md/data
for drive in {first} {second}; do
  nvme format $drive --lbaf=4 --ses=0 --force
  """
    + MEMBER
    + """done
mdadm -q --create /dev/md/data --run --level=1 --raid-devices=2 --bitmap=internal --homehost=any --name=data \\
  {first}p1 {second}p1
mkfs.ext4 -q -F -b 4096 /dev/md/data
mount /dev/md/data /run/array
cp -a /run/copy/. /run/array/
umount /run/array /run/copy
mdadm --wait /dev/md/data || true
""",
}
ROWS = {
    "one by one": "`mdadm --fail`, `--remove`, `nvme format`, sfdisk, `mdadm --add`, `--wait`, for each member",
    "restored": "copy the files away, format, `mdadm --create`, mkfs, copy them back",
}


def inside(repeats: int) -> None:
    """In the guest: write a line of JSON for each time to /lab/times."""
    from tests.lab import reformat_cases as lab
    from tests.lab.in_guest import OUT, by_serial, run

    lab.prepare()
    case = lab.CASES[0]
    drives = [str(by_serial()[serial]) for serial in lab.SERIALS[:3]]
    named = dict(zip(("first", "second", "other"), drives, strict=True), python=sys.executable)
    with (OUT / "times").open("w") as out:
        for number in range(repeats + 1):
            for way, script in WAYS.items():
                lab.clear()
                lab.make(case)
                sums = lab.filled(case)
                began = time.monotonic()
                run("sh", "-c", script.format(**named))
                seconds = time.monotonic() - began
                if lab.sums_of(case) != sums:
                    raise SystemExit(f"{way}: the files differ")
                print(f"{number} {way}: {seconds:.1f} s", flush=True)
                out.write(json.dumps([number, way, seconds]) + "\n")
                out.flush()


def measured(repeats: int) -> dict[str, list[float]]:
    """Return the seconds by way; the first run of each is not counted."""
    from tests.lab.drives import Nvme
    from tests.lab.guest import Guest
    from tests.lab.reformat_cases import SERIALS, SIZE

    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="aligntool-reformat-") as name:
        guest = Guest(Path(name), tuple(Nvme(serial, size=SIZE) for serial in SERIALS))
        script = f"cd '{ROOT}'\n'{sys.executable}' -m tests.bench.reformat --inside --repeats {repeats}"
        shared = guest.run(script, limit_s=3600.0)
        for line in (shared / "times").read_text().splitlines():
            number, way, seconds = json.loads(line)
            if number:
                found[way].append(seconds)
    return found


def table(found: dict[str, list[float]]) -> str:
    ours = found["aligntool"]
    rows = []
    for way, words in ROWS.items():
        ratios = [mine / theirs for mine, theirs in zip(ours, found[way], strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        times = f"{statistics.median(ours):.0f} s | {statistics.median(found[way]):.0f} s"
        rows.append(f"| `aligntool raid reformat` | {words} | {times} | {ratio} |")
    return "\n".join(
        (
            f"An emulated PC, {len(ours)} interleaved rounds; repeat it with `{COMMAND}`.",
            "",
            "| aligntool | compared with | its time | the other's | its / the other's: median (smallest–largest) |",
            "|---|---|---|---|---|",
            *rows,
        )
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="put the results into this page, between its markers")
    given = parser.parse_args(words)
    if given.inside:
        return inside(given.repeats)
    text = table(measured(given.repeats))
    print(text)
    if given.write:
        put(given.write, "reformat", text)
    return None


if __name__ == "__main__":
    main()
