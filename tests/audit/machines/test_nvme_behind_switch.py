"""NVMe drives on root ports and behind a switch, against nvme-cli, lspci and parted on the same machine."""

import pytest

from aligntool.audit.report import Answer
from aligntool.inventory import NvmeFacts, Port
from tests.audit.machines.captured import answers, disk, judged, names, report

SWITCH = "nvme-behind-switch"

# nvme id-ns -o json (nvme-cli 2.3): nsze, flbas, the data size of that format, npwg, npdg, nows, noiob
ID_NS = {
    "nvme0n1": (614400, 0, 512, 0, 7, 0, 0),
    "nvme1n1": (76800, 4, 4096, 0, 0, 0, 0),
    "nvme2n1": (614400, 0, 512, 0, 7, 0, 0),
    "nvme4n1": (76800, 4, 4096, 0, 0, 0, 0),
    "nvme4n2": (604947, 1, 512, 0, 7, 0, 0),
    "nvme5n1": (73728, 4, 4096, 0, 0, 0, 0),
    "nvme6n1": (614400, 0, 512, 0, 127, 0, 0),
    "nvme7n1": (4294967296, 0, 512, 0, 7, 0, 0),
    "nvme8n1": (614400, 0, 512, 0, 7, 0, 0),
    "nvme9n1": (614400, 0, 512, 0, 7, 0, 0),
}
# the same, lbafs: metadata size, 2 to the power of this many bytes, relative performance; identical for all
FORMATS = [(0, 9, 0), (8, 9, 0), (16, 9, 0), (64, 9, 0), (0, 12, 0), (8, 12, 0), (16, 12, 0), (64, 12, 0)]


def facts(name: str) -> NvmeFacts:
    nvme = disk(SWITCH, name).nvme
    assert nvme is not None
    return nvme


def test_namespaces_with_several_paths_are_listed_once() -> None:
    """`nvme list` printed these; nvme2c2n1 and nvme2c3n1 are the paths to nvme2n1, sr0 is the CD-ROM drive."""
    assert names(SWITCH) == set(ID_NS)


@pytest.mark.parametrize("name", ID_NS)
def test_namespace_properties_are_those_that_nvme_cli_printed(name: str) -> None:
    blocks, in_use, block, npwg, npdg, nows, noiob = ID_NS[name]
    nvme = facts(name)
    assert disk(SWITCH, name).size == blocks * block
    assert nvme.format_in_use == in_use
    assert [(lba.metadata_size, lba.data_size, lba.relative_performance) for lba in nvme.formats] == [
        (metadata, 1 << shift, performance) for metadata, shift, performance in FORMATS
    ]
    assert nvme.preferred_write_granularity == (npwg + 1) * block
    assert nvme.preferred_deallocate_granularity == (npdg + 1) * block
    assert nvme.optimal_write_size == (nows + 1) * block
    assert nvme.optimal_io_boundary == noiob * block


@pytest.mark.parametrize("name", ID_NS)
def test_controller_properties_are_those_that_nvme_cli_printed(name: str) -> None:
    """nvme id-ctrl -o json: mdts 7, for nvme7 3; awun, awupf, hmpre and hmmin 0; fr 7.2.22; mn QEMU NVMe Ctrl."""
    nvme, block = facts(name), ID_NS[name][2]
    assert nvme.max_transfer == 4096 << (3 if name == "nvme7n1" else 7)
    assert nvme.atomic_write_unit == nvme.atomic_write_unit_power_fail == block
    assert (nvme.hmb_preferred, nvme.hmb_minimum, nvme.hmb_granted) == (0, 0, 0)
    assert (disk(SWITCH, name).model, disk(SWITCH, name).firmware) == ("QEMU NVMe Ctrl", "7.2.22")


def test_the_multipath_namespace_has_two_controllers() -> None:
    """nvme list-subsys: nvme-subsys2 has nvme2 (0000:00:0f.0) and nvme3 (0000:00:10.0)."""
    assert facts("nvme2n1").multipath
    assert facts("nvme2n1").controllers == ("nvme2", "nvme3")
    assert [path[0].address for path in disk(SWITCH, "nvme2n1").links] == ["0000:00:0f.0", "0000:00:10.0"]
    assert facts("nvme4n2").controllers == ("nvme4",)


# lspci -vv: address, LnkSta and LnkCap as (GT/s, lanes); a port without a link has none
_Lanes = tuple[float | None, int | None]
PATHS: dict[str, list[tuple[str, _Lanes, _Lanes | None]]] = {
    "nvme6n1": [("0000:01:00.0", (2.5, 1), (2.5, 1)), ("0000:00:0c.0", (2.5, 1), (8, 4))],
    "nvme7n1": [("0000:02:00.0", (2.5, 1), (2.5, 1)), ("0000:00:0d.0", (2.5, 1), (16, 2))],
    "nvme8n1": [
        ("0000:05:00.0", (2.5, 1), (2.5, 1)), ("0000:04:00.0", (2.5, 1), None),
        ("0000:03:00.0", (2.5, 1), (2.5, 1)), ("0000:00:0e.0", (2.5, 1), (5, 4)),
    ],
    "nvme0n1": [("0000:00:0a.0", (None, None), None)],
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_links_up_to_the_root_are_those_that_lspci_printed(name: str) -> None:
    (path,) = disk(SWITCH, name).links
    assert len(path) == len(PATHS[name])
    for hop, (address, now, most) in zip(path, PATHS[name], strict=True):
        assert (hop.address, (hop.speed_gts, hop.width)) == (address, now)
        assert most is None or (hop.max_speed_gts, hop.max_width) == most


def test_the_drives_behind_the_switch_share_its_uplink() -> None:
    """lspci -t: 0e.0-[03-06]----00.0-[04-06]--+-00.0-[05] and \\-01.0-[06]; one lane of 2.5 GT/s carries 250 MB/s."""
    (uplink,) = report(SWITCH).inventory.uplinks
    assert (uplink.name, uplink.members, uplink.bandwidth) == ("0000:03:00.0", ("nvme8n1", "nvme9n1"), 250_000_000)
    assert [hop.port for hop in disk(SWITCH, "nvme9n1").links[0]][:3] == [Port.ENDPOINT, Port.SWITCH, Port.SWITCH]


@pytest.mark.parametrize("name", ["nvme1n1", "nvme4n1"])
def test_on_blocks_of_4096_bytes_every_start_is_on_the_grid(name: str) -> None:
    """parted align-check minimal: 1, 2 and 3 aligned, though partition 1 starts at block 63."""
    assert answers(SWITCH, name) == {1: Answer.ON, 2: Answer.ON, 3: Answer.ON}


def test_on_flash_that_reports_512_bytes_the_verdict_assumes_4096_byte_sectors() -> None:
    """parted called 63 and 20001 aligned; 4096-byte sectors are assumed here (docs/cli.md, AT204)."""
    assert answers(SWITCH, "nvme0n1") == {1: Answer.OFF, 2: Answer.ON, 3: Answer.OFF}
    assert judged(SWITCH, "nvme0n1").grids[0].source.value == "assumed"
