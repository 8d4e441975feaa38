"""NVMe and ATA commands by ioctl: Identify, IDENTIFY DEVICE, health, power state."""

import ctypes
import fcntl
import json
import mmap
import os
import struct
from contextlib import suppress
from dataclasses import replace

from aligntool.inventory import Disk, DiskKind, Health
from aligntool.linux.programs import run_program
from aligntool.linux.sysfs import IO_NONE, opened

# ATA commands: IDENTIFY DEVICE and CHECK POWER MODE, through SG_IO. Only these two are sent: they change
# nothing, do not wake the drive, and require root.

SG_IO = 0x2285
PATIENCE_MS = 5000

_FROM_DEVICE = -3  # SG_DXFER_FROM_DEV
_NO_DATA = -1  # SG_DXFER_NONE
_PASS_THROUGH_16 = 0x85  # SAT-3, 12.2.2
_PIO_IN = 4 << 1
_NON_DATA = 3 << 1
_IDENTIFY_DEVICE = 0xEC
_CHECK_POWER_MODE = 0xE5
_STANDBY = 0x00  # CHECK POWER MODE's count: PM2, standby; FFh active, 80h idle
_ATA_INFORMATION = b"\x00\x1d"  # additional sense: ATA PASS THROUGH INFORMATION AVAILABLE
_REQUEST = struct.Struct("@iiBBHIPPPIIiPBBBBHHiII0P")  # struct sg_io_hdr, include/scsi/sg.h
_ATA_RETURN = 0x09  # descriptor type of the registers that the sense data returns


def identify_device(descriptor: int) -> bytes | None:
    # T_DIR from the device, BYT_BLOK and T_LENGTH: one block, counted in the count field
    answer = _send(descriptor, _pass_through(_PIO_IN, 0x0E, 1, _IDENTIFY_DEVICE), 512)
    return answer[0] if answer else None


def is_standby(descriptor: int) -> bool | None:
    """Return whether the drive is in standby, or None if it did not report its state."""
    answer = _send(descriptor, _pass_through(_NON_DATA, 0x20, 0, _CHECK_POWER_MODE), 0)  # CK_COND
    return standby_in_sense(answer[1]) if answer else None


def standby_in_sense(sense: bytes) -> bool | None:
    """Return whether the count register in an ATA Status Return descriptor (SAT-3, 12.2.7), or in fixed sense
    data, reports standby. None: it is in neither.

    Older Linux put the registers into other bytes of fixed sense data; a status of zero shows that.
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
    """Send a command; return (data, sense), or None if the kernel, the host or the drive refused."""
    command = ctypes.create_string_buffer(words, len(words))
    sense = ctypes.create_string_buffer(64)
    data = ctypes.create_string_buffer(max(length, 1))
    places = (ctypes.addressof(data) if length else 0, ctypes.addressof(command), ctypes.addressof(sense))
    direction = _FROM_DEVICE if length else _NO_DATA
    head = (ord("S"), direction, len(words), len(sense), 0, length, *places, PATIENCE_MS)
    request = bytearray(_REQUEST.pack(*head, *(0,) * 12))
    try:
        fcntl.ioctl(descriptor, SG_IO, request)
    except OSError:
        return None
    status, _, _, sense_length, host_status, *_ = _REQUEST.unpack(request)[13:]
    if host_status or (length and status):
        return None
    return data.raw[:length], sense.raw[:sense_length]


# NVMe commands: Identify, Get Features and Get Log Page through the kernel's admin ioctl, and the ioctl for
# the namespace's number. Only these four are sent, and none of them changes anything.

NVME_IOCTL_ID = IO_NONE | 0x4E40  # _IO('N', 0x40): returns the namespace's number
# _IOWR('N', 0x41, struct nvme_passthru_cmd), include/uapi/linux/nvme_ioctl.h
NVME_IOCTL_ADMIN_CMD = 0xC0484E41
PAGE = 4096

HEALTH_LENGTH = 512

_COMMAND = struct.Struct("=BBHIIIQQIIIIIIIIII")  # struct nvme_passthru_cmd; the last is the result
_GET_LOG = 0x02
_GET_FEATURES = 0x0A
_IDENTIFY = 0x06
_CNS_NAMESPACE = 0x00
_CNS_CONTROLLER = 0x01
_CNS_ACTIVE = 0x02
_CNS_ALLOCATED = 0x10
_FEATURE_HMB = 0x0D
_LOG_HEALTH = 0x02
_WHOLE_DRIVE = 0xFFFFFFFF


def identify_controller(descriptor: int) -> bytes | None:
    return _read_page(descriptor, _IDENTIFY, 0, _CNS_CONTROLLER)


def identify_namespace(descriptor: int, nsid: int | None) -> bytes | None:
    """Return the Identify Namespace data. Every user who can open the node may read it (Linux 6.2,
    nvme_cmd_allowed), before that root only.
    """
    nsid = namespace_number(descriptor) if nsid is None else nsid
    return None if nsid is None else _read_page(descriptor, _IDENTIFY, nsid, _CNS_NAMESPACE)


def get_host_memory_buffer(descriptor: int) -> tuple[int, bytes] | None:
    """Return (dword 0, attributes), or None if the drive lacks the feature or the user is not root."""
    return _send_admin(descriptor, _GET_FEATURES, 0, _FEATURE_HMB, PAGE)


def health_log(descriptor: int) -> bytes | None:
    """Return SMART / Health Information of the whole drive, 512 bytes; requires root."""
    dwords = HEALTH_LENGTH // 4 - 1  # NUMDL, 0's based
    return _read_page(descriptor, _GET_LOG, _WHOLE_DRIVE, dwords << 16 | _LOG_HEALTH, HEALTH_LENGTH)


def namespace_number(descriptor: int) -> int | None:
    with suppress(OSError):
        return fcntl.ioctl(descriptor, NVME_IOCTL_ID) or None
    return None


def namespaces(descriptor: int) -> tuple[int, ...]:
    """Return the numbers of all allocated namespaces of the drive, attached or not; if the drive does not
    list those, of its active ones. Return () if it lists neither.
    """
    lists = (_read_page(descriptor, _IDENTIFY, 0, cns) for cns in (_CNS_ALLOCATED, _CNS_ACTIVE))
    page = next(filter(None, lists), b"")
    return tuple(number for (number,) in struct.iter_unpack("<I", page) if number)


def _read_page(descriptor: int, opcode: int, nsid: int, cdw10: int, length: int = PAGE) -> bytes | None:
    answer = _send_admin(descriptor, opcode, nsid, cdw10, length)
    return answer[1] if answer else None


def _send_admin(descriptor: int, opcode: int, nsid: int, cdw10: int, length: int) -> tuple[int, bytes] | None:
    """Send an admin command; return (result, data). The buffer is a separate page: the drive writes to it by
    DMA.
    """
    with mmap.mmap(-1, PAGE) as page:
        window = ctypes.c_char.from_buffer(page)
        data = (ctypes.addressof(window), 0, length)
        command = bytearray(
            _COMMAND.pack(opcode, 0, 0, nsid, 0, 0, 0, *data, cdw10, 0, 0, 0, 0, 0, PATIENCE_MS, 0)
        )
        try:
            status = fcntl.ioctl(descriptor, NVME_IOCTL_ADMIN_CMD, command)
        except OSError:
            return None
        finally:
            del window  # else the page cannot be unmapped
        result = _COMMAND.unpack(command)[-1]
        return (result, page[:length]) if status == 0 else None  # a positive status is the drive's refusal


# Predicted failure, wear and temperature of a drive. They are read only before a plan: heavy reading and
# writing kills a failing drive, and an audit reads very little. smartctl knows the commands of each kind of
# drive and bridge; without it only NVMe drives can be queried, and without root the health is unknown.

PATIENCE_S = 10.0
PHYSICAL = (DiskKind.ATA, DiskKind.SCSI, DiskKind.NVME, DiskKind.USB)
# ATA attributes whose raw value is a count of sectors that could not be read.
UNREADABLE = {197: "sectors pending reallocation", 198: "uncorrectable sectors"}
COUNT_MASK = 0xFFFFFFFF  # some drives use the upper two bytes of the raw value for something else
# Critical Warning, NVMe base specification, SMART / Health Information. Bit 1 is the temperature, which is
# temporary.
CRITICAL = {
    0x01: "its spare blocks are running out",
    0x04: "its reliability is degraded",
    0x08: "it has become read-only",
    0x10: "its volatile memory backup has failed",
    0x20: "its persistent memory region has become read-only",
}
TOO_HOT = 0x02
ZERO_CELSIUS = 273  # K, as nvme-cli and smartctl use it
# smartctl's names (drivedb.h) of attributes whose normalised value falls from 100 to 0 over the rated
# endurance.
# They are matched by name, because manufacturers use one number for different things.
LIFE_LEFT = (
    "Media_Wearout_Indicator", "Percent_Lifetime_Remain", "Wear_Leveling_Count", "SSD_Life_Left",
    "Remaining_Lifetime_Perc",
)  # fmt: skip
ENDURANCE_PAGE = 7  # device statistics
ENDURANCE_OFFSET = 8  # Percentage Used Endurance Indicator (ACS-3, A.11.5)


def with_health(disk: Disk) -> Disk:
    """Return the disk with its predicted failure and its health; unchanged if they cannot be read. This takes
    at most ten seconds.
    """
    if disk.kind not in PHYSICAL or os.geteuid() != 0:
        return disk
    words = ("smartctl", "-j", "-H", "-A", "-l", "ssd", disk.path)
    failing, health = decode_smartctl_report(run_program(*words, only_reads=True, limit_s=PATIENCE_S).output)
    if failing is None and health is None and disk.kind is DiskKind.NVME:
        # smartctl is not installed, or reported nothing
        with suppress(OSError), opened(disk.path) as descriptor:
            log = health_log(descriptor)
            if log:
                failing, health = decode_health_log(log)
    return replace(disk, failing=failing, health=health)


def decode_health_log(log: bytes) -> tuple[str | None, Health]:
    """Decode log 02h, 512 bytes, into the reported failure and the health (NVMe base specification 2.0,
    figure 207).
    """
    warning = log[0]
    kelvin = int.from_bytes(log[1:3], "little")
    failures = [what for bit, what in CRITICAL.items() if warning & bit]
    health = Health(
        used_percent=log[5],
        spare_percent=log[3],
        spare_threshold=log[4],
        media_errors=int.from_bytes(log[160:176], "little"),
        temperature_c=kelvin - ZERO_CELSIUS if kelvin else None,
        too_hot=bool(warning & TOO_HOT),
        passed=not failures,
    )
    return "; ".join(failures) or None, health


def decode_smartctl_report(report: str) -> tuple[str | None, Health | None]:
    """Decode the JSON of smartctl (7.0 or newer); return the predicted failure and the health, each None if
    missing.
    """
    try:
        document: object = json.loads(report)
    except (ValueError, RecursionError):
        return None, None
    passed = _get(document, "smart_status", "passed")
    log = _get(document, "nvme_smart_health_information_log")
    warning = _count(log, "critical_warning") or 0
    failures = ["the drive predicts its failure (SMART status)"] if passed is False else []
    for attribute in _rows(document, "ata_smart_attributes", "table"):
        number = _get(attribute, "id")
        count = (_count(attribute, "raw", "value") or 0) & COUNT_MASK
        if count and isinstance(number, int) and number in UNREADABLE:
            failures.append(f"{count} {UNREADABLE[number]} (attribute {number})")
    failures += [what for bit, what in CRITICAL.items() if warning & bit]
    used = (
        _count(log, "percentage_used"),
        _count(document, "endurance_used", "current_percent"),
        _used_by_statistics(document),
        _used_by_attribute(document),
    )
    health = Health(
        used_percent=next((value for value in used if value is not None), None),
        spare_percent=_count(log, "available_spare"),
        spare_threshold=_count(log, "available_spare_threshold"),
        media_errors=_count(log, "media_errors"),
        temperature_c=_count(document, "temperature", "current"),
        too_hot=bool(warning & TOO_HOT),
        passed=passed if isinstance(passed, bool) else None,
    )
    return "; ".join(failures) or None, None if health == Health() else health


def _used_by_statistics(document: object) -> int | None:
    for page in _rows(document, "ata_device_statistics", "pages"):
        for row in _rows(page, "table") if _get(page, "number") == ENDURANCE_PAGE else ():
            if _get(row, "offset") == ENDURANCE_OFFSET and _get(row, "flags", "valid") is True:
                return _count(row, "value")
    return None


def _used_by_attribute(document: object) -> int | None:
    """Return the wear by an attribute, only for models that smartctl knows: for others the names are
    guesses.
    """
    if _get(document, "in_smartctl_database") is not True:
        return None
    rows = _rows(document, "ata_smart_attributes", "table")
    left = [_count(row, "value") for row in rows if _get(row, "name") in LIFE_LEFT]
    return next((100 - value for value in left if value is not None and value <= 100), None)


def _rows(value: object, *names: str) -> list[object]:
    found = _get(value, *names)
    return found if isinstance(found, list) else []


def _count(value: object, *names: str) -> int | None:
    found = _get(value, *names)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _get(value: object, *names: str) -> object:
    """Return the value in nested JSON objects under these names, or None if one is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
