"""Arrays that run, on captured machines: against mdadm, lspci and sysfs there."""

import pytest

from aligntool.errors import Refused
from aligntool.raid.arrays import ArrayView, arrays_of
from aligntool.render.lines import text_of
from aligntool.render.raid import array_lines
from aligntool.units import KIB
from tests.machines.captured import report

RAID = "md-on-misaligned-partitions"


def view(name: str) -> ArrayView:
    (found,) = arrays_of(report(RAID), [name])
    return found


# mdadm --detail: level, chunk, metadata; the member's start plus mdadm --examine's data offset, in sectors of 512 bytes
ARRAYS = {
    "md0": ("raid0", 64 * KIB, "1.2", 63 + 2048),
    "md1": ("raid1", None, "1.0", 614400),
    "md2": ("raid5", 512 * KIB, "1.2", 1228800 + 4096),
    "md3": ("raid10", 128 * KIB, "0.90", 63),
    "md4": ("raid1", None, "1.1", 614400 + 2048),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_shown_as_mdadm_tells_it_with_the_byte_where_its_data_begin(name: str) -> None:
    level, chunk, metadata, sector = ARRAYS[name]
    found = view(name)
    assert (found.level, found.chunk, found.metadata) == (level, chunk, metadata)
    assert {member.data_at for member in found.members} == {sector * 512}
    assert {member.aligned for member in found.members} == {sector % 8 == 0}


def test_the_stack_is_judged_to_its_top() -> None:
    assert any("AT101 partition 1 of md3" in finding for finding in view("md3").findings)
    assert not view("md4").findings
    assert view("md1").contents == ("on it: crypto_LUKS", "carries dm-0")


def test_an_array_without_redundancy_is_not_called_whole() -> None:
    assert view("md0").state == "no redundancy"
    assert view("md2").state == "all members there"


def test_every_array_is_told_with_its_members_and_what_is_wrong() -> None:
    said = "".join(text_of(array_lines(arrays_of(report(RAID)), width=120)))
    for words in (
        "md3: raid10 · 399.8MiB",
        "vda1: data at byte 1080832, off 4KiB by 3584B",
        "AT101 md0 starts",
        "carries dm-0",
    ):
        assert words in said, words
    assert "No md array" in "".join(text_of(array_lines((), width=80)))


def test_an_array_that_does_not_run_is_refused_with_those_that_do() -> None:
    with pytest.raises(Refused, match="md99: no md array") as refused:
        arrays_of(report(RAID), ["md0", "md99"])
    assert "md0, md1" in refused.value.hint


def test_a_machine_without_arrays_has_none_to_show() -> None:
    assert arrays_of(report("nvme-behind-switch")) == ()
