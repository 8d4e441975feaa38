"""What the kernel is asked for when a loop device is attached, as the bytes of linux/loop.h.

A loop device of aligntool has LO_FLAGS_AUTOCLEAR from the first moment: the kernel detaches it when the last program
closes it, so a SIGKILL leaves none behind. Its name (`lo_file_name`) is a mark by which a later run recognises one that
a program of a killed run still has open. The backing file of `losetup --list` is sysfs', and stays what it is.
"""

import struct

from aligntool.units import Extent

CONTROL = "/dev/loop-control"
GET_FREE, CONFIGURE, GET_STATUS = 0x4C82, 0x4C0A, 0x4C05

_READ_ONLY, _AUTOCLEAR = 1, 4
_MARK = b"aligntool"
# struct loop_info64: device, inode, rdevice, offset, sizelimit; number, encrypt type and key size, flags; file name,
# crypt name, key, init. struct loop_config: descriptor, block size, that, eight reserved words.
_INFO = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG = struct.Struct(f"=II{_INFO.size}s8Q")
STATUS_SIZE = _INFO.size


def loop_config(descriptor: int, extent: Extent, *, read_only: bool) -> bytes:
    """Return the argument of LOOP_CONFIGURE (Linux 5.8): `extent` of the open file, in sectors of 512 bytes."""
    flags = _AUTOCLEAR | (_READ_ONLY if read_only else 0)
    info = _INFO.pack(0, 0, 0, extent.start, extent.length, 0, 0, 0, flags, _MARK, b"", b"", 0, 0)
    return _CONFIG.pack(descriptor, 0, info, *(0,) * 8)


def is_own(status: bytes) -> bool:
    """Return whether aligntool attached the loop device of which LOOP_GET_STATUS64 gave this."""
    return _INFO.unpack(status)[9].rstrip(b"\0") == _MARK if len(status) == _INFO.size else False
