"""A file that a user names: a disk image, or a reason why it is none.

In: a path. Out: a Disk of kind IMAGE. Alone because a file reports nothing: its limits are empty but for what the user
gives, and because containers and compressed images look like files of bytes and are none.
"""

import os
import stat

from aligntool.audit.words import shell_word
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, IoLimits
from aligntool.probe.access import READ_ONLY
from aligntool.probe.contents import Contents, read_contents
from aligntool.probe.deadline import SILENT, Pulse
from aligntool.probe.file_reader import FileReader
from aligntool.probe.limits import Given, override
from aligntool.probe.reader import BeatingReader, Reader

_NBD = "sudo modprobe nbd && sudo qemu-nbd -r -c /dev/nbd0 {path} && sudo aligntool audit /dev/nbd0"
_EWF = "sudo ewfmount {path} /mnt && sudo aligntool audit /mnt/ewf1"
_UNPACK = "{tool} -dc {path} > disk.img && aligntool audit disk.img"

# (offset, magic, what it is, how to get at the disk inside)
_CONTAINERS = (
    (0, b"QFI\xfb", "a QEMU copy-on-write image (qcow2)", _NBD),
    (0, b"KDMV", "a VMware disk (vmdk)", _NBD),
    (0, b"# Disk DescriptorFile", "the descriptor of a VMware disk (vmdk)", _NBD),
    (0x40, b"\x7f\x10\xda\xbe", "a VirtualBox disk (vdi)", _NBD),
    (0, b"vhdxfile", "a Hyper-V disk (vhdx)", _NBD),
    (0, b"conectix", "a dynamic Virtual PC disk (vhd)", _NBD),
    (0, b"QED\0", "a QEMU enhanced disk (qed)", _NBD),
    (0, b"WithoutFreeSpace", "a Parallels disk", _NBD),
    (0, b"\xfd7zXZ\0", "compressed with xz", _UNPACK.replace("{tool}", "xz")),
    (0, b"\x1f\x8b", "compressed with gzip", _UNPACK.replace("{tool}", "gzip")),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", _UNPACK.replace("{tool}", "zstd")),
    (0, b"BZh", "compressed with bzip2", _UNPACK.replace("{tool}", "bzip2")),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4", _UNPACK.replace("{tool}", "lz4")),
    (0, b"PK\x03\x04", "a zip archive", "unzip {path}"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "7z x {path}"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image", "simg2img {path} disk.img && aligntool audit disk.img"),
    (0, b"EVF\x09\x0d\x0a\xff\x00", "an EnCase image (E01)", _EWF),
    (0, b"partclone-image", "a partclone image", "partclone.restore -s {path} -O disk.img"),
)  # fmt: skip
_HEAD = 512
_SECTOR = 512
_BLANK = 1024 * 1024  # a new partition begins behind it, and a backup GPT lies in the last so many bytes


def read_image(path: str, given: Given, pulse: Pulse = SILENT, *, known: bool = True) -> Disk:
    """Raises Refused for a file that is not a disk image, or that cannot be read. `known`: also for one in which
    nothing is recognised.
    """
    descriptor = _open(path)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        reader = BeatingReader(FileReader(descriptor, size), pulse.beat)
        refuse_containers(path, reader)
        limits, limits_given = override(IoLimits(), given)
        seen = read_contents(reader, sector_size=given.sector_size)
        if known:
            _refuse_other_files(path, reader, seen)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return Disk(
        name=path,
        path=path,
        kind=DiskKind.IMAGE,
        size=size,
        limits=limits,
        limits_given=limits_given,
        read_only=not os.access(path, os.W_OK),
        table=seen.table,
        table_read=seen.table_read,
        partitions=seen.partitions,
        content=seen.content,
        gpt_headers=seen.gpt_headers,
        content_read=seen.content_read,
        unseen=seen.unseen,
    )


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, READ_ONLY)
    except OSError as error:
        raise Refused(f"{path} cannot be opened: {error.strerror}", hint=_hint(path, error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # another file has taken its place meanwhile
        os.close(descriptor)
        raise Refused(f"{path} is no longer a regular file")
    return descriptor


def _hint(path: str, error: OSError) -> str:
    denied = isinstance(error, PermissionError) and os.geteuid()
    return f"sudo aligntool audit {shell_word(path)}" if denied else ""


def _refuse_other_files(path: str, reader: Reader, seen: Contents) -> None:
    """Raise Refused for a file in which nothing can be judged. What is a disk is recognised, or blank where a table and
    a file system begin: zeros, or ones as flash is after an erase.
    """
    if (
        not seen.table_read
        or seen.table
        or seen.partitions
        or seen.content
        or seen.gpt_headers
        or seen.unseen
    ):
        return
    if reader.size % _SECTOR:
        raise Refused(f"{path} is not a disk image: {reader.size} bytes are not whole sectors of {_SECTOR}")
    ends = reader.read(0, _BLANK), reader.read(max(reader.size - _BLANK, 0), _BLANK)
    if any(end.strip(b"\0") and end.strip(b"\xff") for end in ends):
        raise Refused(
            f"{path} cannot be judged: there is neither a partition table nor a known file system in it, and it is not"
            " blank", hint=f"file {shell_word(path)}",
        )  # fmt: skip


def refuse_containers(path: str, reader: Reader) -> None:
    """Raise Refused for a file that holds a disk in another form: its bytes are not those of the disk."""
    if reader.size == 0:
        raise Refused(f"{path} is empty", hint="give a disk image or a block device")
    head = reader.read(0, _HEAD)
    for offset, magic, what, hint in _CONTAINERS:
        if head.startswith(magic, offset):
            raise Refused(
                f"{path} is {what}, not the bytes of a disk", hint=hint.format(path=shell_word(path))
            )
