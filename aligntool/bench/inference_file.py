"""What a probe found, as a document, and what the audit may take from it.

In: a result; the text of a document. Out: the document; the disk and its units. Alone because a measurement is kept,
and counts for the disk that it was made on only.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from aligntool.audit.wishes import MeasuredDisk, MeasuredUnit
from aligntool.bench.inference import CONFIDENT, Boundary, Inference
from aligntool.errors import Refused
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
        "disk": asdict(result.disk),
        "unit": inference.unit,
        "confident_from": CONFIDENT,
        "boundaries": [_boundary(one) for one in inference.boundaries],
        "doubtful": [_boundary(one) for one in inference.doubtful],
        "why_unknown": list(inference.why_unknown),
        "looked": [asdict(one) for one in inference.looked],
        "experiment": {
            "sector": result.sector,
            "regions": [asdict(region) for region in result.regions],
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
        "evidence": [asdict(one) for one in boundary.evidence],
    }


def read_measured(text: str, name: str, again: str = "") -> MeasuredDisk:
    """The units that are sure enough. `name`: of the file, for people; `again`: the command that makes another one.
    Raises Refused for any other document.
    """
    try:
        found = _mapping(json.loads(text))
    except (ValueError, RecursionError):
        raise _refused(name, "it is no JSON", again) from None
    if found.get("schema") != SCHEMA:
        raise _refused(name, f"its schema is not {SCHEMA}", again)
    if found.get("version") != VERSION:
        why = f"it is of version {found.get('version')!r}, and this aligntool reads {VERSION}"
        raise _refused(name, why, again)
    try:
        disk = _mapping(found.get("disk"))
        units = tuple(_unit(_mapping(one)) for one in _list(found.get("boundaries")))
        size = disk.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
            raise ValueError("its disk has no size")
        return MeasuredDisk(
            name=_text(disk, "name") or "",
            path=_text(disk, "path") or "",
            size=size,
            serial=_text(disk, "serial"),
            wwn=_text(disk, "wwn"),
            units=tuple(unit for unit in units if unit.confidence >= CONFIDENT),
        )
    except ValueError as error:
        raise _refused(name, str(error), again) from None


def _unit(boundary: Mapping[str, object]) -> MeasuredUnit:
    size, confidence = boundary.get("size"), boundary.get("confidence")
    if not isinstance(size, int) or not is_power_of_two(size) or not 512 <= size <= _LARGEST:
        raise ValueError(f"{size!r} is no boundary of a disk")
    if not isinstance(confidence, int | float) or not math.isfinite(confidence) or not 0 <= confidence <= 1:
        raise ValueError(f"{confidence!r} is no confidence")
    return MeasuredUnit(size, float(confidence))


def _refused(name: str, why: str, again: str) -> Refused:
    return Refused(f"{name} is no result of a probe: {why}", hint=again)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("it has another shape")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError("it has another shape")
    return value


def _text(disk: Mapping[str, object], name: str) -> str | None:
    value = disk.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"its disk has a {name} that is no text")
    return value or None
