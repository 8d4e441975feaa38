"""Verdict for verdict against `parted align-check minimum`, on loop devices with sectors of 512 and 4096 bytes.

parted trusts what the device reports; a loop device reports its own sector size and hides the drive below. So with
the reported size given by an option both must agree on every partition, and without it aligntool assumes 4096 bytes,
the difference that docs/cli.md documents.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Answer
from aligntool.linux.look import look
from aligntool.linux.targets import UserLimits
from tests.conftest import find_tool, run

STARTS = {512: (34, 40, 63, 2048, 2049, 4096, 6145, 8200), 4096: (6, 7, 63, 256, 257, 512, 700, 1025)}
"""In sectors of the device; each partition is as long as it takes to the next."""


def parted_says(device: Path, number: int) -> bool:
    command = [find_tool("parted") or "parted", "-s", str(device), "align-check", "min", str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return done.returncode == 0


def answers(device: Path, given: UserLimits) -> dict[int, bool]:
    report = audit(look((str(device),), given=given), {})
    verdicts = report.judged[0].verdicts
    assert all(verdict.answer is not Answer.UNKNOWN for verdict in verdicts)
    return {verdict.partition or 0: verdict.answer is Answer.ON for verdict in verdicts}


@pytest.fixture(params=[(512, "gpt"), (512, "dos"), (4096, "gpt"), (4096, "dos")], ids=str)
def partitioned(
    request: pytest.FixtureRequest, sparse: Callable[..., Path], loop: Callable[..., Path]
) -> tuple[Path, int, tuple[int, ...]]:
    sector_size, label = request.param
    starts = STARTS[sector_size][:4] if label == "dos" else STARTS[sector_size]
    device = loop(sparse(64 << 20), sector_size=sector_size)
    script = f"label: {label}\nunit: sectors\n" + (f"first-lba: {starts[0]}\n" if label == "gpt" else "")
    ends = [*starts[1:], starts[-1] + 100]
    script += "".join(f"start={start}, size={end - start}\n" for start, end in zip(starts, ends, strict=True))
    run("sfdisk", "-q", "--no-reread", "--no-tell-kernel", device, stdin=script)
    return device, sector_size, starts


@pytest.mark.needs_root
@pytest.mark.needs_tools("parted", "sfdisk", "losetup")
def test_every_verdict_is_that_of_parted_if_the_reported_sector_size_is_trusted(
    partitioned: tuple[Path, int, tuple[int, ...]],
) -> None:
    device, sector_size, starts = partitioned
    ours = answers(device, UserLimits(physical_sector_size=sector_size))
    assert len(ours) == len(starts)
    assert ours == {number: parted_says(device, number) for number in ours}


@pytest.mark.needs_root
@pytest.mark.needs_tools("parted", "sfdisk", "losetup")
def test_with_assumed_sizes_verdicts_differ_from_parted_only_off_4096_bytes(
    partitioned: tuple[Path, int, tuple[int, ...]],
) -> None:
    device, sector_size, starts = partitioned
    ours = answers(device, UserLimits())
    for number, start in enumerate(starts, 1):
        crossed = start * sector_size % 4096 != 0
        assert ours[number] is (parted_says(device, number) and not crossed)
