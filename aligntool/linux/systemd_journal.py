"""Write an entry to the systemd journal for each moment of a change to a disk or a system."""

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from aligntool.change import ChangeState

SOCKET = "/run/systemd/journal/socket"

# MESSAGE_ID and priority (syslog.h) of each moment; packaging/systemd/aligntool.catalog explains them.
KINDS = {
    ChangeState.BEGUN: ("0f510bef34cb4c01b2d30c75b88089f9", 5),
    ChangeState.RESUMED: ("6872b8afb6874745a04c24fa44a65a60", 5),
    ChangeState.UNDOING: ("6ead4c897d13460499ab08de2777ceb2", 5),
    ChangeState.DONE: ("d0d5623e3b2c4a0098376155fcad3b19", 5),
    ChangeState.UNDONE: ("ac0bca103cae4856bdcf7ccf1b81656d", 5),
    ChangeState.STOPPED: ("5b63d306f7904ae682cba40fc58c9a0d", 3),
}
_LONGEST = 4096  # characters of a reason; a datagram is longer


def record(
    operation: str, disks: Sequence[str], moment: ChangeState, why: str = "", to: str = SOCKET
) -> None:
    """Send an entry. Drop it if no journal listens or it is busy: a change never waits or fails because of
    it.
    """
    message_id, priority = KINDS[moment]
    reason = f": {why[:_LONGEST]}" if why else ""
    fields = [
        ("MESSAGE", f"{operation} of {', '.join(disks)} {moment}{reason}"),
        ("MESSAGE_ID", message_id),
        ("PRIORITY", str(priority)),
        ("SYSLOG_IDENTIFIER", "aligntool"),
        ("ALIGNTOOL_OPERATION", operation),
        ("ALIGNTOOL_RESULT", moment.name.lower()),
        *(("ALIGNTOOL_DISK", disk) for disk in disks),
    ]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        sender.sendto(b"".join(_field(name, value) for name, value in fields), to)


def _field(name: str, value: str) -> bytes:
    """Encode a field with its length, so that it may contain anything
    (systemd.io/JOURNAL_NATIVE_PROTOCOL).
    """
    content = value.encode(errors="surrogateescape")
    return name.encode() + b"\n" + struct.pack("<Q", len(content)) + content + b"\n"


@contextmanager
def recorded(operation: str, disks: Sequence[str]) -> Iterator[None]:
    """Send an entry when the context begins, and one when it ends or fails."""
    record(operation, disks, ChangeState.BEGUN)
    try:
        yield
    except BaseException as error:
        record(operation, disks, ChangeState.STOPPED, str(error) or type(error).__name__)
        raise
    record(operation, disks, ChangeState.DONE)
