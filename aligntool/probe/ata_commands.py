"""Asking an ATA drive: IDENTIFY DEVICE and CHECK POWER MODE, through SG_IO.

In: an open descriptor of the disk. Out: the IDENTIFY data; whether it sleeps. Alone because this is where a command
goes to a drive: these two neither change anything nor wake it, and only root may send them.
"""

import ctypes
import fcntl

SG_IO = 0x2285
PATIENCE_MS = 5000

_FROM_DEVICE, _NO_DATA = -3, -1  # SG_DXFER_FROM_DEV, SG_DXFER_NONE
_PASS_THROUGH_16 = 0x85  # SAT-3, 12.2.2
_PIO_IN, _NON_DATA = 4 << 1, 3 << 1
_IDENTIFY_DEVICE, _CHECK_POWER_MODE = 0xEC, 0xE5
_STANDBY = 0x00  # CHECK POWER MODE's count: PM2, standby; FFh active, 80h idle
_ATA_INFORMATION = b"\x00\x1d"  # additional sense: ATA PASS THROUGH INFORMATION AVAILABLE
_ATA_RETURN = 0x09  # descriptor type of the registers that come back in the sense data


class _Request(ctypes.Structure):
    """struct sg_io_hdr, include/scsi/sg.h"""

    _fields_ = (
        ("interface_id", ctypes.c_int),
        ("direction", ctypes.c_int),
        ("command_length", ctypes.c_ubyte),
        ("sense_room", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("data_length", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("command", ctypes.c_void_p),
        ("sense", ctypes.c_void_p),
        ("timeout_ms", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("message_status", ctypes.c_ubyte),
        ("sense_length", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("residual", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )


def identify_device(descriptor: int) -> bytes | None:
    # T_DIR from the device, BYT_BLOK and T_LENGTH: one block, counted in the count field
    answer = _send(descriptor, _pass_through(_PIO_IN, 0x0E, 1, _IDENTIFY_DEVICE), 512)
    return answer[0] if answer else None


def is_standby(descriptor: int) -> bool | None:
    """None when the drive did not say."""
    answer = _send(descriptor, _pass_through(_NON_DATA, 0x20, 0, _CHECK_POWER_MODE), 0)  # CK_COND
    return power_of_sense(answer[1]) if answer else None


def power_of_sense(sense: bytes) -> bool | None:
    """The count register: in an ATA Status Return descriptor (SAT-3, 12.2.7), or in fixed sense data.

    Older Linux put the registers into other bytes of the latter; a status of zero there means that these are not they.
    """
    form = sense[0] & 0x7F if len(sense) >= 14 else 0
    if form in (0x72, 0x73) and len(sense) >= 22 and sense[8] == _ATA_RETURN:
        return sense[13] == _STANDBY
    if form == 0x70 and sense[12:14] == _ATA_INFORMATION and sense[4]:
        return sense[6] == _STANDBY
    return None


def _pass_through(protocol: int, flags: int, count: int, command: int) -> bytes:
    return bytes([_PASS_THROUGH_16, protocol, flags, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0, command, 0])


def _send(descriptor: int, words: bytes, length: int) -> tuple[bytes, bytes] | None:
    """(data, sense), or None where the kernel, the host or the drive refused."""
    command = ctypes.create_string_buffer(words, len(words))
    sense = ctypes.create_string_buffer(64)
    data = ctypes.create_string_buffer(max(length, 1))
    request = _Request(
        interface_id=ord("S"),
        direction=_FROM_DEVICE if length else _NO_DATA,
        command_length=len(words),
        sense_room=len(sense),
        data_length=length,
        data=ctypes.addressof(data) if length else None,
        command=ctypes.addressof(command),
        sense=ctypes.addressof(sense),
        timeout_ms=PATIENCE_MS,
    )
    try:
        fcntl.ioctl(descriptor, SG_IO, request, True)
    except OSError:
        return None
    if request.host_status or (length and request.status):
        return None
    return data.raw[:length], sense.raw[: request.sense_length]
