"""Every JSON document has a schema, which describes everything that the commands write."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from aligntool.cli.raid import _verdict
from aligntool.documents import schema_texts
from aligntool.measure.results import to_json
from aligntool.raid.measured import Sample, choose, tuning_text
from aligntool.units import MIB
from tests.cli.old_disks import make_old_disk
from tests.golden.documents import TUNING, V1, kept
from tests.measure.bench.sample_results import result, series
from tests.measure.trace.blktrace_files import drawn_records, write_trace
from tests.run_aligntool import run_aligntool
from tests.schemas import check, check_lines, objects, strict
from tests.thorough import sample

PACKAGE = Path(__file__).parent.parent / "aligntool"
SCHEMAS = {name: json.loads(text) for name, text in schema_texts().items()}
LISTS = {"bench.list", "recipes", "ensure"}  # lists, and a file of the user, which cannot name a schema
NO_INTERFACE = {"record"}  # docs/json.md, "Other documents"


@sample(5)
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_and_allows_later_additions(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator.check_schema(strict(schema))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:aligntool:{name}:1"
    assert schema["title"] and schema["description"]
    for part in objects(schema):
        assert part.get("additionalProperties"), part
        assert set(part.get("required", ())) <= set(part.get("properties", ())), part
        needs = part.get("required") or "anyOf" in part
        assert needs if "properties" in part else part["additionalProperties"] is not True, part


def test_the_schemas_are_exactly_those_of_the_documents_named_in_the_code() -> None:
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r'"aligntool\.([a-z][\w.-]*)"', sources))
    modules = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    packages = {".".join(path.relative_to(PACKAGE).parts) for path in PACKAGE.rglob("*") if path.is_dir()}
    assert named - set(SCHEMAS) - NO_INTERFACE <= modules | packages
    assert set(SCHEMAS) - LISTS <= named


@pytest.mark.parametrize("file", sorted(V1.glob("*.json")), ids=lambda file: file.stem)
def test_documents_of_version_1_are_valid(file: Path) -> None:
    if not file.stem.startswith("record"):
        check(json.loads(kept(file.stem)), "recipes" if file.stem == "recipes" else "")


def test_an_undescribed_field_is_rejected_only_by_the_strict_schema() -> None:
    document = json.loads(kept("raid-show"))
    document["arrays"][0]["more"] = 1
    jsonschema.validate(document, SCHEMAS["raid.show"])
    with pytest.raises(jsonschema.ValidationError, match="'more' was unexpected"):
        check(document)


def written(*words: str | Path, name: str = "", code: int = 0, stdin: str = "", state: Path | None = None) -> None:
    """Check the output of a command."""
    env = {"XDG_STATE_HOME": str(state)} if state else {}
    check(json.loads(run_aligntool(*words, "--json", code=code, stdin=stdin, env=env).stdout), name)


@pytest.mark.needs_tools("sfdisk", "mke2fs", "debugfs", "e2fsck", "blkid")
def test_documents_of_a_disk_and_of_a_realign_conform_to_their_schemas(tmp_path: Path) -> None:
    image, plan = make_old_disk(tmp_path / "old.img"), tmp_path / "plan.json"
    written("audit", image, code=1)
    written("status", image)
    written("plan", "realign", image)
    run_aligntool("plan", "realign", image, "-o", plan, code=0)
    check(json.loads(plan.read_text()))
    check_lines(run_aligntool("realign", "-p", "9", "--yes", "--json", image, code=3).stdout)
    check_lines(run_aligntool("apply", "--yes", "--json", plan, code=0).stdout)
    check_lines(run_aligntool("resume", "--yes", "--json", image, code=3).stdout)


@pytest.mark.needs_tools("sfdisk", "blkid")
def test_documents_of_a_new_table_conform_to_their_schemas(tmp_path: Path) -> None:
    image = tmp_path / "new.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    written("plan", "layout", image, "--part", "8MiB:linux")
    check_lines(run_aligntool("layout", "--part", "8MiB:linux", "--yes", "--json", image, code=0).stdout)


def test_documents_of_logs_and_recipes_conform_to_their_schemas(tmp_path: Path) -> None:
    log = write_trace(tmp_path / "t.blktrace.0", drawn_records(1))
    written("trace", log, "--grid", "4KiB")
    written("trace", "-", stdin="time_s,op,lba,sectors\n0.1,R,8,8\n0.2,F,0,0\n")
    written("estimate", "boot", "--rate-a", "1,2")
    written("estimate", "boot", "--rate-a", "1,2", "--rate-b", "30")
    written("recipes", "list", name="recipes")
    written("recipes", "show", "sd-card", name="recipes")


def test_documents_of_results_conform_to_their_schemas(tmp_path: Path) -> None:

    folder = tmp_path / "aligntool" / "bench"
    folder.mkdir(parents=True)
    first, second = folder / "1.json", folder / "2.json"
    first.write_text(to_json(result(series(1e6, 2e6, 1.5e6))))
    second.write_text(to_json(replace(result(series(3e6, 4e6, 3.5e6)), complete=False)))
    (folder / "3.json").write_text(kept("bench-span"))
    (folder / "4.json").write_text("{}")
    written("bench", "compare", first, second)
    written("bench", "list", name="bench.list", state=tmp_path)
    listed = json.loads(run_aligntool("bench", "list", "--json", env={"XDG_STATE_HOME": str(tmp_path)}).stdout)
    assert len(listed) == 4, listed


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_verdict_of_a_tuning_is_described_in_its_schema(rounds: int) -> None:
    samples = [Sample(each, chunk, "read", chunk, 0) for each in range(rounds) for chunk in (65536, 131072)]
    document = json.loads(tuning_text(TUNING, _verdict(choose(samples, 65536), 65536)))
    check(document)
    described = SCHEMAS["raid-tune"]["properties"]["verdict"]["properties"]
    assert set(document["verdict"]) == set(described)


def test_the_command_prints_a_schema_lists_all_and_suggests_the_nearest() -> None:
    for name, text in schema_texts().items():
        assert run_aligntool("schema", name, code=0).stdout == text
    assert run_aligntool("schema", "aligntool.audit", code=0).stdout == schema_texts()["audit"]
    lines = run_aligntool("schema", code=0).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(SCHEMAS)
    assert all(line.endswith(SCHEMAS[line.split()[0]]["title"]) for line in lines)
    wrong = run_aligntool("schema", "bench.spam", code=2)
    assert "bench.span" in wrong.stderr and wrong.stdout == ""
    assert "audit" in run_aligntool("schema", "zzz", code=2).stderr
