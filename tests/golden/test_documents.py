"""Plans, records and results of version 1 are read, mean the same, and are written back byte for byte."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import pytest

from aligntool.audit.report import read_measured
from aligntool.change import STEPS, ArrayRequest, StepBegun, from_json, request_in_document
from aligntool.documents import WIRE, as_object, decode
from aligntool.measure import results
from aligntool.measure.sweeps import Spans, Starts, experiment_from_json
from aligntool.raid.measured import parse_tuning
from aligntool.raid.record import read_record
from aligntool.raid.running import PersistGoal
from aligntool.raid.settings import parse_settings
from aligntool.realign.request import Request
from aligntool.render.experiments import alignment_json, span_json
from aligntool.render.progress import event_json
from aligntool.steps import Step
from tests.golden import documents
from tests.golden.documents import (
    ASKED,
    BENCH,
    DRIVES,
    FILE,
    PERSIST_GOAL,
    PLANS,
    RAID_GOAL,
    RECORDS,
    RESULTS,
    TUNING,
    kept,
    record_text,
)
from tests.schemas import check

GAINED = ("data", "pause_s", "reads", "md_state", "commands")
"""Keys that results of `bench` and `raid show` have since these were kept: a document may gain keys, and lose none."""


def without_version(text: str) -> object:
    """Drop the version of aligntool that wrote it, which differs each time."""
    document = json.loads(text, object_hook=lambda found: {key: found[key] for key in found if key not in GAINED})
    return document | {"aligntool": ""} if isinstance(document, dict) else document


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_and_written_back_identically(name: str) -> None:
    plan, written = PLANS[name]
    text = kept(name)
    assert from_json(text) == plan
    assert written(plan) == text
    document = json.loads(text)
    said = json.dumps(document["plan"], sort_keys=True).encode()
    assert document["digest"] == hashlib.sha256(said).hexdigest()
    check(document)


def test_the_request_is_read_from_a_plan() -> None:
    assert request_in_document(kept("plan-realign-shrink"), "asked", Request) == ASKED
    assert request_in_document(kept("plan-raid"), "wanted", ArrayRequest) == ArrayRequest(DRIVES, RAID_GOAL)
    assert request_in_document(kept("plan-persist"), "persist", PersistGoal) == PERSIST_GOAL


def test_every_kind_of_step_is_stored_and_has_the_same_name_in_plans_and_events() -> None:
    assert set(STEPS.values()) == set(get_args(Step))
    names = set()
    for name, (plan, _) in PLANS.items():
        for index, step in enumerate(json.loads(kept(name))["plan"]["steps"]):
            assert json.loads(event_json(plan, StepBegun(index)))["step"] == step["step"]
            names.add(step["step"])
    assert names == set(STEPS)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_read_and_written_back_identically(name: str, tmp_path: Path) -> None:
    file = tmp_path / "read.json"
    file.write_text(kept(name))
    assert replace(read_record(file), file=FILE) == RECORDS[name]
    assert record_text(read_record(file), tmp_path) == kept(name)
    document = json.loads(kept(name))
    checksum = document.pop("checksum")
    assert checksum == hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_written_as_by_version_1(name: str) -> None:
    written, before = without_version(RESULTS[name]()), without_version(kept(name))
    assert written == before
    assert isinstance(written, dict | list) and isinstance(before, dict | list) and [*written] == [*before]


def test_results_of_version_1_are_read() -> None:
    assert results.from_json(kept("bench"), "") == BENCH
    assert parse_tuning(kept("raid-tune")) == TUNING
    assert parse_settings(kept("raid-settings")) == documents.SETTINGS_TUNING
    starts, spans = (experiment_from_json(kept(name), "") for name in ("bench-alignment", "bench-span"))
    assert isinstance(starts, Starts) and isinstance(spans, Spans)
    assert starts == documents.STARTS
    assert without_version(alignment_json(starts, starts.rows)) == without_version(kept("bench-alignment"))
    assert without_version(span_json(spans, None)) == without_version(kept("bench-span"))
    measured = read_measured(kept("probe"), "")
    assert [(unit.size, unit.confidence) for unit in measured.units] == [(4096, 0.99)]
    assert (measured.serial, measured.wwn, measured.size) == ("S", "W", 1 << 40)


@dataclass(frozen=True)
class Renamed:
    later: tuple[int, ...] = field(metadata={WIRE: "earlier"})
    same: "Renamed | None" = None


def test_a_field_that_was_renamed_keeps_its_name_in_documents() -> None:
    value = Renamed((1, 2), Renamed((3,)))
    assert as_object(value, {Renamed: {"kind": "r"}}) == {
        "kind": "r", "earlier": [1, 2], "same": {"kind": "r", "earlier": [3], "same": None},
    }  # fmt: skip
    assert decode(Renamed, as_object(value)) == value
