"""Measurements in an audit: which units are used, for which drives, and which documents are refused."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.report import AuditOptions, GridKind, MeasuredDisk, MeasuredUnit, Severity, read_measured
from aligntool.cli.audit import measured_on
from aligntool.errors import Refused
from aligntool.inventory import Disk, DiskKind, Gap, Inventory, Source, Unseen
from aligntool.measure.unit import ProbedDisk, ProbeResult, document, infer
from aligntool.measure.unit_design import Kind, design, regions
from aligntool.render.experiments import probe_lines
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.builders import codes, judge, made_disk
from tests.measure.unit.drives import Drive
from tests.measure.unit.hostile import Hostile, MixedPages, SlowDie, SmallWritesSlow
from tests.measure.unit.study import Simulated

SIZE = 500 * GIB


def measured(*sizes: int, serial: str | None = "S1", wwn: str | None = None, size: int = SIZE) -> MeasuredDisk:
    return MeasuredDisk("sda", "/dev/sda", size, tuple(MeasuredUnit(one, 0.99) for one in sizes), serial, wwn)


def disk(kind: DiskKind = DiskKind.NVME, serial: str | None = "S1") -> Disk:
    # Starts 4 KiB past a mebibyte: on 4 KiB, off everything larger.
    return replace(made_disk("2056+1000", kind=kind, rotational=False, physical=4096), serial=serial)


def test_a_partition_off_a_measured_unit_is_a_warning_with_source_measured() -> None:
    report = judge(disk(), wishes=AuditOptions(measured=(measured(16 * KIB),)))
    (grid,) = [grid for grid in report.judged[0].grids if grid.source is Source.MEASURED]
    assert (grid.kind, grid.size, grid.severity) == (GridKind.UNIT, 16 * KIB, Severity.WARNING)
    assert "99%" in grid.by
    assert "AT102" in codes(report)
    assert "AT102" not in codes(judge(disk()))


@pytest.mark.parametrize(
    ("kind", "severity"),
    [(DiskKind.SD, Severity.WARNING), (DiskKind.EMMC, Severity.WARNING), (DiskKind.NVME, Severity.INFO)],
)
def test_a_measured_boundary_of_megabytes_matters_on_cards(kind: DiskKind, severity: Severity) -> None:
    report = judge(disk(kind), wishes=AuditOptions(measured=(measured(4 * MIB),)))
    found = [grid for grid in report.judged[0].grids if grid.source is Source.MEASURED]
    assert [(grid.kind, grid.severity) for grid in found] == [(GridKind.ALLOCATION, severity)]


@pytest.mark.parametrize(
    ("of", "mine", "is_it"),
    [
        (measured(4096), disk(), True),
        (measured(4096, serial="S2"), disk(), False),
        (measured(4096, serial=None), disk(), False),
        (measured(4096, size=SIZE - 512), disk(), False),
        (measured(4096, serial=None), disk(serial=None), True),
        (measured(4096, serial=None), replace(disk(serial=None), path="/dev/sdb"), False),
        (measured(4096, wwn="eui.1"), replace(disk(), wwn="eui.1"), True),
        (measured(4096, wwn="eui.1"), replace(disk(), wwn="eui.2"), False),
    ],
)
def test_a_measurement_applies_only_to_the_disk_that_was_measured(of: MeasuredDisk, mine: Disk, is_it: bool) -> None:
    assert of.is_of(mine) is is_it
    report = judge(mine, wishes=AuditOptions(measured=(of,)))
    assert any(grid.source is Source.MEASURED for grid in report.judged[0].grids) is False  # 4096 is the sector itself
    larger = replace(of, units=(MeasuredUnit(64 * KIB, 1.0),))
    grids = judge(mine, wishes=AuditOptions(measured=(larger,))).judged[0].grids
    assert any(grid.source is Source.MEASURED for grid in grids) is is_it


def _probed(drive: Simulated | None = None) -> ProbeResult:
    drive, rng = drive or Drive(page=16 * KIB), random.Random(1)
    parts = regions(Extent(0, drive.size))
    samples = drive.samples(design(parts, 512, drive.kinds, rng, rounds=3, most=MIB))
    return ProbeResult(
        ProbedDisk("sda", "/dev/sda", SIZE, serial="S1"), infer(samples, rng, resamples=30), 512, parts, 3, 1, 0, 0.0,
        1.0, 1, False, None,
    )  # fmt: skip


def _kept(drive: Simulated | None = None) -> dict[str, Any]:
    """Return a document as the command stores it."""
    found: dict[str, Any] = json.loads(json.dumps(document(_probed(drive), "1")))
    return found


def test_every_size_of_every_kind_of_request_is_shown() -> None:
    result = _probed(SmallWritesSlow(1))
    assert {looked.kind for looked in result.inference.looked} == set(Kind)
    lines = ["".join(text for text, _ in line) for line in probe_lines(result, width=80, verbose=True)]
    sizes = sum(len(looked.penalties) for looked in result.inference.looked)
    assert sum("µs" in line and "±" in line for line in lines) == sizes


def test_a_saved_result_is_read_back_unchanged() -> None:
    kept = _kept()
    assert kept["unit"] == 16 * KIB
    read = read_measured(json.dumps(kept), "file")
    assert read.is_of(disk())
    assert [unit.size for unit in read.units] == [16 * KIB]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [SmallWritesSlow, SlowDie, MixedPages])
def test_an_audit_uses_no_unit_from_the_result_of_a_misleading_drive(kind: type[Hostile], seed: int) -> None:
    kept = read_measured(json.dumps(_kept(kind(seed))), "file")
    assert kept.is_of(disk())
    report = judge(disk(), wishes=AuditOptions(measured=(kept,)))
    assert "AT102" not in codes(report)
    assert not any(grid.source is Source.MEASURED for grid in report.judged[0].grids)


def test_a_boundary_below_the_required_confidence_is_not_used() -> None:
    kept = _kept()
    kept["boundaries"][0]["confidence"] = 0.94
    assert read_measured(json.dumps(kept), "file").units == ()


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "aligntool.plan"},
        {"version": 2},
        {"disk": None},
        {"disk": {"name": "sda", "path": "/dev/sda", "size": -1}},
        {"disk": {"name": "sda", "path": "/dev/sda", "size": 10**400}},
        {"disk": {"name": 1, "path": "/dev/sda", "size": 512}},
        {"boundaries": {}},
        {"boundaries": [{"size": 12288, "confidence": 1.0}]},
        {"boundaries": [{"size": 1 << 60, "confidence": 1.0}]},
        {"boundaries": [{"size": 16384, "confidence": 2.0}]},
        {"boundaries": [{"size": 16384, "confidence": "sure"}]},
        {"boundaries": [16384]},
    ],
)
def test_an_invalid_document_is_refused_in_one_sentence(change: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        read_measured(json.dumps(_KEPT | change), "file.json")
    assert "file.json is not a probe result" in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["schema", "version", "disk", "boundaries", "size", "confidence", "name", "x"]), inner
    ),
).map(json.dumps))  # fmt: skip
def test_any_invalid_text_is_refused_without_another_exception(text: str) -> None:
    with pytest.raises(Refused):
        read_measured(text, "file")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(Refused):
        read_measured("[" * 100_000, "file")


_KEPT = _kept()


def test_a_measurement_is_not_refused_if_a_disk_could_not_be_judged(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(_KEPT))
    with pytest.raises(Refused, match="another disk"):
        measured_on([str(file)], Inventory((replace(disk(), serial="S2"),)))
    for gap in (Gap.DISK, Gap.NO_ANSWER):
        unseen = (Unseen("/dev/nvme0n1", "cannot be read", gap=gap),)
        assert len(measured_on([str(file)], Inventory((), unseen=unseen))) == 1
    with pytest.raises(Refused, match="another disk"):
        measured_on([str(file)], Inventory((), unseen=(Unseen("initramfs", "needs root"),)))
