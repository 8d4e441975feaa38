"""What a probe found, as a document, and what the audit may take from it.

In: a result; the text of a document. Out: the document; the disk and its units. Alone because a measurement is kept,
and counts for the disk that it was made on only.
"""

from dataclasses import dataclass

from aligntool.audit.wishes import MeasuredDisk, MeasuredUnit
from aligntool.bench.inference import CONFIDENT, Boundary, Inference
from aligntool.errors import Refused
from aligntool.strict_json import Table, as_object, read_table
from aligntool.units import Extent, is_power_of_two

SCHEMA = "aligntool.probe"
VERSION = 1
_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Probed:
    """The disk, as it calls itself. Size in bytes."""

    name: str
    path: str
    size: int
    model: str | None = None
    serial: str | None = None
    wwn: str | None = None
    firmware: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Bytes; `regions` are of the disk."""

    disk: Probed
    inference: Inference
    sector: int  # the smallest request of direct I/O
    regions: tuple[Extent, Extent]
    rounds: int
    read: int
    written: int
    zeros: float  # share of the reads
    elapsed_s: float
    seed: int
    interrupted: bool
    file: str | None  # the file that was made to write in; None: the disk itself


def document(result: ProbeResult, version: str) -> dict[str, object]:
    """Sizes in bytes, times in µs, shares and confidences from 0 to 1."""
    inference = result.inference
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "aligntool": version,
        "disk": as_object(result.disk),
        "unit": inference.unit,
        "confident_from": CONFIDENT,
        "boundaries": [_boundary(one) for one in inference.boundaries],
        "doubtful": [_boundary(one) for one in inference.doubtful],
        "why_unknown": list(inference.why_unknown),
        "looked": [as_object(one) for one in inference.looked],
        "experiment": {
            "sector": result.sector,
            "regions": [as_object(region) for region in result.regions],
            "rounds": result.rounds,
            "read": result.read,
            "written": result.written,
            "zeros": result.zeros,
            "elapsed_s": result.elapsed_s,
            "seed": result.seed,
            "interrupted": result.interrupted,
            "file": result.file,
        },
    }


def _boundary(boundary: Boundary) -> dict[str, object]:
    return {
        "size": boundary.size,
        "confidence": boundary.confidence,
        "evidence": [as_object(one) for one in boundary.evidence],
    }


def read_measured(text: str, name: str, again: str = "") -> MeasuredDisk:
    """The units that are sure enough. `name`: of the file, for people; `again`: the command that makes another one.
    Raises Refused for any other document.
    """
    try:
        found = read_table(text)
        if found.word("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        if found.values.get("version") != VERSION:
            raise ValueError(
                f"it is of version {found.values.get('version')!r}, and this aligntool reads {VERSION}"
            )
        disk = found.table("disk")
        size = disk.whole("size")
        if not size:
            raise ValueError("its disk has no size")
        units = tuple(_unit(each) for each in found.rows("boundaries"))
        return MeasuredDisk(
            name=disk.maybe_word("name") or "",
            path=disk.maybe_word("path") or "",
            size=size,
            serial=disk.maybe_word("serial") or None,
            wwn=disk.maybe_word("wwn") or None,
            units=tuple(unit for unit in units if unit.confidence >= CONFIDENT),
        )
    except ValueError as error:
        raise Refused(f"{name} is no result of a probe: {error}", hint=again) from None


def _unit(boundary: Table) -> MeasuredUnit:
    size, confidence = boundary.whole("size"), boundary.number("confidence")
    if not is_power_of_two(size) or not 512 <= size <= _LARGEST:
        raise ValueError(f"{size} is no boundary of a disk")
    if confidence > 1:
        raise ValueError(f"{confidence} is no confidence")
    return MeasuredUnit(size, confidence)
