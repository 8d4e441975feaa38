"""Measure changes of layers in place against the nearest alternative, as root: `python -m tests.bench.layers [ROUNDS]`.

Two tables: a LUKS1 whose payload is off the page, and a LUKS2 in sectors of 512 bytes. Images are in a temporary
folder; the ways alternate, after one uncounted round. cryptsetup's own decryption and encryption represent a backup
that is restored into a new LUKS2, since both read and write everything once.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from aligntool.units import MIB
from tests.run_aligntool import program

PART = 512 * MIB
QUICK = ("-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
OFFLINE = ("--force-offline-reencrypt", "--resilience", "journal")


def run(*words: object, stdin: str = "") -> None:
    subprocess.run([str(word) for word in words], input=stdin.encode(), check=True, capture_output=True)


def table(image: Path, start: int) -> None:
    run("sfdisk", "-q", "--no-reread", image, stdin=f"label: dos\nstart={start // 512},size={PART // 512},type=83\n")


def image_of(folder: Path, content: Path) -> Path:
    image = folder / "disk.img"
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(PART + 64 * MIB)
    run("dd", f"if={content}", f"of={image}", "bs=1M", "seek=1", "conv=notrunc,fsync")
    table(image, MIB)
    return image


def realign(folder: Path, content: Path) -> float:
    image = image_of(folder, content)
    return timed(lambda: run(*program("realign", "--yes", "--not-suspended", "--page-size", "16KiB", image)))


def copy_out_and_back(folder: Path, content: Path) -> float:
    """Write a new table, between a copy to another file and one back."""
    image, backup = image_of(folder, content), folder / "backup"

    def copy() -> None:
        run("dd", f"if={image}", f"of={backup}", "bs=1M", "skip=1", f"count={PART // MIB}", "conv=fsync")
        table(image, MIB + 28 * 1024)
        seek = (f"seek={MIB + 28 * 1024}", "oflag=seek_bytes", "conv=notrunc,fsync")
        run("dd", f"if={backup}", f"of={image}", "bs=1M", *seek)

    return timed(copy)


def larger_sectors(folder: Path, content: Path) -> float:
    image, state, key = image_of(folder, content), folder / "state", folder / "key"
    shutil.rmtree(state, ignore_errors=True)
    return timed(lambda: run(sys.executable, "-m", "tests.raid.reencrypting", "begin", image, state, key))


def decrypt_and_encrypt(folder: Path, content: Path) -> float:
    device, header, key = folder / "device", folder / "header", ("--key-file", folder / "key")
    header.unlink(missing_ok=True)
    shutil.copy(content, device)

    def both() -> None:
        run("cryptsetup", "reencrypt", "--decrypt", "--header", header, "-q", *OFFLINE[:1], *key, device)
        new = ("--type", "luks2", "--reduce-device-size", "32M", "--sector-size", "4096", *OFFLINE[:1])
        run("cryptsetup", "reencrypt", "--encrypt", *QUICK, *new, *key, device)

    return timed(both)


def timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def luks1(content: Path, key: Path) -> None:
    run("cryptsetup", "luksFormat", "-q", "--type", "luks1", "--pbkdf-force-iterations", "1000", "--align-payload", "8",
        "--key-file", key, content)  # fmt: skip


def luks2(content: Path, key: Path) -> None:
    words = ("--type", "luks2", "--reduce-device-size", "32M", "--sector-size", "512", *OFFLINE[:1], "--key-file", key)
    run("cryptsetup", "reencrypt", "--encrypt", *QUICK, *words, content)


Way = Callable[[Path, Path], float]
ROWS: tuple[tuple[str, Callable[[Path, Path], None], Way, str, Way], ...] = (
    ("LUKS1, payload off 16 KiB", luks1, realign, "`dd` out, `sfdisk`, `dd` back", copy_out_and_back),
    ("LUKS2, sectors of 512 bytes", luks2, larger_sectors, "decrypt, encrypt again", decrypt_and_encrypt),
)


def main(rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory(prefix="aligntool-bench-", dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "key").write_text("secret")
        for what, make, ours, beside, other in ROWS:
            content = folder / "content"
            with content.open("wb") as file, Path("/dev/urandom").open("rb") as noise:
                file.write(noise.read(PART))
            make(content, folder / "key")
            pairs = [(ours(folder, content), other(folder, content)) for _ in range(rounds + 1)][1:]
            ratios = sorted(there / here for here, there in pairs)
            seconds = f"{median(here for here, _ in pairs):.2f} s"
            print(f"| {what} | {seconds} | {beside} | {median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}) |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
