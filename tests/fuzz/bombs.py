"""Files of about 1 MiB that are as expensive as possible, and what every command that reads them costs.

    python -m tests.fuzz.bombs [NAME ...]

prints a table with the worst command of each, for docs/benchmarks.md. The limits are those of decision 0055.
"""

import argparse
import gzip
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from aligntool.change import SCHEMA as PLAN_SCHEMA
from aligntool.change import VERSION as PLAN_VERSION
from aligntool.measure.results import SCHEMA as BENCH_SCHEMA
from aligntool.measure.results import VERSION as BENCH_VERSION
from aligntool.mover.journal_format import BODY_AT, COPIES, RECORD_SLOTS, Head, Position, Record, padded
from aligntool.units import GIB, KIB, MIB
from tests.fuzz import worst_cases
from tests.fuzz.checksums import fix_checksums
from tests.fuzz.handmade_layers import be, ext, le, md, md_0_90, packed, swap, xfs
from tests.fuzz.handmade_seeds import mbr
from tests.fuzz.sparse import Piece, SparseDisk, of_pieces
from tests.fuzz.worst_cases import TAR_MEMBER, TAR_RECORD, lvm_at, tar_header

SECONDS = 5  # of processor time, of a command and all its children
MEMORY = 150 * MIB  # of the largest of its processes
ROOT = os.environ.get("ALIGNTOOL_TREE") or str(Path(__file__).parents[2])  # another one to compare with

_LAUNCHER = """
import ctypes, os, resource, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: children of children end here, too
limit, code, seconds, memory = int(sys.argv[1]), None, 0, 0
pid = os.fork()
if not pid:
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    os.dup2(2, 1)
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    try:
        ended, status, usage = os.wait4(-1, 0)
    except ChildProcessError:
        break
    code = os.waitstatus_to_exitcode(status) if ended == pid else code
    seconds += usage.ru_utime + usage.ru_stime
    memory = max(memory, usage.ru_maxrss * 1024)
print(code, seconds, memory)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took. A process that was ended by the limit of processor time has a negative code."""

    code: int
    seconds: float
    memory: int
    output: int

    @property
    def is_allowed(self) -> bool:
        return self.code >= 0 and self.seconds <= SECONDS and self.memory <= MEMORY


def cost_of(words: Sequence[str | Path], *, limit: int = 2 * SECONDS) -> tuple[Cost, str]:
    """Run aligntool, and return its cost and the last part of what it printed. The process in between has the peak of
    memory of this one; the command has not.
    """
    launcher = (sys.executable, "-S", "-E", "-c", _LAUNCHER, str(limit), sys.executable, "-m", "aligntool")
    with tempfile.TemporaryFile() as printed:
        done = subprocess.run(
            (*launcher, *map(str, words)), stdout=subprocess.PIPE, stderr=printed, stdin=subprocess.DEVNULL, text=True,
            check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": ROOT, "NO_COLOR": "1", "COLUMNS": "100"},
        )  # fmt: skip
        length = printed.seek(0, os.SEEK_END)
        printed.seek(max(0, length - 4096))
        tail = printed.read().decode("utf-8", "replace")
    code, seconds, memory = done.stdout.split()
    return Cost(int(code), float(seconds), int(memory), length), tail


# Disks.

IMAGE = (
    ("audit", "IMG"), ("audit", "--json", "IMG"), ("audit", "-v", "--map", "IMG"),
    ("audit", "--format", "prometheus", "IMG"), ("report", "-o", "-", "IMG"), ("status", "IMG"),
    ("plan", "realign", "IMG"), ("plan", "convert", "IMG", "--sector-size", "4096"), ("plan", "partition", "IMG"),
)  # fmt: skip


def lvm_text(volumes: int, segments: int, *, status: str = "VISIBLE", length: int = 1) -> bytes:
    """Return metadata with this many logical volumes of this many segments, each a sector after the one before."""
    listed = []
    for volume in range(volumes):
        parts = "".join(
            f"segment{at}{{start_extent={at * length}\nextent_count={length}\n"
            f'stripes=["p",{(volume * segments + at) * length}]}}\n'
            for at in range(segments)
        )
        listed.append(f'l{volume}{{status=["{status}"]\n{parts}}}\n')
    return (
        'v{extent_size=1\nphysical_volumes{p{id="abcdef-ghij-klmn-opqr-stuv-wxyz-ABCDEF"\npe_start=9\npe_count=10}}\n'
        f"logical_volumes{{{''.join(listed)}}}}}\n"
    ).encode()


def over(places: Sequence[tuple[int, int]], pieces: Sequence[tuple[int, bytes]], size: int = 4 * MIB) -> SparseDisk:
    """Return a disk with a GPT of these places over these pieces."""
    disk = worst_cases.gpt_of(places, size=size)
    return SparseDisk(disk.size, (*disk.pieces, *(Piece(at, content) for at, content in pieces)))


def image(path: Path, disk: SparseDisk) -> None:
    with path.open("wb") as file:
        file.truncate(disk.size)
        for piece in disk.pieces:
            file.seek(piece.at)
            file.write(piece.content)


FIRST = 201  # sector, behind the entries of a table of 700, off every grid


def many_segments() -> SparseDisk:
    """The same volume with 14,000 segments in 400 partitions."""
    return over([(FIRST, 8000)] * 400, lvm_at(FIRST * 512, lvm_text(1, 14_000)))


def many_volumes() -> SparseDisk:
    """The same 9,000 volumes, each off the grid, in 250 partitions."""
    return over([(FIRST, 8000)] * 250, lvm_at(FIRST * 512, lvm_text(9000, 1)))


def volumes_to_look_into() -> SparseDisk:
    """9,000 volumes that are looked into, in 250 partitions of different lengths."""
    text = lvm_text(9000, 1, length=4)
    return over([(FIRST, 8000 - at) for at in range(200)], lvm_at(FIRST * 512, text))


def many_lengths() -> SparseDisk:
    """The same volume, in partitions of different lengths, none of which is equal to another."""
    return over([(FIRST, 2**40 - at) for at in range(250)], lvm_at(FIRST * 512, lvm_text(3000, 3)))


def many_members() -> SparseDisk:
    """Array members at different places, all with the same volume inside."""
    inside = 1000 * 512
    pieces = lvm_at(inside, lvm_text(5000, 1))
    starts = range(FIRST + 56, 990, 9)
    for start in starts:
        at, superblock = md("1.2", 1, data=1000 - start, size=4096 * 512)
        pieces.append((start * 512 + at, superblock))
    disk = over([(start, 8000) for start in starts], pieces)
    return fix_checksums(disk)


def nested_volumes() -> SparseDisk:
    """Volumes in volumes in volumes."""
    text = lvm_text(1, 1, length=1 << 20)
    pieces = [piece for depth in range(8) for piece in lvm_at((FIRST + 9 * depth) * 512, text)]
    return over([(FIRST, 8000)] * 250, [*pieces, *lvm_at((FIRST + 72) * 512, lvm_text(9000, 1))])


def many_entries() -> SparseDisk:
    """A GPT of 7,900 entries for one place, off the grid, with one copy."""
    return _one_copy([(17_001, 17_100)] * 7900)


def adjacent_entries() -> SparseDisk:
    """A GPT of 7,900 entries, one behind the other, each off the grid by another amount."""
    return _one_copy([(17_000 + 17 * at, 17_016 + 17 * at) for at in range(7900)])


def distant_entries() -> SparseDisk:
    """A GPT of 256 entries, so far from each other that journals could lie before each of them."""
    return over([(FIRST + 200_000 * (1 + at), 200_300 + 200_000 * (1 + at)) for at in range(256)], [], size=128 * GIB)


def damaged_table() -> SparseDisk:
    """A disk of 128 GiB whose table is damaged, so that 32 GiB of it are searched for a journal."""
    disk = over([(FIRST + 100_000 * (1 + at), 200_300 + 100_000 * (1 + at)) for at in range(100)], [], size=128 * GIB)
    return disk.with_bytes(1024 + 100, b"x")


def _one_copy(places: Sequence[tuple[int, int]]) -> SparseDisk:
    disk = worst_cases.gpt_of(places, size=128 * MIB)
    return SparseDisk(disk.size, disk.pieces[:3])


def many_headers() -> SparseDisk:
    """A LUKS2 header with as many segments and digests as fit, in 250 partitions."""
    segment = {"type": "crypt", "offset": "65536", "size": "4096", "sector_size": 512, "encryption": "aes"}
    segments = {str(at): {**segment, "flags": [f"x{at}"]} for at in range(1700)}
    digests = {str(at): {"segments": [str(at)] * 20} for at in range(1700)}
    segments["p"] = {**segment, "flags": ["backup-previous"]}
    segments["f"] = {**segment, "flags": ["backup-final"]}
    config = {"requirements": {"mandatory": ["online-reencrypt-v2"]}}
    return _luks({"segments": segments, "digests": digests, "config": config})


def deep_header() -> SparseDisk:
    """LUKS2 metadata nested as deep as fits."""
    return _luks(json.loads("1"), raw=b"[" * 500_000)


def wide_header() -> SparseDisk:
    """LUKS2 metadata of as many values as fit."""
    return _luks(json.loads("1"), raw=b'{"segments":[' + b"[]," * 168_000 + b"[]]}")


def _luks(tree: object, raw: bytes | None = None) -> SparseDisk:
    text, size = raw or json.dumps(tree, separators=(",", ":")).encode(), 512 * KIB
    header = packed(4096, (0, b"LUKS\xba\xbe\0\2"), (8, be(size, 8)), (16, be(3, 8)), (72, b"sha256"))
    header = (header + text).ljust(size, b"\0")
    header = header[:448] + sha256(header).digest() + header[480:]
    return over([(FIRST, 8000)] * 250, [(FIRST * 512, header)])


def everything_at_once() -> SparseDisk:
    """All superblocks that fit beside each other, in 250 partitions."""
    start, size = FIRST * 512, 6400 * 512
    pieces = [(start + at, content) for at, content in (ext(), xfs(), swap(), md("1.2"), md_0_90(size))]
    return fix_checksums(over([(FIRST, FIRST + 6399)] * 250, [*pieces, *lvm_at(start, lvm_text(1000, 1))]))


def long_chain() -> SparseDisk:
    """A chain of EBRs through the whole disk, and a member with a volume in every partition."""
    pieces = [(0, mbr((0x05, 1, 2047)))]
    for at in range(1, 2040):
        pieces.append((at * 512, mbr((0x83, 8 if at % 2 else 0x7FFFFFFF, 100), (0x05, at, 1))))
    return of_pieces(MIB, pieces)


DISKS: Mapping[str, Callable[[], SparseDisk]] = {
    disk.__name__: disk
    for disk in (
        many_segments, many_volumes, volumes_to_look_into, many_lengths, many_members, nested_volumes, many_entries,
        adjacent_entries, distant_entries, damaged_table, many_headers, deep_header, wide_header, everything_at_once,
        long_chain,
    )
}  # fmt: skip


# Journals: the index of a body is hostile.


def journal(index: bytes, blobs: bytes = b"") -> SparseDisk:
    body = zlib.compress(le(len(index), 8) + index + blobs, 9)
    length = 480 * KIB
    pieces = []
    for copy in COPIES:
        at, id_ = 64 * KIB + copy * length, b"i" * 16
        head = Head(copy, id_, length, len(body), sha256(body).digest())
        pieces += [(at, head.sealed()), (at + BODY_AT, padded(body))]
        records = [Record(number, Position(0)) for number in range(RECORD_SLOTS)]
        pieces += [(at + 4096 * record.slot, record.sealed(id_)) for record in records]
    parked = mbr((0x7F, 2000, 40))
    address = (64 * KIB // 512).to_bytes(6, "little")
    parked = parked[:447] + address[:3] + parked[450:451] + address[3:] + parked[454:]
    return SparseDisk(MIB, (Piece(0, parked), *(Piece(at, content) for at, content in pieces)))


def _index(plan: str) -> bytes:
    return json.dumps(
        {"plan": plan, "images": {"before": [], "parked": [], "after": []}, "runs": [], "held": []}
    ).encode()


_FULL = b"[]," * 990_000
_IMAGES = b'{"plan":"","runs":[],"held":[],"images":{"before":[%b[]],"parked":[],"after":[]}}'
INDEXES: Sequence[bytes] = (
    b"[" + _FULL + b"[]]", b"[" + b"{}," * 990_000 + b"{}]", b"[" + b'{"":1},' * 600_000 + b"0]",
    b"[" + b"1," * 1_990_000 + b"1]", b"[" * 1_900_000, _IMAGES % (b"[[0,0]]," * 300_000),
    _index(f"[{_FULL.decode()}[]]"), _index("[").replace(b"[", b"\\u005b\\u005d\\u002c" * 800_000, 1),
)  # fmt: skip
JOURNALS: Mapping[str, Callable[[], SparseDisk]] = {
    "journal of zeros": lambda: journal(b"", bytes(400 * MIB)),
    **{f"journal {number}": partial(journal, index) for number, index in enumerate(INDEXES)},
}


# Documents.


def bench_result(path: Path) -> None:
    rows = ",".join("[]" for _ in range(340_000))
    path.write_text(f'{{"schema": "{BENCH_SCHEMA}", "version": {BENCH_VERSION}, "tests": [{rows}]}}')


def saved_plan(path: Path) -> None:
    steps = ",".join('{"kind":"x"}' for _ in range(75_000))
    path.write_text(f'{{"schema": "{PLAN_SCHEMA}", "version": {PLAN_VERSION}, "steps": [{steps}]}}')


def deep_json(path: Path) -> None:
    path.write_text("[" * MIB)


def wide_json(path: Path) -> None:
    path.write_text("[" + "[]," * 340_000 + "[]]")


def dotted_keys(path: Path) -> None:
    path.write_text("".join(f"{'a.' * 200}b{at} = 1\n" for at in range(1300)))


def one_dotted_key(path: Path) -> None:
    path.write_text("a" + ".a" * 260_000 + " = 1\n")


def many_tables(path: Path) -> None:
    path.write_text("".join(f"[a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z{at}]\n" for at in range(16_000)))


def many_keys(path: Path) -> None:
    path.write_text("".join(f"k{at} = 1\n" for at in range(75_000)))


def deep_lists(path: Path) -> None:
    path.write_text("a = " + "[" * 500_000)


def inline_tables(path: Path) -> None:
    lines = (f"b{at} = {{a.b.c = 1}}\n" for at in range(40_000))
    path.write_text("a = " + "{a=" * 300 + "1" + "}" * 300 + "\n" + "".join(lines))


def long_line(path: Path) -> None:
    path.write_text('{"a": "' + "x" * MIB + '"}')


def log_of_one_line(path: Path) -> None:
    path.write_bytes(b"x" * MIB)


def log_of_requests(path: Path) -> None:
    path.write_text("".join(f"8,0 0 {at} 0.{at:09} {at % 4000} Q W {at * 97} + 8 [p{at}]\n" for at in range(22_000)))


TEXTS: Mapping[str, tuple[Callable[[Path], None], tuple[tuple[str, ...], ...]]] = {
    **{
        f"{make.__name__}.toml": (make, (("recipes", "check", "FILE"), ("recipes", "show", "FILE")))
        for make in (dotted_keys, one_dotted_key, many_tables, many_keys, deep_lists, inline_tables)
    },
    **{
        f"{make.__name__}.json": (make, (
            ("apply", "FILE"), ("bench", "show", "FILE"), ("bench", "compare", "FILE", "FILE"),
            ("audit", "--measured", "FILE", "IMG"), ("fleet", "--since", "FILE", "FILE"),
        ))
        for make in (bench_result, saved_plan, deep_json, wide_json, long_line)
    },
    **{f"{make.__name__}.log": (make, (("trace", "read", "FILE"),)) for make in (log_of_one_line, log_of_requests)},
}  # fmt: skip


# Captured machines.

CAPTURE = (("audit", "--sysroot", "FILE"), ("fleet", "FILE"), ("report", "--sysroot", "FILE", "-o", "-"))


def _members(count: int, size: int = 0) -> Iterator[bytes]:
    """Yield many members, each in a folder of its own."""
    for at in range(count):
        member = tarfile.TarInfo(f"sys/d{at}/f")
        member.size = size
        yield member.tobuf(tarfile.USTAR_FORMAT) + bytes(-(-size // 512) * 512)


def _disks(count: int) -> Iterator[bytes]:
    """Yield the folders of many disks."""
    for at in range(count):
        for name in ("sys/block", "sys/devices"):
            member = tarfile.TarInfo(f"{name}/s{at}/size")
            member.size = 5
            yield member.tobuf(tarfile.USTAR_FORMAT) + b"1000\n".ljust(512, b"\0")


ARCHIVES: Mapping[str, Callable[[], Iterator[bytes]]] = {
    "long extended header.tar.gz": lambda: iter((tar_header(tarfile.XHDTYPE, 400 * MIB), b"1" * 400 * MIB, TAR_MEMBER)),
    "common headers.tar.gz": lambda: iter(
        (tar_header(tarfile.XGLTYPE, 510) + (TAR_RECORD * 17).ljust(512, b"\0"),) * 1000
    ),
    "extended headers.tar.gz": lambda: iter(
        (tar_header(tarfile.XHDTYPE, 30) + TAR_RECORD.ljust(512, b"\0"),) * 200_000
    ),
    "many members.tar.gz": lambda: _members(120_000),
    "equal folders.tar.xz": lambda: iter((tar_header(tarfile.DIRTYPE, 0) * 1000,) * 900),
    "zeros.tar.gz": lambda: _members(30, 16 * MIB - 512),
    "many disks.tar.gz": lambda: _disks(30_000),
    "long attributes.tar.gz": lambda: _members(400, MIB),
}


def archive(path: Path, pieces: Iterator[bytes]) -> None:
    with lzma.open(path, "wb", preset=0) if path.suffix == ".xz" else gzip.open(path, "wb", 6) as file:
        for piece in pieces:
            file.write(piece)
        file.write(bytes(1024))


# Each with its cost.


@dataclass(frozen=True, slots=True)
class Bomb:
    """A file, and the commands that read it, with IMG or FILE for its path."""

    name: str
    make: Callable[[Path], None]
    commands: tuple[tuple[str, ...], ...]

    def costs(self, folder: Path, *, limit: int = 2 * SECONDS, only: str = "") -> Iterator[tuple[str, Cost, str]]:
        path = folder / self.name.replace(" ", "-")
        if not path.exists():
            self.make(path)
        for words in self.commands:
            if only not in " ".join(words):
                continue
            given = [str(path) if word in ("FILE", "IMG") else word for word in words]
            cost, tail = cost_of(given, limit=limit)
            yield " ".join(words), cost, tail


def _image_of(make: Callable[[], SparseDisk]) -> Callable[[Path], None]:
    return lambda path: image(path, make())


def _archive_of(pieces: Callable[[], Iterator[bytes]]) -> Callable[[Path], None]:
    return lambda path: archive(path, pieces())


BOMBS: tuple[Bomb, ...] = (
    *(Bomb(f"{name}.img".replace("_", " "), _image_of(make), IMAGE) for name, make in {**DISKS, **JOURNALS}.items()),
    *(Bomb(name.replace("_", " "), make, commands) for name, (make, commands) in TEXTS.items()),
    *(Bomb(name, _archive_of(pieces), CAPTURE) for name, pieces in ARCHIVES.items()),
)  # fmt: skip


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", metavar="NAME", help="a part of the name of a file")
    words.add_argument("--only", default="", metavar="WORDS", help="only commands with these words")
    words.add_argument("--limit", type=int, default=2 * SECONDS, help="end a command after these seconds")
    words.add_argument("--all", action="store_true", help="show every command")
    words.add_argument("--folder", type=Path, help="keep the files here")
    given = words.parse_args()
    failed = 0
    print("| file | bytes | slowest command | seconds | largest command | MiB | output, KiB |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).absolute()
        for bomb in BOMBS:
            if given.names and not any(name in bomb.name for name in given.names):
                continue
            costs = list(bomb.costs(folder, limit=given.limit, only=given.only))
            if not costs:
                continue
            failed += sum(not cost.is_allowed for _, cost, _ in costs)
            if given.all:
                for command, cost, tail in costs:
                    last = (tail.strip().splitlines() or [""])[-1][:150]
                    print(f"    {command}: {cost} {'' if cost.is_allowed else 'FAILED'} {last}", flush=True)
            slowest = max(costs, key=lambda row: row[1].seconds)
            largest = max(costs, key=lambda row: row[1].memory)
            output = max(row[1].output for row in costs)
            size = (folder / bomb.name.replace(" ", "-")).stat()
            print(
                f"| {bomb.name} | {size.st_blocks * 512:,} | `{slowest[0]}` | {slowest[1].seconds:.1f} |"
                f" `{largest[0]}` | {largest[1].memory // MIB} | {output // KIB:,} |",
                flush=True,
            )
    print(f"{failed} commands took more than {SECONDS} s or {MEMORY // MIB} MiB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
