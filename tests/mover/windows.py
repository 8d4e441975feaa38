"""Disks with Windows files that identify partitions by their starts: hives made by hivex, on NTFS made by mkntfs.

The contents of the hives were seen in stores and SYSTEM hives of Windows 7, 8.1 and 10 (docs/decisions/0039).
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree import ElementTree

from tests.conftest import run
from tests.mover.loop_mounts import mounted

SECTOR = 512
SIGNATURE, OTHER_DISK = 0x0003EE7C, 0x7D3C2B1A
LOADER, OTHER_LOADER = "{40a5a38d-1d81-11e3-806a-cb00aeb9e05c}", "{40a5a38e-1d81-11e3-806a-cb00aeb9e05c}"
MANAGER, RECOVERY = "{9dea862c-5cdd-4e70-acc1-f32b344d4795}", "{3c32c4e7-f36e-11e2-8548-986c4e43b52a}"

Values = Mapping[tuple[str, ...], bytes]  # the last name is the value's, those before it are keys
FORMER = 4 << 20  # a start of a deleted partition; another one moves there
DECOY = b"\xff" * 16  # before what looks like a name but is not
NONE, BACKSLASH = 0xFFFFFFFF, "\\"


def partition(start: int, signature: int = SIGNATURE) -> bytes:
    """Return a partition of an MBR in a boot store: 72 bytes."""
    return struct.pack("<4I Q 8x 3I 28x", 6, 0, 0x48, 0, start, 0, 1, signature)


def device(start: int, signature: int = SIGNATURE) -> bytes:
    return bytes(16) + partition(start, signature)


def ram_disk(start: int, path: str) -> bytes:
    """Return a RAM disk from a file on a partition: Windows' recovery environment."""
    name = f"{path}\0".encode("utf-16-le")
    file = struct.pack("<3I", 1, 12 + 72 + len(name) + 4, 5) + partition(start) + name
    body = struct.pack("<I 16x", 3) + file
    return bytes(16) + struct.pack("<4I", 0, 1, 16 + len(body), 0) + body


def located(start: int, path: str) -> bytes:
    """Return a search for a file, which begins in the middle of four bytes."""
    name = f"{path}\0".encode("utf-16-le")
    return bytes(16) + struct.pack("<4I", 8, 0, 0xC2, 0) + bytes(4 + 4 + 2) + partition(start) + name


def mounted_device(start: int, signature: int = SIGNATURE) -> bytes:
    return struct.pack("<IQ", signature, start)


def boot_store(windows: int, boot: int) -> Values:
    """Return the store of two Windows in one partition, with their recovery environment, and one on another disk."""
    elements = {
        (MANAGER, "11000001"): device(boot),
        (LOADER, "11000001"): device(windows),
        (LOADER, "21000001"): device(windows),
        (OTHER_LOADER, "11000001"): device(windows, OTHER_DISK),
        (OTHER_LOADER, "21000001"): located(windows, "\\windows"),
        (RECOVERY, "11000001"): ram_disk(windows, "\\Recovery\\WindowsRE\\Winre.wim"),
        (RECOVERY, "31000003"): device(windows + 512),  # where no partition begins
        (RECOVERY, "25000020"): DECOY + partition(windows),  # not in the format of a device
    }
    return {("Objects", one, "Elements", each, "Element"): value for (one, each), value in elements.items()}


def changed_in_store(windows: int, boot: int) -> Values:
    """Return the expected changes after a move to these starts."""
    same = {(RECOVERY, "31000003"), (RECOVERY, "25000020"), (OTHER_LOADER, "11000001")}
    return {path: value for path, value in boot_store(windows, boot).items() if (path[1], path[3]) not in same}


def mounted_devices(windows: int, boot: int) -> Values:
    letters = {"\\DosDevices\\C:": windows, "\\??\\Volume{a08efec3-a076-11e5-824f-806e6f6e6963}": windows,
               "\\??\\Volume{a08efec2-a076-11e5-824f-806e6f6e6963}": boot}  # fmt: skip
    return {("MountedDevices", name): mounted_device(start) for name, start in letters.items()}


def elsewhere(windows: int) -> Values:
    """Return values of the same hive that must not change: of another disk, of a CD-ROM, and of another key."""
    return {
        ("MountedDevices", "\\DosDevices\\D:"): mounted_device(windows, OTHER_DISK),
        ("MountedDevices", "\\DosDevices\\F:"): mounted_device(FORMER),
        ("MountedDevices", "\\DosDevices\\E:"): "\\??\\IDE#CdRom".encode("utf-16-le"),
        ("Select", "Current"): DECOY + mounted_device(windows),
    }


def make_hive(path: Path, values: Values) -> Path:
    """Make a hive: an empty one written here, and its content by hivexsh."""
    path.write_bytes(_empty())
    words, made = list[str](), set[str]()
    for key in dict.fromkeys(path[:-1] for path in values):
        there = ""
        for name in key:
            if f"{there}\\{name}" not in made:
                words += [f"cd {there or BACKSLASH}", f"add {name}"]
            there += f"\\{name}"
            made.add(there)
        own = {path[-1]: value for path, value in values.items() if path[:-1] == key}
        words += [f"cd {there}", f"setval {len(own)}"]
        for name, value in own.items():
            words += [name, f"hex:3:{value.hex(',')}"]
    script = path.with_suffix(".script")
    script.write_text("\n".join((*words, "commit", "")))
    run("hivexsh", "-w", "-f", script, path)
    return path


def _empty() -> bytes:
    name = b"root"
    key = (
        struct.pack("<2sH 8x 4x 9I 20x 2H", b"nk", 0x2C, 0, 0, 0, NONE, NONE, 0, NONE, 0x78, NONE, len(name), 0) + name
    )
    security = struct.pack("<2s2x4I", b"sk", 0x78, 0x78, 1, 20) + struct.pack("<BxH16x", 1, 0x8000)
    cells = struct.pack("<i", -0x58) + key.ljust(0x54, b"\0") + struct.pack("<i", -0x30) + security.ljust(0x2C, b"\0")
    rest = 4096 - 32 - len(cells)
    bins = struct.pack("<4sII 20x", b"hbin", 0, 4096) + cells + struct.pack("<i", rest).ljust(rest, b"\0")
    head = bytearray(struct.pack("<4sII 8x 6I", b"regf", 1, 1, 1, 3, 0, 1, 0x20, 4096).ljust(4096, b"\0"))
    struct.pack_into("<I", head, 44, 1)
    total = 0
    for at in range(0, 508, 4):
        total ^= struct.unpack_from("<I", head, at)[0]
    struct.pack_into("<I", head, 508, total)
    return bytes(head) + bins


def read_hive(path: Path) -> Values:
    """Return every value, as hivexml prints it."""
    found: dict[tuple[str, ...], bytes] = {}

    def walk(node: ElementTree.Element, keys: tuple[str, ...]) -> None:
        for value in node.findall("value"):
            found[(*keys, value.get("key") or "")] = b64decode(value.get("value") or "")
        for below in node.findall("node"):
            walk(below, (*keys, below.get("name") or ""))

    root = ElementTree.fromstring(run("hivexml", path)).find("node")
    assert root is not None
    walk(root, ())
    return found


def make_ntfs(content: Path, sectors: int, fill: Callable[[Path], None], *options: str, start: int) -> bytes:
    content.write_bytes(b"")
    with content.open("r+b") as file:
        file.truncate(sectors * SECTOR)
    run("mkntfs", "-q", "-Q", "-F", "-p", str(start), "-H", "255", "-S", "63", *options, content)
    with mounted(content, "ntfs-3g") as folder:
        fill(folder)
    return content.read_bytes()


def make_disk(image: Path, parts: Mapping[int, bytes], sectors: int, *, label: str = "dos") -> None:
    """Make partitions by their first sector; the first one is active."""
    lines = [f"label: {label}", "unit: sectors", "grain: 512"]
    lines += [f"label-id: 0x{SIGNATURE:08x}"] if label == "dos" else ["first-lba: 34"]
    kind = "7" if label == "dos" else "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"
    for start, content in parts.items():
        active = ",bootable" if label == "dos" and start == min(parts) else ""
        lines.append(f"start={start},size={len(content) // SECTOR},type={kind}{active}")
    with image.open("wb") as file:
        file.truncate(sectors * SECTOR)
        for start, content in parts.items():
            file.seek(start * SECTOR)
            file.write(content)
    run("sfdisk", "-q", image, stdin="\n".join(lines))
