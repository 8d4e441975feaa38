"""`aligntool bench` on NVMe drives and on an array that is being checked: what it detects, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Nvme, Port
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("measures in an emulated PC for minutes"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod", "fio", "mdadm", "mkfs.ext4", "wipefs"),
]

DRIVES = (
    Nvme("bench-a", size=128 * MIB),
    Nvme("bench-b", size=128 * MIB),
    Nvme("bench-free", size=64 * MIB, block=4096, behind=Port("narrow", speed="8", width=2)),
)
SCRIPT = f"""
set +e
cd /lab
export XDG_STATE_HOME=/tmp/state
bench() {{ # name, arguments: its output, its errors, its exit code
    name=$1; shift
    {ROOT}/.venv/bin/aligntool bench "$@" --runtime 0.5 --repeats 1 --span 8MiB > $name.out 2> $name.err
    echo $? > $name.code
}}
for each in a b free; do
    for place in /sys/block/nvme*; do grep -q "bench-$each" $place/device/serial && eval $each=/dev/${{place##*/}}; done
done
mdadm --create /dev/md0 --run --assume-clean --level=1 --raid-devices=2 --metadata=1.2 $a $b > create.txt 2>&1
mkfs.ext4 -q /dev/md0
mkdir -p /tmp/mounted
mount /dev/md0 /tmp/mounted
echo 1 > /sys/block/md0/md/sync_speed_min
echo 10 > /sys/block/md0/md/sync_speed_max
echo check > /sys/block/md0/md/sync_action
cat /sys/block/md0/md/sync_action > sync_action
cat /sys/block/${{free#/dev/}}/queue/scheduler > scheduler
bench folder /tmp/mounted --profile boot --json
ls -A /tmp/mounted > left
bench array /dev/md0 --profile boot --json
bench member $a --profile boot --destructive --yes
bench mounted /dev/md0 --profile boot --destructive --yes
bench free $free --profile boot --destructive --yes --json
bench again $free --profile boot --json
umount /tmp/mounted
mdadm --stop /dev/md0
exit 0
"""


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    return lab.run(*DRIVES, script=SCRIPT, limit_s=2400)


def read(said: Path, name: str) -> str:
    return (said / name).read_text()


def test_a_folder_on_an_array_is_measured_and_a_running_check_is_reported(said: Path) -> None:
    assert read(said, "folder.code") == "0\n", read(said, "folder.err")
    seen = json.loads(read(said, "folder.out"))["conditions"]
    array, *members = seen["drives"]
    assert (array["name"], array["array_level"]) == ("md0", "raid1")
    assert array["array_action"] == read(said, "sync_action").strip() == "check"
    assert "md0 is busy with a check" in read(said, "folder.err")
    assert len(members) == 2 and all(member["model"] == "QEMU NVMe Ctrl" for member in members)
    assert seen["filesystem"] == "ext4" and seen["caches_dropped"] is True
    assert read(said, "left") == "lost+found\n"


def test_an_array_in_use_is_only_read(said: Path) -> None:
    assert read(said, "array.code") == "0\n", read(said, "array.err")
    assert [row["title"] for row in json.loads(read(said, "array.out"))["series"]] == ["RND4K Q1T1 read"]
    assert read(said, "member.code") == read(said, "mounted.code") == "3\n"
    assert "md0" in read(said, "member.err") and "not empty: md 1.2" in read(said, "member.err")
    assert "mounted at /tmp/mounted" in read(said, "mounted.err") and "not empty: ext4" in read(said, "mounted.err")


def test_an_empty_drive_is_overwritten_and_described_as_by_the_kernel(said: Path) -> None:
    for name in ("free", "again"):
        assert read(said, f"{name}.code") == "0\n", read(said, f"{name}.err")
    document = json.loads(read(said, "free.out"))
    assert [row["title"] for row in document["series"]] == ["RND4K Q1T1 read", "RND4K Q1T1 write"]
    (drive,) = document["conditions"]["drives"]
    assert f"[{drive['scheduler']}]" in read(said, "scheduler")
    assert drive["kind"] == "nvme" and drive["queue_depth"] and drive["link"]
    assert [row["write"] for row in json.loads(read(said, "again.out"))["series"]] == [False]
