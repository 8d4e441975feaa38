"""`aligntool trace record` on an NVMe drive, under a kernel that lets itself be traced: dd's and fio's counts."""

import json
from pathlib import Path

import pytest

from tests.conftest import run
from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Nvme
from tests.lab.kernel import ROOT

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools(
        "qemu-system-x86_64", "busybox", "file", "depmod", "fio", "blkparse", "mkfs.ext4"
    ),
]

SCRIPT = f"""
set +e
cd /lab
drive=/dev/nvme0n1
tool={ROOT}/.venv/bin/aligntool
traced() {{ # 1 or 0: until the kernel says so, a minute at most
    for second in $(seq 60); do [ $(cat /sys/block/nvme0n1/trace/enable) = $1 ] && return; sleep 1; done
}}
record() {{ # name, words: its answer, its complaints, its exit code, what is left of blktrace
    name=$1; shift
    "$@" > $name.out 2> $name.err < /dev/null
    echo $? > $name.code
    traced 0
    {{
        cat /sys/block/nvme0n1/trace/enable
        pgrep -x blktrace
        ls -d .aligntool-trace* /tmp/.aligntool-trace*
    }} > $name.left 2> /dev/null
}}
umount -l /sys/kernel/debug
record unmounted $tool trace record $drive -- true
mount -t debugfs debugfs /sys/kernel/debug
record reads $tool trace record $drive --json -o /lab/reads.txt -- \\
    dd if=$drive of=/dev/null bs=64k count=100 iflag=direct
record writes $tool trace record $drive --json --grid 4KiB -- \\
    fio --output-format=json --output=/lab/fio.json --name=x \\
    --filename=$drive --rw=randwrite --bs=4k --offset=512 --size=4m --direct=1 --ioengine=libaio --iodepth=1
record failed $tool trace record $drive -o /lab/failed.txt -- \\
    sh -c "dd if=$drive of=/dev/null bs=4k count=3 iflag=direct; exit 7"
record idle $tool trace record $drive -- true
ended() {{ # signal, file, words: they get the signal once the file is there; their exit code
    signal=$1 file=$2; shift 2
    env --default-signal=INT "$@" &
    for second in $(seq 300); do [ -e $file ] && break; sleep 1; done
    kill -$signal $!
    wait $!
}}
record stopped ended INT /lab/pid $tool trace record $drive -o /lab/stopped.txt -- \\
    sh -c "dd if=$drive of=/dev/null bs=4k count=9 iflag=direct; echo \\$\\$ > /lab/pid; exec sleep 3600"
ps -p $(cat pid) > stopped.alive
record killed ended KILL /lab/runs $tool trace record $drive -- sh -c "touch /lab/runs; exec sleep 3600"
(blktrace -d $drive -o - > /dev/null & echo $! > other)
traced 1
"$tool" trace record $drive -- touch /lab/ran > busy.out 2> busy.err
echo $? > busy.code
cat /sys/block/nvme0n1/trace/enable > busy.left
kill -INT $(cat other)
traced 0
mkfs.ext4 -q $drive
mkdir -p /tmp/mounted
mount $drive /tmp/mounted
record itself $tool trace record $drive -o /tmp/mounted/log -- true
umount /tmp/mounted
exit 0
"""
QUIET = "0\n"  # nothing is traced, no blktrace runs, no folder is left


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    return lab.run(Nvme("traced", size=128 * MIB), script=SCRIPT, limit_s=1800)


def read(said: Path, name: str) -> str:
    return (said / name).read_text()


def test_debugfs_must_be_mounted(said: Path) -> None:
    assert read(said, "unmounted.code") == "3\n"
    assert "sudo mount -t debugfs debugfs /sys/kernel/debug" in read(said, "unmounted.err")


def test_every_read_of_dd_is_counted_and_the_log_reads_the_same_again(said: Path) -> None:
    assert read(said, "reads.code") == "0\n", read(said, "reads.err")
    found = json.loads(read(said, "reads.out"))
    (row,) = found["commands"]
    assert (row["command"], row["count"], row["bytes"]) == ("read", 100, 100 * 65536)
    assert (row["sequential"], row["random"]) == (99, 1)
    assert found["queue_depth"] == [{"from": 1, "to": 1, "count": 100}]
    again = json.loads(run(ROOT / ".venv/bin/aligntool", "trace", said / "reads.txt", "--json"))
    assert again["commands"] == [row | {"alignment": []}]
    assert "dd ended with 0" in read(said, "reads.err") and read(said, "reads.left") == QUIET


def test_every_write_of_fio_is_counted_and_all_of_them_straddle(said: Path) -> None:
    assert read(said, "writes.code") == "0\n", read(said, "writes.err")
    (job,) = json.loads(read(said, "fio.json"))["jobs"]
    rows = {row["command"]: row for row in json.loads(read(said, "writes.out"))["commands"]}
    write = rows["write"]
    assert (write["count"], write["bytes"]) == (job["write"]["total_ios"], job["write"]["io_bytes"])
    (grid,) = write["alignment"]
    assert grid["off_grid"] == grid["straddling"] == write["count"]
    assert read(said, "writes.left") == QUIET


def test_the_exit_code_is_the_command_s(said: Path) -> None:
    assert read(said, "failed.code") == "7\n"
    assert "sh ended with 7" in read(said, "failed.err") and (said / "failed.txt").stat().st_size
    assert read(said, "failed.left") == QUIET


def test_a_disk_that_was_asked_nothing_is_no_error(said: Path) -> None:
    assert read(said, "idle.code") == "0\n", read(said, "idle.err")
    assert "was asked nothing" in read(said, "idle.out")


def test_an_interruption_ends_both_and_keeps_the_log(said: Path) -> None:
    assert read(said, "stopped.code") == "130\n", read(said, "stopped.err")
    told = run(ROOT / ".venv/bin/aligntool", "trace", said / "stopped.txt", "--json")
    assert json.loads(told)["commands"][0]["count"] == 9
    assert read(said, "stopped.left") == QUIET
    assert read(said, "pid").strip() not in read(said, "stopped.alive")


def test_a_killed_recording_leaves_no_trace_in_the_kernel(said: Path) -> None:
    assert read(said, "killed.left").splitlines()[0] == "0"
    assert not any(line.isdecimal() for line in read(said, "killed.left").splitlines()[1:])


def test_a_trace_of_somebody_else_is_left_alone(said: Path) -> None:
    assert read(said, "busy.code") == "3\n" and "is being traced already" in read(said, "busy.err")
    assert read(said, "busy.left") == "1\n" and not (said / "ran").exists()


def test_a_log_on_the_traced_disk_is_said(said: Path) -> None:
    assert read(said, "itself.code") == "0\n"
    assert "is written to the disk that is traced" in read(said, "itself.err")
