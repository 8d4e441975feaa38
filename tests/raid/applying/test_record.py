"""Records of unfinished arrays: they are read back as written, and a damaged record is refused."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.cli.arrays import array_status, refuse_overlapping_change, refuse_unfinished
from aligntool.errors import Refused
from aligntool.linux.open_files import openers
from aligntool.linux.programs import run_program
from aligntool.raid.record import Record, find_records, lock_state, read_record, remove_record, save, set_aside
from aligntool.raid.steps_system import Paths
from tests.raid.applying.builders import fstab_step, plan_of
from tests.render.sample_plans import ARRAY

PLAN = plan_of([fstab_step()])


@pytest.fixture
def record(tmp_path: Path) -> Record:
    (tmp_path / "arrays").mkdir()
    made = Record(tmp_path / "arrays/x.json", PLAN, 0, True, False, {0: {"before": "eA==", "after": "00"}})
    save(made)
    return made


def test_a_record_is_read_back_as_written_and_only_root_may_read_it(record: Record, tmp_path: Path) -> None:
    assert find_records(tmp_path) == (record,)
    assert record.file.stat().st_mode & 0o777 == 0o600
    save(replace(record, position=1, begun=False))
    assert read_record(record.file).position == 1
    assert [each.name for each in record.file.parent.iterdir()] == ["x.json"]
    remove_record(record)
    assert find_records(tmp_path) == ()


def test_a_record_that_is_set_aside_is_kept_and_not_found(record: Record, tmp_path: Path) -> None:
    text = record.file.read_text()
    aside = set_aside(record)
    assert (aside.name, aside.read_text()) == ("x.json.old", text)
    assert [each.name for each in aside.parent.iterdir()] == ["x.json.old"] and find_records(tmp_path) == ()
    assert read_record(aside) == replace(record, file=aside)


def test_a_record_truncated_anywhere_is_refused(record: Record) -> None:
    whole = record.file.read_bytes()
    for length in range(0, len(whole) - 1, 97):
        record.file.write_bytes(whole[:length])
        with pytest.raises(Refused, match="cannot be read"):
            read_record(record.file)


def test_a_changed_byte_is_detected_by_the_checksum(record: Record) -> None:
    whole = record.file.read_text()
    record.file.write_text(whole.replace('"begun": true', '"begun": false'))
    with pytest.raises(Refused, match="checksum"):
        read_record(record.file)


@pytest.mark.parametrize(
    "hostile", ["[]", "null", "1e999", "[" * 100_000, '{"schema": "aligntool.record"}', "\x00" * 100, '{"plan": {}}']
)
def test_a_file_that_is_not_a_record_is_refused_and_named(record: Record, hostile: str) -> None:
    record.file.write_text(hostile)
    with pytest.raises(Refused) as caught:
        read_record(record.file)
    assert str(record.file) in str(caught.value) and caught.value.hint


def test_the_version_of_an_unsupported_record_is_named(record: Record) -> None:
    document = json.loads(record.file.read_text())
    record.file.write_text(json.dumps(document | {"version": 2}))
    with pytest.raises(Refused, match="version 2"):
        read_record(record.file)


def test_a_second_aligntool_is_refused_while_one_is_running(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with lock_state(state), pytest.raises(Refused, match="another aligntool"), lock_state(state):
        pytest.fail("two at once")
    with lock_state(state):
        assert (state / "arrays").is_dir()


def test_a_program_that_outlives_aligntool_holds_the_lock_until_it_ends(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with lock_state(tmp_path):
            run_program("sh", "-c", f"echo $$ > {tmp_path}/number; exec sleep 600")
    number = tmp_path / "number"
    deadline = time.monotonic() + 60
    while not (number.exists() and number.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with pytest.raises(Refused, match="another aligntool"), lock_state(tmp_path):
        pass
    assert [*openers(tmp_path / "lock")] == [int(number.read_text())]
    os.kill(int(number.read_text()), signal.SIGKILL)
    while [*openers(tmp_path / "lock")]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with lock_state(tmp_path):
        pass


def test_the_status_of_an_existing_array_does_not_forbid_its_use(record: Record) -> None:
    created = replace(record, plan=ARRAY, forward=True)
    persist = replace(created, plan=replace(PLAN, purpose="persist"))
    assert "do not store anything" in array_status(created).sentences[0]
    assert array_status(persist).sentences[0].endswith("the array itself is not affected")


def test_an_array_with_an_unfinished_change_is_recognised_by_its_uuid(record: Record, tmp_path: Path) -> None:
    renamed = replace(PLAN, disk=replace(PLAN.disk, path="/dev/md126"))
    with pytest.raises(Refused, match=f"{PLAN.disk.path} is unfinished"):
        refuse_overlapping_change(renamed, Paths(state=tmp_path))
    refuse_overlapping_change(replace(renamed, disk=replace(renamed.disk, disk_id="1:1:1:1")), Paths(state=tmp_path))


def test_an_unfinished_change_must_be_resumed_and_is_not_restarted(record: Record) -> None:
    with pytest.raises(Refused) as refused:
        refuse_unfinished(record)
    path = PLAN.disk.path
    assert refused.value.hint.split("\n")[0].endswith(f"aligntool resume {path}") and path in str(refused.value)
    refuse_unfinished(None)
