"""The kernel's own verdict on made-up machines, for every combination of limits in the design.

The made-up tree contains for each partition the `alignment_offset` that the kernel would show (0: aligned); the audit
reads the tree like that of a captured machine and must give the same answer, except where docs/cli.md documents an
intended difference.
"""

import itertools
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer, Report
from aligntool.linux.look import look
from tests.linux.trees import MadeDisk, MadePartition, make_tree

SIZE = 500 << 30
STARTS_512 = (1, 34, 40, 63, 64, 128, 2048, 2049, 2055, 4096, 8192, 65535, 409640)

COMBINATIONS = [
    pytest.param(limits, optimal, id="/".join(map(str, (*limits, optimal))))
    for limits, optimal in itertools.product(
        [
            (512, 512, 512, 0),
            (512, 4096, 4096, 0),
            (4096, 4096, 4096, 0),
            (512, 4096, 4096, 3584),  # lowest aligned sector 7
            (512, 4096, 16384, 0),
            (512, 4096, 16384, 3584),
            (512, 512, 16384, 0),
        ],
        [0, 33553920, 16773120, 1 << 20],
    )
]


def made_report(folder: Path, disk: MadeDisk) -> Report:
    make_tree(folder, [disk])
    return audit(look((), sysroot=str(folder)), {})


@pytest.mark.parametrize(("limits", "optimal"), COMBINATIONS)
def test_every_answer_is_that_of_the_kernel(tmp_path: Path, limits: tuple[int, int, int, int], optimal: int) -> None:
    logical, physical, minimum, offset = limits
    starts = [start * 512 for start in STARTS_512 if start * 512 % logical == 0]
    partitions = [MadePartition(number, start, 1 << 20) for number, start in enumerate(starts, 1)]
    disk = MadeDisk("sda", SIZE, partitions, logical, physical, minimum, optimal, offset,
                    rotational=True, vendor="ATA", model="ST500DM002")  # fmt: skip
    report = made_report(tmp_path, disk)
    judged = report.judged[0]
    assert len(judged.verdicts) == len(starts)
    for partition, verdict in zip(judged.disk.partitions, judged.verdicts, strict=True):
        kernel = partition.kernel_alignment_offset
        assert kernel is not None
        assert verdict.answer is (Answer.ON if kernel == 0 else Answer.OFF), (partition.extent.start, kernel)


def test_both_kinds_of_answer_occur_in_these_combinations(tmp_path: Path) -> None:
    disk = MadeDisk("sda", SIZE, [MadePartition(1, 63 * 512, 4096), MadePartition(2, 1 << 20, 4096)], physical=4096)
    assert [verdict.answer for verdict in made_report(tmp_path, disk).judged[0].verdicts] == [Answer.OFF, Answer.ON]


@pytest.mark.parametrize("rotational", [False, True])
def test_an_ssd_that_reports_512_bytes_is_the_documented_difference(tmp_path: Path, rotational: bool) -> None:
    disk = MadeDisk("sda", SIZE, [MadePartition(1, 63 * 512, 4096)], physical=512, rotational=rotational, vendor="ATA")
    verdict = made_report(tmp_path, disk).judged[0].verdicts[0]
    assert verdict.answer is (Answer.ON if rotational else Answer.OFF)
