"""The files that every file system of these tests holds, and their hashes.

All file systems get the same files, and every reader has to find the same hashes again.
"""

import hashlib
from pathlib import Path

from aligntool.units import KIB, MIB

SPACERS = 24  # files that are deleted again, every second one, so that FRAGMENTED has to go into the holes
FRAGMENTED = "in many pieces.bin"
LONG_NAME = "a name as long as names may be in most file systems " * 4 + ".txt"


def noise(name: str, length: int) -> bytes:
    """Return the same bytes every time, different for each name."""
    return hashlib.shake_128(name.encode()).digest(length)


def lay_out(folder: Path) -> None:
    """Create files of many kinds, with spacers between them."""
    nested = folder / "one" / "two" / "three" / "Fotos – été"
    nested.mkdir(parents=True)
    (folder / "empty").touch()
    (folder / "one" / "no folder is empty, but this").mkdir()
    for length in (1, 511, 512, 4095, 4096, 4097, 65537):
        (folder / f"{length} bytes").write_bytes(noise(f"length {length}", length))
    (nested / "größer als gedacht.jpg").write_bytes(noise("photograph", 200 * KIB + 17))
    (folder / LONG_NAME).write_bytes(b"long\n")
    (folder / "one" / "text").write_text("the quick brown fox\n" * 500)
    for number in range(SPACERS):
        (folder / spacer(number)).write_bytes(noise(f"spacer {number}", 20 * KIB))
    write_sparse(folder / "one" / "holes")


def write_sparse(path: Path) -> None:
    with path.open("wb") as file:
        for at in (64 * KIB, 500 * KIB, MIB):
            file.seek(at)
            file.write(noise(f"hole {at}", 3000))


def spacer(number: int) -> str:
    return f"spacer {number:02}"


def removed_spacers() -> list[str]:
    return [spacer(number) for number in range(0, SPACERS, 2)]


def fragmented() -> bytes:
    """Return the content that is written after every second spacer was removed."""
    return noise("fragmented", 600 * KIB + 123)


def fill(folder: Path) -> None:
    """Write everything into a folder that is a mounted file system."""
    lay_out(folder)
    for name in removed_spacers():
        (folder / name).unlink()
    (folder / FRAGMENTED).write_bytes(fragmented())


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path in `folder`, or "a folder"."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] in {"lost+found", "System Volume Information"}:
            continue
        found[name] = "a folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found
