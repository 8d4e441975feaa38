"""Disk images, logs and results to run commands on: the same bytes every time.

Goes out: a folder of files. Tables are sfdisk's or written here, file systems those of their own tools with fixed
identities. Alone because it needs nothing of the checkout that is recorded.
"""

import hashlib
import json
import lzma
import os
import struct
import subprocess
import uuid
import zlib
from pathlib import Path

MIB = 1 << 20
FIXED = {
    "E2FSPROGS_FAKE_TIME": "1136214245",
    "SOURCE_DATE_EPOCH": "1136214245",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PATH": os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin",
}
LINUX = "0fc63daf-8483-4772-8e79-3d69d8477de4"
SPECIMENS: dict[str, str] = {
    # name: label, sectors; then start, size, type and content of each partition
    "old": "dos 64 63+49152:83=ext4",
    "two": "dos 64 63+49152:83=ext4 49215+20480:82=swap",
    "gpt34": "gpt 64 34+49152:L=ext4 49186+20480:S=swap",
    "middle": "gpt 64 2048+16384:L=ext4 18433+16384:L=ext3 40961+8192:L=vfat",
    "down": "dos 48 40+40960:83=ext4 41024+49152:83=ext2",
    "logical": "dos 96 63+32130:83=ext4 32193+160000:5 32256+40960:83=ext4 73305+20480:82=swap 93848+40000:b=vfat",
    "aligned": "gpt 64 2048+49152:L=ext4 51200+40960:L=swap",
    "fat": "dos 64 63+65536:6=vfat",
    "xfs": "gpt 400 34+700000:L=xfs",
    "btrfs": "dos 200 63+300000:83=btrfs",
    "luks": "gpt 64 34+49152:L=luks 49186+20480:L",
    "lvm": "dos 64 63+49152:8e=lvm",
    "tight": "gpt 64 34+131004:L=ext4",
    "bare": "dos 64 63+49152:83 63000+30000:7",
    "extended": "dos 64 63+100000:f",
    "overlap": "dos 64 2048+40960:83 20480+40960:83",
    "beyond": "dos 64 2048+409600:83=ext4",
}


def run(*words: str | Path, stdin: str = "") -> None:
    command = [str(word) for word in words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=os.environ | FIXED, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


def identity(name: str) -> str:
    return str(uuid.UUID(bytes=hashlib.sha256(name.encode()).digest()[:16], version=4))


def empty(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        file.write(data)


def pseudo_random(seed: str, length: int) -> bytes:
    return hashlib.shake_256(seed.encode()).digest(length)


def make_specimen(folder: Path, name: str, told: str) -> None:
    """Make an image out of its line in SPECIMENS."""
    label, size, *parts = told.split()
    image = empty(folder / f"{name}.img", int(size) * MIB)
    lines = [f"label: {label}", "unit: sectors"]
    lines.append(f"label-id: {identity(name)}" if label == "gpt" else "label-id: 0x2005c0de")
    lines += ["first-lba: 34"] if label == "gpt" else []
    contents = []
    for part in parts:
        place, _, kind = part.partition(":")
        start, length = (int(number) for number in place.split("+"))
        kind, _, content = kind.partition("=")
        line = f"start={start}, size={length}, type={kind}"
        lines.append(line + (f", uuid={identity(name + place)}" if label == "gpt" else ""))
        contents.append((start * 512, length * 512, content, place))
    if name in ("overlap", "beyond"):
        write_mbr(image, parts)
    else:
        run("sfdisk", "-q", "--wipe", "never", "--force", image, stdin="\n".join(lines) + "\n")
    for start, length, content, place in contents:
        if content:
            volume = make_volume(folder / "volume", content, length, identity(f"{name} {place}"))
            run("dd", f"if={volume}", f"of={image}", "bs=512", f"seek={start // 512}", "conv=notrunc,sparse",
                "status=none")  # fmt: skip
            volume.unlink()


def write_mbr(image: Path, parts: list[str]) -> None:
    """Entries that sfdisk would refuse."""
    entries = b""
    for part in parts:
        place, _, kind = part.partition(":")
        start, length = (int(number) for number in place.split("+"))
        kind = kind.partition("=")[0]
        entries += struct.pack("<B3sB3sII", 0, b"\1\1\0", int(kind, 16), b"\xfe\xff\xff", start, length)
    write(image, 440, b"\xde\xc0\x05\x20\0\0" + entries.ljust(64, b"\0") + b"\x55\xaa")


def make_volume(path: Path, content: str, length: int, named: str) -> Path:
    """Make a file system or what looks like one."""
    empty(path, length)
    if content.startswith("ext"):
        run("mke2fs", "-q", "-F", "-t", content, "-b", "4096" if length > 8 * MIB else "1024", "-U", named,
            "-E", f"hash_seed={named},root_owner=0:0", path, str(length // 1024) + "k")  # fmt: skip
        data = path.with_name("data")
        data.write_bytes(pseudo_random(named, length // 4))
        run("debugfs", "-w", "-R", f"write {data} data", path)
        data.unlink()
    elif content == "vfat":
        run("mkfs.fat", "--invariant", "-i", named[:8], path)
    elif content == "swap":
        run("mkswap", "-q", "-U", named, path)
    elif content == "xfs":
        run("mkfs.xfs", "-q", "-m", f"uuid={named}", path)
    elif content == "btrfs":
        run("mkfs.btrfs", "-q", "-U", named, path)
    elif content == "luks":
        header = struct.pack(">6sH32s32s32sII20s32sI40s", b"LUKS\xba\xbe", 1, b"aes", b"xts-plain64", b"sha256",
                             4096, 64, b"d" * 20, b"s" * 32, 1000, named.encode())  # fmt: skip
        write(path, 0, header)
    elif content == "lvm":
        label = bytearray(512)
        label[:32] = struct.pack("<8sQII8s", b"LABELONE", 1, 0, 32, b"LVM2 001")
        label[32:64] = named.replace("-", "").encode()
        label[64:72] = struct.pack("<Q", length)
        label[72:104] = struct.pack("<QQQQ", MIB, 0, 0, 0)
        label[16:20] = struct.pack("<I", zlib.crc32(bytes(label[20:]), 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF)
        write(path, 512, bytes(label))
    return path


def make_gpt(path: Path, sector: int, size: int, *extents: tuple[int, int]) -> None:
    """A GPT of any sector size; sfdisk reads images in sectors of 512 bytes only."""
    empty(path, size)
    last, entries = size // sector - 1, -(-16384 // sector)
    array = b"".join(
        uuid.UUID(LINUX).bytes_le + uuid.UUID(identity(f"{path.name} {first}")).bytes_le
        + struct.pack("<QQQ72s", first, end, 0, f"part {first}".encode("utf-16-le"))
        for first, end in extents
    ).ljust(16384, b"\0")  # fmt: skip
    for own, other, at in ((1, last, 2), (last, 1, last - entries)):
        header = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, own, other, 2 + entries,
                             last - entries - 1, b"\x11" * 16, at, 128, 128, zlib.crc32(array))  # fmt: skip
        header = header[:16] + struct.pack("<I", zlib.crc32(header)) + header[20:]
        write(path, own * sector, header)
        write(path, at * sector, array)
    write_mbr(path, [f"1+{min(last, 0xFFFFFFFF)}:ee"])


def make_damaged(folder: Path) -> None:
    """GPTs of which one copy, both copies or the place of the backup is damaged, and files that are not disks."""
    whole = (folder / "gpt34.img").read_bytes()
    for name, places in {"primary": (512 + 60,), "backup": (-512 + 60,), "both": (532, -492), "array": (1024,)}.items():
        image = folder / f"damaged-{name}.img"
        image.write_bytes(whole)
        for at in places:
            write(image, at, b"\xff\xfe\xfd")
    (folder / "damaged-short.img").write_bytes(whole[: -8 * MIB])
    (folder / "damaged-long.img").write_bytes(whole + bytes(8 * MIB))
    (folder / "damaged-mbr.img").write_bytes(bytes(512) + whole[512:])
    empty(folder / "empty.img", 64 * MIB)
    empty(folder / "empty4.img", 4 * MIB)
    empty(folder / "large.img", 1 << 42)
    (folder / "ones.img").write_bytes(b"\xff" * (4 * MIB))
    (folder / "random.bin").write_bytes(pseudo_random("random", 2 * MIB))
    (folder / "nothing.img").write_bytes(b"")
    (folder / "text.txt").write_text("This is not a disk.\n" * 1000)
    (folder / "folder").mkdir()
    make_volume(folder / "fat-disk.img", "vfat", 16 * MIB, identity("fat-disk"))
    make_volume(folder / "ext-disk.img", "ext4", 16 * MIB, identity("ext-disk"))
    make_gpt(folder / "sectors-4096.img", 4096, 256 * MIB, (6, 8191), (8193, 16383))
    make_gpt(folder / "sectors-4096-aligned.img", 4096, 256 * MIB, (256, 8191))
    make_gpt(folder / "sectors-512-large.img", 512, 1 << 43, (34, 1 << 30), ((1 << 30) + 3, 1 << 33))


def make_tables(folder: Path, tables: Path | None) -> tuple[list[str], list[str]]:
    """Build the layouts of a folder of partition tables, unpack its images; return the images and captured machines."""
    if tables is None:
        return [], []
    found, machines = [], []
    (folder / "tables").mkdir()
    for layout in sorted((tables / "layouts").glob("*.json")):
        image = f"tables/{layout.stem}.img"
        run("python3", tables / "build_layout.py", layout, folder / image)
        found.append(image)
    for packed in sorted((tables / "images").glob("*.img.xz")):
        image = f"tables/{packed.stem}"
        (folder / image).write_bytes(lzma.decompress(packed.read_bytes()))
        found.append(image)
    for machine in sorted((tables / "sysroots").glob("*.tar.xz")):
        (folder / machine.name).write_bytes(machine.read_bytes())
        machines.append(machine.name)
    return found, machines


def make_logs(folder: Path) -> None:
    """Logs of commands in every format."""
    rows = [f"0.{n:03},{'W' if n % 3 == 0 else 'R'},{8 * (n * 37 % 101)},{8 if n % 5 else 64},init" for n in range(400)]
    (folder / "boot.csv").write_text("time_s,op,lba,sectors,who\n" + "\n".join(rows) + "\n")
    log = ["fio version 2 iolog", "/dev/sda add", "/dev/sda open"]
    log += [f"/dev/sda {'read' if n % 4 else 'write'} {4096 * (n * 13 % 97) + 512 * (n % 2)} 4096" for n in range(300)]
    (folder / "fio.log").write_text("\n".join([*log, "/dev/sda close", ""]))
    lines: list[str] = []
    records = b""
    for n in range(300):
        sector, kind = 2048 + 8 * (n * 29 % 211), "R" if n % 3 else "WS"
        for action, letter, late in ((1, "Q", 0), (7, "D", 10_000), (8, "C", 90_000)):
            time = n * 100_000 + late
            lines.append(f"  8,0    1 {len(lines):8} {time / 1e9:14.9f}   697  {letter}   {kind} {sector} + 8 [init]")
            does = (1 if kind == "R" else 2) | 1 << 8 | {1: 1 << 4, 7: 1 << 6, 8: 1 << 7}[action]
            records += struct.pack("<IIQQIIIIIHH", 0x65617407, len(lines), time, sector, 4096, action | does << 16,
                                   697, 8 << 20, 0, 0, 0)  # fmt: skip
    (folder / "blkparse.txt").write_text("\n".join(lines) + "\n")
    (folder / "sda.blktrace.0").write_bytes(records)
    (folder / "broken.csv").write_text("time_s,op,lba\n0.1,R,xyz\n")


def make_results(folder: Path) -> None:
    """Results of benchmarks, by aligntool/schemas/bench.json."""
    state = folder / "state" / "aligntool" / "bench"
    state.mkdir(parents=True)
    for name, factor in (("slow", 1.0), ("fast", 7.5), ("same", 1.02)):
        text = json.dumps(result(name, factor), indent=1) + "\n"
        (folder / f"{name}.json").write_text(text)
        (state / f"2026-01-0{len(name) - 2}-{name}.json").write_text(text)
    single = result("single", 2.0)
    single["series"] = [each | {"samples": each["samples"][:1]} for each in single["series"]]  # type: ignore[attr-defined]
    (folder / "single.json").write_text(json.dumps(single))
    (folder / "broken.json").write_text('{"schema": "aligntool.bench", "version": 1')
    (folder / "newer.json").write_text(json.dumps(result("newer", 1.0) | {"version": 99}))
    (folder / "unknown.json").write_text(json.dumps(result("unknown", 1.0) | {"colour": "blue"}))
    (folder / "good.toml").write_text('kind = "realign"\nname = "mine"\n')
    (folder / "broken.toml").write_text("kind = [\n")


def result(name: str, factor: float) -> dict[str, object]:
    drive = {
        "name": "sda", "model": f"Made Up {name}", "firmware": "1.0", "size": 500107862016, "kind": "ata",
        "rotational": factor == 1.0, "link": "6.0 Gbps", "link_slowed": False, "scheduler": "mq-deadline",
        "queue_depth": 32, "write_cache": "write back", "array_level": None, "array_action": None,
        "array_degraded": False, "temperature_c": 31.0, "temperature_after_c": 33.0,
    }  # fmt: skip
    conditions = {
        "kernel": "6.1", "fio": "fio-3.33", "processor": "made-up", "cores": 8, "governor": None, "load": 0.1,
        "on_battery": False, "filesystem": "ext4", "mount_options": "rw", "room": 0.5, "free": 10**11,
        "caches_dropped": True, "hole_share": None, "drives": [drive],
    }  # fmt: skip
    series = [
        {"title": f"{kind} {'write' if does else 'read'}", "random": kind.startswith("RND"), "block": block,
         "depth": depth, "threads": 1, "write": does, "samples": samples(block, factor * (0.9 if does else 1))}
        for kind, block, depth in (("SEQ1M Q8T1", MIB, 8), ("RND4K Q32T1", 4096, 32), ("RND4K Q1T1", 4096, 1))
        for does in (False, True)
    ]  # fmt: skip
    settings = {
        "profile": "crystaldiskmark", "span": 1073741824, "runtime_s": 1.0, "repeats": 5, "direct": True,
        "engine": "libaio", "prepare": "file", "passes": [], "until_steady": False, "score": None,
    }  # fmt: skip
    return {
        "schema": "aligntool.bench", "version": 1, "when": f"2026-01-0{len(name) - 2}T03:04:05Z", "aligntool": "0.1",
        "target": "/srv", "kind": "folder", "settings": settings, "conditions": conditions, "series": series,
        "skipped": [], "complete": True,
    }  # fmt: skip


def samples(block: int, factor: float) -> list[dict[str, object]]:
    rates = [factor * block * 1000 * share for share in (0.99, 0.995, 1.0, 1.005, 1.01)]
    return [
        {"number": number, "bytes_per_s": round(rate), "iops": rate / block, "moved": round(rate), "runtime_s": 1.0,
         "mean_us": 50.0, "cpu": 10.0, "p50_us": 40.0, "p99_us": 90.0, "p999_us": 200.0, "busy_cores": 0.5}
        for number, rate in enumerate(rates, 1)
    ]  # fmt: skip


def make_inputs(folder: Path, tables: Path | None, machines: Path) -> tuple[list[str], list[str]]:
    """Make every input; return the images and the archives of captured machines."""
    os.umask(0o022)
    for name, told in SPECIMENS.items():
        make_specimen(folder, name, told)
    make_damaged(folder)
    make_logs(folder)
    make_results(folder)
    (folder / "data").unlink(missing_ok=True)
    images, captured = make_tables(folder, tables)
    own = sorted(path.name for path in folder.glob("*.img"))
    for machine in sorted(machines.glob("*.tar.xz")):
        (folder / machine.name).write_bytes(machine.read_bytes())
        captured.append(machine.name)
    for name in captured:
        tree = folder / "machines" / name.removesuffix(".tar.xz")
        tree.mkdir(parents=True)
        run("tar", "-xf", folder / name, "-C", tree)
    return own + images, captured
