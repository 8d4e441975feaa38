"""`aligntool raid tune` on real md: the arrays it makes, and the state of the drives afterwards, however it ends."""

import json
from pathlib import Path

import pytest

from aligntool.raid.measured import parse_tuning
from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Nvme
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("sweeps real arrays for minutes"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod"),
    pytest.mark.needs_tools("fio", "mdadm", "wipefs", "nvme", "smartctl"),
]

SERIALS = ("tune-a", "tune-b", "tune-c")
# While the second load of the first array runs, md itself is queried.
SCRIPT = f"""
set +e
set -m # otherwise a background process does not receive Ctrl-C
cd /lab
tool={ROOT}/.venv/bin/aligntool
drives="/dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1" two="/dev/nvme0n1 /dev/nvme1n1"
left() {{ for each in $drives; do wipefs -n $each; mdadm --examine $each; done; cat /proc/mdstat; }}
sweep() {{ # name, level, seconds of a load, members: start, until the second load of the first array runs
    name=$1 level=$2 seconds=$3
    shift 3
    $tool raid tune --level $level --chunks 64KiB --span 16MiB --runtime $seconds --repeats 1 \\
        -o $name.json --yes "$@" > $name.txt 2>&1 &
    sweeping=$!
    until grep -q 'chunk 64KiB: write' $name.txt || ! kill -0 $sweeping; do sleep 0.5; done
}}
ended() {{ wait $sweeping; echo "exit $?" >> $1.txt; }}

nvme smart-log -o json /dev/nvme0n1 > smart-log.json
smartctl -j -H -A -l ssd /dev/nvme0n1 > smartctl.json

sweep whole 5 1 $drives
mdadm --detail --export /dev/md/aligntool-tune > array.txt
cat /sys/block/md*/md/sync_action > sync.txt
ended whole
left > whole.left 2>&1

sweep stopped 0 8 $two
kill -INT $sweeping
ended stopped
left > stopped.left 2>&1

sweep killed 0 8 $two
kill -KILL $sweeping
wait $sweeping
pkill -KILL -x fio
sleep 1
left > killed.left 2>&1
$tool raid tune --level 0 -o never.json --yes $two > again.txt 2>&1; echo "exit $?" >> again.txt
$tool raid tune --clear --yes $two > clear.txt 2>&1; echo "exit $?" >> clear.txt
left > clear.left 2>&1

for each in $drives; do blkdiscard --zeroout $each; done # the data that the loads of the killed sweep wrote
umount /etc/fstab || true # one of the guest's own is mounted over it
$tool raid plan --level 5 --fs ext4 --tuned whole.json $drives > plan.txt 2>&1; echo "exit $?" >> plan.txt
exit 0
"""
EMPTY = "No md superblock detected"


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    return lab.run(*(Nvme(serial, size=128 * MIB) for serial in SERIALS), script=SCRIPT, limit_s=1800)


def read(said: Path, name: str) -> str:
    return (said / name).read_text()


def test_a_test_array_is_created_as_requested_and_not_resynchronised(said: Path) -> None:
    told = dict(line.split("=", 1) for line in read(said, "array.txt").splitlines())
    assert (told["MD_LEVEL"], told["MD_DEVICES"]) == ("raid5", "3")
    assert told["MD_UUID"].startswith("616c6967:6e74756e:") and told["MD_NAME"].endswith("aligntool-tune")
    assert read(said, "sync.txt") == "idle\n"


def test_the_result_contains_every_load_of_every_chunk_and_the_drives(said: Path) -> None:
    found = parse_tuning(read(said, "whole.json"))
    assert found.complete and read(said, "whole.txt").rstrip().endswith("exit 0")
    assert {member.serial for member in found.members} == set(SERIALS)
    assert all(member.read and member.write for member in found.members)
    assert {sample.chunk for sample in found.samples} == {64 << 10, 128 << 10}
    assert len(found.samples) == 6 and all(sample.rate for sample in found.samples)


@pytest.mark.parametrize("how", ["whole", "stopped", "clear"])
def test_the_drives_are_as_empty_as_before(said: Path, how: str) -> None:
    """wipefs names nothing, mdadm finds no superblock, the kernel has no array."""
    left = read(said, f"{how}.left")
    assert left.count(EMPTY) == 3
    assert " : " not in left.partition("Personalities")[2].partition("\n")[2], left
    assert "linux_raid_member" not in left


def test_ctrl_c_keeps_the_measured_loads_and_marks_the_result_incomplete(said: Path) -> None:
    assert read(said, "stopped.txt").rstrip().endswith("exit 4")
    found = parse_tuning(read(said, "stopped.json"))
    assert not found.complete and len(found.samples) == 1


def test_an_array_left_by_a_killed_sweep_is_refused_and_removed_on_request(said: Path) -> None:
    assert "linux_raid_member" in read(said, "killed.left"), "or there is nothing to be known again"
    again = read(said, "again.txt")
    assert again.rstrip().endswith("exit 3") and "aligntool raid tune --clear" in again
    assert not (said / "never.json").exists()
    assert read(said, "clear.txt").rstrip().endswith("exit 0")


def test_the_plan_uses_the_measured_rates_and_states_why_there_is_no_verdict(said: Path) -> None:
    plan = " ".join(read(said, "plan.txt").split())
    assert plan.endswith("exit 0")
    assert "at least 3 complete rounds" in plan and "measured here" in plan


def test_the_health_is_the_same_as_nvme_cli_prints(said: Path) -> None:
    """nvme-cli reports the temperature in kelvin."""
    from aligntool.linux.commands import decode_smartctl_report

    log = json.loads(read(said, "smart-log.json"))
    _, found = decode_smartctl_report(read(said, "smartctl.json"))
    assert found is not None
    assert found.temperature_c == log["temperature"] - 273
    assert (found.spare_percent, found.spare_threshold) == (log["avail_spare"], log["spare_thresh"])
    assert (found.used_percent, found.media_errors) == (log["percent_used"], int(log["media_errors"]))
