"""What reading a partition table gives, and the one way bytes are asked for here.

Comes in: a `Reader`. Goes out: bytes that may be fewer than wanted, or None where the medium could not be read, so that
no parser below needs a try of its own. Alone because every parser of this folder stands on it.
"""

from dataclasses import dataclass

from aligntool.inventory import Fault, Partition, Table, TableFault
from aligntool.probe.reader import Reader

MOST_FAULTS = 32  # of one kind in one table: a hostile disk may make thousands, nobody reads more


@dataclass(frozen=True, slots=True)
class TableReading:
    table: Table | None  # None: no table found
    partitions: tuple[Partition, ...]


def peek(reader: Reader, offset: int, length: int) -> bytes | None:
    """The bytes at `offset`, short at the end of the disk, None where the medium cannot be read."""
    try:
        return reader.read(offset, length)
    except OSError:
        return None


def unreadable(what: str, at: int) -> TableFault:
    return TableFault(
        Fault.UNREADABLE, f"{what} at byte {at} cannot be read: the medium gives an I/O error", at
    )


def text_field(raw: bytes, encoding: str = "latin-1") -> str:
    """A fixed-width text field up to its first NUL, without the blanks that pad it."""
    return raw.split(b"\0", 1)[0].decode(encoding, "replace").rstrip()


def thin_out(faults: list[TableFault]) -> tuple[TableFault, ...]:
    """At most MOST_FAULTS of each kind; the last one kept speaks for those left out."""
    kept: list[TableFault] = []
    seen: dict[Fault, int] = {}
    for fault in faults:
        seen[fault.fault] = seen.get(fault.fault, 0) + 1
        if seen[fault.fault] < MOST_FAULTS:
            kept.append(fault)
    for kind, count in seen.items():
        if count >= MOST_FAULTS:
            kept.append(
                _for_the_rest(kind, [fault for fault in faults if fault.fault == kind][MOST_FAULTS - 1 :])
            )
    return tuple(kept)


def _for_the_rest(kind: Fault, rest: list[TableFault]) -> TableFault:
    numbers = sorted({number for fault in rest for number in fault.partitions})
    detail = f"{rest[0].detail} (and {len(rest) - 1} more of this kind)" if len(rest) > 1 else rest[0].detail
    return TableFault(kind, detail, rest[0].at, tuple(numbers))
