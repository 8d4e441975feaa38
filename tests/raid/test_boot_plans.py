"""EFI system partitions and their copies in a plan, and how its files are written and rolled back."""

from pathlib import Path
from uuid import UUID

import pytest

from aligntool.change import Plan, to_json
from aligntool.raid.steps_system import edit_file, find_file_trace, reload_restored, restore_file
from aligntool.steps import EditFile, EnableUnit, FileStep, MakeArray, MakeFileSystem, ReloadUnits, WriteFile
from aligntool.units import MIB
from tests.raid.applying.builders import paths_in, plan_of
from tests.raid.builders import drives, goal, planned

FOLDERS = ("etc/default", "etc/mdadm", "etc/systemd/system", "usr/local/lib")


def system_plan(**words: object) -> Plan:
    return planned(goal("raid1", esp_size=512 * MIB, filesystem="ext4", mount_at="", **words), *drives(2))


def edits(plan: Plan) -> list[FileStep]:
    return [step for step in plan.steps if isinstance(step, EditFile | WriteFile)]


def test_a_plan_lists_the_boot_partitions_that_it_makes_and_enables_the_unit_last() -> None:
    plan = planned(goal("raid1", esp_size=512 * MIB, filesystem="ext4", mount_at=""), *drives(3))
    made = [step.uuid for step in plan.steps if isinstance(step, MakeFileSystem) and step.kind == "vfat"]
    files = {step.path: step.lines for step in plan.steps if isinstance(step, EditFile | WriteFile)}
    assert len(set(made)) == 3
    (array,) = (step.uuid.replace(":", "") for step in plan.steps if isinstance(step, MakeArray))
    listed = f'ESP_COPIES="{" ".join(made)}" ESP_ARRAY={UUID(array)}'
    assert files["/etc/default/esp-copies"] == (listed,)
    assert any(f"UUID={made[0]} /boot/efi" in line for line in plan.attention)
    (unit,) = (path for path in files if path.endswith("esp-copies.service"))
    (script,) = (path for path in files if path.endswith("esp-copies.sh"))
    assert f"ExecStop=/bin/sh {script}" in files[unit]
    assert plan.steps[-1] == EnableUnit(Path(unit).name)


def test_without_boot_partitions_a_plan_has_nothing_to_copy() -> None:
    plan = planned(goal("raid1"), *drives(2))
    assert "esp-copies" not in to_json(plan)


def test_a_unit_is_not_enabled_again_when_its_file_is_restored() -> None:
    """The command for an edited file is repeated after the file was restored; this one would find no unit."""
    file = WriteFile("/etc/own.service", ("[Unit]",), "/etc/own.service.before")
    for step, again in ((EnableUnit("esp-copies.service"), False), (ReloadUnits(), True)):
        plan = plan_of([file, step])
        traces = {0: {"after": "00"}, 1: {}}
        said = [each.text for each in reload_restored(0, plan, traces)]
        assert any("systemctl" in text for text in said) is again


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in FOLDERS:
        (tmp_path / "root" / name).mkdir(parents=True)
    return tmp_path / "root"


def texts(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_a_later_array_changes_only_the_list(root: Path, tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    for step in edits(system_plan()):
        list(edit_file(step, paths, find_file_trace(step, paths)))
    was = texts(root)
    later = system_plan(filesystem_uuid="aaaaaaaa-0000-4000-8000-000000000000")
    for step in edits(later):
        list(edit_file(step, paths, find_file_trace(step, paths)))
    assert {name for name, text in texts(root).items() if was.get(name) != text} == {
        "etc/default/esp-copies", "etc/default/esp-copies.before-aligntool",
    }  # fmt: skip
    assert texts(root)["etc/default/esp-copies"].startswith('ESP_COPIES="AAAA-AAAA AAAA-AAAB" ESP_ARRAY=')


def test_written_files_are_removed_by_a_rollback(root: Path, tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    steps = edits(system_plan())
    traces = []
    for step in steps:
        traces.append(find_file_trace(step, paths))
        list(edit_file(step, paths, traces[-1]))
    assert len(texts(root)) == len(steps) == 7
    for step, trace in zip(reversed(steps), reversed(traces), strict=True):
        list(restore_file(step, paths, trace))
    assert texts(root) == {}
