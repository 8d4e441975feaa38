"""Whether a misaligned partition can be mended, as text and in the JSON."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema

from aligntool.audit import Report
from aligntool.realign import Mend, mends
from aligntool.render.json import audit_json
from aligntool.render.lines import cell_width, text_of
from aligntool.render.mending import MOST_ANSWERS, mend_lines
from aligntool.render.table import audit_lines
from tests.audit.made import judge, made_disk

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "audit.schema.json").read_text())


def answers(report: Report) -> dict[str, tuple[Mend, ...]]:
    return {judged.disk.name: mends(judged) for judged in report.judged}


def text(*found: Mend) -> str:
    return "".join(text_of(mend_lines(found, width=80)))


def test_the_audit_says_of_each_misaligned_partition_whether_and_how_it_can_be_mended() -> None:
    report = judge(made_disk("63+80000 ntfs; 2097152+90000 ext4", physical=4096))
    said = "".join(text_of(audit_lines(report, width=80, verbose=False, quiet=False, mends=answers(report))))
    assert "partition 1 can be mended in place" in said
    assert "partition 2" not in said.split("AT101")[0]


def test_the_json_has_an_answer_for_what_is_off_and_null_for_the_rest() -> None:
    report = judge(made_disk("63+80000 ntfs; 2097152+90000 ext4", physical=4096))
    document = json.loads("".join(audit_json(report, answers(report))))
    jsonschema.validate(document, SCHEMA)
    first, second = document["disks"][0]["partitions"]
    assert first["mend"]["answer"] == "in-place" and first["mend"]["why"]
    assert second["mend"] is None


def test_a_mounted_partition_is_told_with_its_reason() -> None:
    disk = made_disk("63+80000 ext4", physical=4096)
    disk = replace(disk, partitions=(replace(disk.partitions[0], mounted_at=("/srv",)),))
    report = judge(disk)
    assert "/srv" in "".join(text_of(mend_lines(mends(report.judged[0]), width=200)))


def test_partitions_with_the_same_answer_are_told_in_one_breath() -> None:
    said = text(*(Mend(number, "not", "it is mounted", "umount /srv") for number in (1, 2, 5)))
    assert said.startswith("  partitions 1, 2, 5 cannot be mended: it is mounted\n")
    assert said.count("umount /srv") == 1


def test_a_table_with_a_thousand_troubles_stays_readable() -> None:
    said = text(*(Mend(number, "not", f"reason {number}", "") for number in range(1000)))
    assert len(said.splitlines()) <= 2 * MOST_ANSWERS + 1 and "988 more" in said
    alike = text(*(Mend(number, "not", "all alike", "") for number in range(1000)))
    assert len(alike.splitlines()) <= 4 and "988 more" in alike


def test_what_a_disk_says_stays_harmless_and_in_80_columns() -> None:
    said = text(Mend(1, "with-shrink", "the label \x1b[31m is " + "long " * 40, "\x1b]0;"))
    assert "\x1b" not in said
    assert max(cell_width(line) for line in said.splitlines()) <= 80
