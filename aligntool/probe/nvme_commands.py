"""Asking an NVMe drive: Identify, Get Features and Get Log Page through the kernel's admin ioctl.

In: an open descriptor of a namespace. Out: raw pages, decoded elsewhere. Alone because this is where a command goes to
a drive; only these four go, and none of them changes anything.
"""

import ctypes
import fcntl
import mmap

NVME_IOCTL_ID = 0x4E40  # _IO('N', 0x40): answers with the namespace's number
NVME_IOCTL_ADMIN_CMD = (
    0xC0484E41  # _IOWR('N', 0x41, struct nvme_passthru_cmd), include/uapi/linux/nvme_ioctl.h
)
PAGE = 4096
PATIENCE_MS = 5000

HEALTH_LENGTH = 512

_GET_LOG, _GET_FEATURES, _IDENTIFY = 0x02, 0x0A, 0x06
_CNS_NAMESPACE, _CNS_CONTROLLER = 0x00, 0x01
_FEATURE_HMB = 0x0D
_LOG_HEALTH, _WHOLE_DRIVE = 0x02, 0xFFFFFFFF


class _Command(ctypes.Structure):
    """struct nvme_passthru_cmd"""

    _fields_ = (
        ("opcode", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("reserved", ctypes.c_uint16),
        ("nsid", ctypes.c_uint32),
        ("cdw2", ctypes.c_uint32),
        ("cdw3", ctypes.c_uint32),
        ("metadata", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("metadata_length", ctypes.c_uint32),
        ("data_length", ctypes.c_uint32),
        ("cdw10", ctypes.c_uint32),
        ("cdw11", ctypes.c_uint32),
        ("cdw12", ctypes.c_uint32),
        ("cdw13", ctypes.c_uint32),
        ("cdw14", ctypes.c_uint32),
        ("cdw15", ctypes.c_uint32),
        ("timeout_ms", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
    )


def identify_controller(descriptor: int) -> bytes | None:
    answer = _ask(descriptor, _IDENTIFY, 0, _CNS_CONTROLLER)
    return answer[1] if answer else None


def identify_namespace(descriptor: int, nsid: int | None) -> bytes | None:
    """Allowed to anybody who could open the node (Linux 6.2, nvme_cmd_allowed); to root before that."""
    if nsid is None:
        nsid = namespace_number(descriptor)
    if nsid is None:
        return None
    answer = _ask(descriptor, _IDENTIFY, nsid, _CNS_NAMESPACE)
    return answer[1] if answer else None


def get_host_memory_buffer(descriptor: int) -> tuple[int, bytes] | None:
    """(dword 0, attributes). None: only root may ask, or the drive does not know the feature."""
    return _ask(descriptor, _GET_FEATURES, 0, _FEATURE_HMB)


def health_log(descriptor: int) -> bytes | None:
    """SMART / Health Information, 512 bytes, of the drive as a whole; only root may ask."""
    dwords = HEALTH_LENGTH // 4 - 1  # NUMDL, 0's based
    answer = _ask(descriptor, _GET_LOG, _WHOLE_DRIVE, dwords << 16 | _LOG_HEALTH, HEALTH_LENGTH)
    return answer[1] if answer else None


def namespace_number(descriptor: int) -> int | None:
    try:
        number = fcntl.ioctl(descriptor, NVME_IOCTL_ID)
    except OSError:
        return None
    return number if number > 0 else None


def _ask(descriptor: int, opcode: int, nsid: int, cdw10: int, length: int = PAGE) -> tuple[int, bytes] | None:
    """The buffer is a page of its own: the drive writes into it by DMA."""
    with mmap.mmap(-1, PAGE) as page:
        window = ctypes.c_char.from_buffer(page)
        command = _Command(
            opcode=opcode,
            nsid=nsid,
            address=ctypes.addressof(window),
            data_length=length,
            cdw10=cdw10,
            timeout_ms=PATIENCE_MS,
        )
        try:
            status = fcntl.ioctl(descriptor, NVME_IOCTL_ADMIN_CMD, command, True)
        except OSError:
            return None
        finally:
            del window  # else the page cannot be unmapped
        return (
            (command.result, page[:length]) if status == 0 else None
        )  # a positive status is the drive's refusal
