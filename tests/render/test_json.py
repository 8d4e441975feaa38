"""The JSON of an audit conforms to its published schema with any names."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.audit.report import Report
from aligntool.inventory import (
    ArrayFacts,
    AtaFacts,
    DiskKind,
    Fault,
    Layer,
    LbaFormat,
    LinkHop,
    NvmeFacts,
    Port,
    Segment,
    Table,
    TableCopy,
    TableCopyState,
    TableFault,
    TableLabel,
    Unseen,
)
from aligntool.render.json import audit_json
from aligntool.system import Manifest
from aligntool.units import KIB, MIB, Extent
from tests.audit.builders import judge, made_disk, with_content
from tests.audit.machines.captured import HERE
from tests.audit.machines.captured import report as captured_report
from tests.schemas import check
from tests.thorough import examples, sample


def document(report: Report) -> Any:
    return json.loads("".join(audit_json(report)))


def full_report() -> Report:
    """Return a machine with something in every field."""
    lvm = Layer(
        "LVM2_member", Extent(MIB, MIB), data_start=2 * MIB, segments=(Segment("vg/lv", 0, Extent(MIB, MIB), 64),)
    )
    disk = with_content(made_disk("63+4096 ext4; 8192+4096", kind=DiskKind.NVME, physical=4096), lvm)
    hop = LinkHop("0000:01:00.0", Port.ENDPOINT, "SSD", 8.0, 4, 8.0, 4, 3938400000, 3938400000)
    faults = (TableFault(Fault.OVERLAP, "1 and 2 overlap", 512, (1, 2)),)
    disk = replace(
        disk, nvme=NvmeFacts((LbaFormat(0, 512, 0, 2), LbaFormat(1, 4096, 0, 0)), 0, hmb_preferred=64 * MIB),
        ata=AtaFacts(512, 4096), links=((hop,),), unseen=(Unseen("NVMe Identify", "needs root"),),
        array=ArrayFacts("raid0", 512 * KIB, ("sdx", "sdy"), (("sdx", MIB),)),
        kernel_partitions=((1, Extent(0, 512)),),
        table=Table(TableLabel.GPT, 512, "guid",
                    copies=(TableCopy("primary", 512, TableCopyState.GOOD),), faults=faults),
    )  # fmt: skip
    return judge(disk, made_disk("2048+1000", name="sdb", offset=-1))


def test_the_document_conforms_to_the_published_schema() -> None:
    check(document(full_report()))
    check(document(judge()))


@sample(1)
@pytest.mark.parametrize("machine", sorted(path.name.partition(".")[0] for path in HERE.glob("*.tar.xz")))
def test_the_document_of_a_captured_machine_conforms_as_well(machine: str) -> None:
    told = document(captured_report(machine))
    check(told)
    assert told["summary"]["disks"] == len(told["disks"]) > 0


def test_the_schema_rejects_an_invalid_value() -> None:
    wrong = document(full_report())
    wrong["disks"][0]["partitions"][0]["start"] = "63s"
    with pytest.raises(jsonschema.ValidationError):
        check(wrong)


def test_a_start_is_given_in_bytes_and_in_sectors_with_every_grid() -> None:
    first = document(full_report())["disks"][0]["partitions"][0]
    assert (first["start"], first["start_sector"], first["sector_size"]) == (32256, 63, 512)
    assert first["verdict"]["answer"] == "off"
    physical = next(check for check in first["verdict"]["checks"] if check["kind"] == "physical sector")
    assert (physical["size"], physical["off_by"], physical["source"]) == (4096, 3584, "reported")


@settings(max_examples=examples(50))
@given(name=st.text(max_size=40))
def test_the_document_is_valid_with_any_label(name: str) -> None:
    disk = replace(made_disk("63+4096"), model=name, name=name, serial=name)
    disk = replace(disk, partitions=(replace(disk.partitions[0], name=name),))
    text = "".join(audit_json(judge(disk)))
    assert text.isascii() and "\x1b" not in text
    check(json.loads(text))


def test_bytes_that_are_not_utf_8_do_not_invalidate_the_document() -> None:
    broken = b"a\xff\xfeb".decode("utf-8", "surrogateescape")
    text = "".join(audit_json(judge(replace(made_disk("63+4096"), model=broken))))
    assert json.loads(text)["disks"][0]["model"] == "a\ufffd\ufffdb"
    text.encode("utf-8")


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ud83db", "\udcff\udbff"])
def test_lone_surrogates_of_a_captured_manifest_do_not_invalidate_the_document(text: str) -> None:
    report = judge(made_disk("63+4096"))
    captured = replace(report, inventory=replace(report.inventory, manifest=Manifest(host=text)))
    found = document(captured)["host"]
    assert len(found) == len(text) and found.encode()
