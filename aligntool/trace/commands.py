"""The words in which a log of commands is told, whatever its format.

In: nothing. Out: kinds, moments and the shape of an event. Alone because the readers of logs and the tally must mean
the same by them.
"""

from enum import Enum, StrEnum


class Kind(StrEnum):
    """What a command does. Only the first three have a range of addresses."""

    READ = "read"
    WRITE = "write"
    DISCARD = "discard"
    FLUSH = "flush"
    OTHER = "other"


WITH_RANGE = (Kind.READ, Kind.WRITE, Kind.DISCARD)


class Moment(Enum):
    """What happened to a command. Logs that tell only one moment tell ISSUED."""

    QUEUED = "queued"  # handed to the kernel's block layer; requests may still be merged or split
    ISSUED = "issued"  # sent to the drive
    REQUEUED = "requeued"  # the driver could not take it; it will be issued again
    COMPLETED = "completed"


Event = tuple[Moment, Kind, bytes, int, int, int]
"""Moment, kind, source (a device number or file name), start and length in bytes, and the time in nanoseconds, UNTIMED
where the log has none. A plain tuple, because there are millions of them. The length is 0 where the kind has no range.
"""
UNTIMED = -1
