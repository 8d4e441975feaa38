"""Settings of a running array on real md and udev: measured, restored after every end, kept, and undone."""

import json
from pathlib import Path

import pytest

from aligntool.raid.settings import parse_settings
from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Nvme
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    when_thorough("measures a real array for minutes"),
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "file", "depmod"),
    pytest.mark.needs_tools("fio", "mdadm", "sfdisk", "mke2fs"),
]

MEMBERS = ("0", "1", "2")
NAMES = "md0/md/group_thread_cnt md0/md/stripe_cache_size md0/queue/read_ahead_kb " + " ".join(
    f"nvme{number}n1/queue/{name}" for number in MEMBERS for name in ("scheduler", "nr_requests")
)
# What a measurement may have found: rates that leave no doubt, for these values.
FASTER = {
    "md/group_thread_cnt": "2",
    "md/stripe_cache_size": "1024",
    "queue/scheduler": "mq-deadline",
    "queue/nr_requests": "64",
    "queue/read_ahead_kb": "2048",
}
MAKE_FASTER = f"""
import json, sys
faster = {FASTER} | dict(word.split("=") for word in sys.argv[3:])
document = json.load(open(sys.argv[1]))
names = document["before"]
document["samples"] = [
    dict(round=number, setting=name, value=value, shape="read", read=2000 if value == faster[name] else 1000, write=0,
         cpu=0.0)
    for name in names for number in range(3) for value in {{names[name], faster[name]}}
]
json.dump(document, open(sys.argv[2], "w"))
"""
SCRIPT = f"""
set +e
set -m # otherwise a background process does not receive Ctrl-C
cd /lab
export PYTHONPATH={ROOT}
tool="{ROOT}/.venv/bin/python -m aligntool"
umount /etc/fstab || true # one of the guest's own is mounted over it
modprobe mq-deadline
cat > faster.py <<'PYTHON'
{MAKE_FASTER}
PYTHON
values() {{ for name in {NAMES}; do echo "$name $(cat /sys/block/$name)"; done; }}
for number in {" ".join(MEMBERS)}; do echo '2048,,fd' | sfdisk -q /dev/nvme${{number}}n1; done
udevadm settle
members="/dev/nvme0n1p1 /dev/nvme1n1p1 /dev/nvme2n1p1"
mdadm --create /dev/md0 --run --level=5 --raid-devices=3 --chunk=64 --assume-clean --bitmap=none $members
mkfs.ext4 -q /dev/md0
mkdir -p /tmp/data
mount /dev/md0 /tmp/data
head -c 3000000 /dev/urandom > /tmp/data/file
sync
sha256sum /tmp/data/file > sums
blockdev --flushbufs /dev/md0
values > before.txt

$tool raid tune /dev/md0 --runtime 0.1 --repeats 3 --span 16MiB --write-in /tmp/data -o whole.json > whole.txt 2>&1
echo "exit $?" >> whole.txt
values > whole.values
ls -A /tmp/data > whole.files

umount /tmp/data
sha256sum /dev/md0 > array.sums
$tool raid tune md0 --settings read_ahead_kb,nr_requests --runtime 0.1 --repeats 1 --span 16MiB -o read.json \\
    > read.txt 2>&1
echo "exit $?" >> read.txt
sha256sum -c array.sums > read.sums
mount /dev/md0 /tmp/data

for signal in INT TERM KILL; do
    $tool raid tune /dev/md0 --settings stripe_cache_size --runtime 5 --repeats 3 --span 16MiB --write-in /tmp/data \\
        -o $signal.json > $signal.txt 2>&1 &
    sweeping=$!
    until grep -q 'stripe_cache_size 1024' $signal.txt || ! kill -0 $sweeping; do sleep 0.5; done
    values > $signal.during
    kill -$signal $sweeping
    wait $sweeping
    echo "exit $?" >> $signal.txt
    sleep 2
    values > $signal.values
done

python3 faster.py whole.json tuned.json
$tool raid persist /dev/md0 --tuned tuned.json --dry-run > dry.txt 2>&1
values > dry.values
$tool raid persist /dev/md0 --tuned tuned.json --yes > persist.txt 2>&1
echo "exit $?" >> persist.txt
values > persist.values
cat /etc/udev/rules.d/65-aligntool-*.rules > rule.txt
$tool raid show md0 > kept.txt 2>&1
$tool raid persist /dev/md0 --tuned tuned.json --yes > again.txt 2>&1

echo 256 > /sys/block/md0/md/stripe_cache_size
$tool raid show md0 > differs.txt 2>&1

umount /tmp/data
mdadm --stop /dev/md0
for number in {" ".join(MEMBERS)}; do echo none > /sys/block/nvme${{number}}n1/queue/scheduler; done
udevadm settle
values > stopped.values 2> /dev/null
for member in $members; do udevadm trigger --action=add --settle $member; done
mdadm --assemble /dev/md0 $members > assemble.txt 2>&1
udevadm settle
sleep 1
values > assembled.values

python3 faster.py whole.json refused.json queue/nr_requests=9999 queue/read_ahead_kb=512
values > failed.before
cp /etc/udev/rules.d/65-aligntool-*.rules failed.rule
$tool raid persist /dev/md0 --tuned refused.json --yes > failed.txt 2>&1
echo "exit $?" >> failed.txt
cat /etc/udev/rules.d/65-aligntool-*.rules > failed.rule.during
$tool rollback /dev/md0 --yes > rollback.txt 2>&1
echo "exit $?" >> rollback.txt
cat /etc/udev/rules.d/65-aligntool-*.rules > rollback.rule
values > rollback.values
mount /dev/md0 /tmp/data
sha256sum -c sums > final.sums 2>&1
exit 0
"""


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    return lab.run(*(Nvme(f"set-{number}", size=128 * MIB) for number in MEMBERS), script=SCRIPT, limit_s=3600)


def read(said: Path, name: str) -> str:
    return (said / name).read_text()


def values(said: Path, name: str) -> dict[str, str]:
    pairs = (line.partition(" ") for line in read(said, f"{name}.values").splitlines())
    return {key: value.partition("[")[2].partition("]")[0] or value for key, _, value in pairs}


def wanted() -> dict[str, str]:
    own = {f"md0/{name}": FASTER[name] for name in FASTER if name.startswith("md/") or "read_ahead" in name}
    drives = {
        f"nvme{number}n1/{name}": FASTER[name] for number in MEMBERS for name in FASTER if f"md0/{name}" not in own
    }
    return own | drives


def test_every_setting_is_measured_and_restored(said: Path) -> None:
    assert read(said, "whole.txt").rstrip().endswith("exit 0")
    found = parse_settings(read(said, "whole.json"))
    assert found.complete and set(found.before) == set(FASTER) and found.target == "file"
    assert all(sample.rate for sample in found.samples)
    assert read(said, "whole.values") == read(said, "before.txt")


def test_the_file_that_was_written_to_is_gone_and_all_others_are_unchanged(said: Path) -> None:
    assert set(read(said, "whole.files").split()) == {"file", "lost+found"}
    assert read(said, "final.sums") == "/tmp/data/file: OK\n"


def test_a_sweep_without_a_folder_writes_no_byte_of_the_array(said: Path) -> None:
    assert read(said, "read.txt").rstrip().endswith("exit 0")
    assert read(said, "read.sums") == "/dev/md0: OK\n"


@pytest.mark.parametrize(("signal", "code"), [("INT", 4), ("TERM", 4), ("KILL", 137)])
def test_the_settings_are_restored_after_a_signal(said: Path, signal: str, code: int) -> None:
    assert "stripe_cache_size 1024" in read(said, f"{signal}.during"), "or nothing has to be restored"
    assert read(said, f"{signal}.txt").rstrip().endswith(f"exit {code}")
    assert read(said, f"{signal}.values") == read(said, "before.txt")


def test_a_dry_run_shows_the_rule_and_changes_nothing(said: Path) -> None:
    assert "/etc/udev/rules.d/65-aligntool-" in read(said, "dry.txt")
    assert read(said, "dry.values") == read(said, "before.txt")


def test_kept_settings_are_set_at_once_and_shown(said: Path) -> None:
    assert read(said, "persist.txt").rstrip().endswith("exit 0")
    assert values(said, "persist") == wanted()
    assert "kept settings: " in read(said, "kept.txt")
    assert "Nothing to do." in read(said, "again.txt")


def test_the_bitmap_is_named_and_not_tried(said: Path) -> None:
    assert "not tried: the bitmap (now no bitmap); it is measured on empty drives" in " ".join(
        read(said, "whole.txt").split()
    )
    assert "no bitmap" in read(said, "kept.txt").splitlines()[0]


def test_a_setting_that_differs_is_shown_with_the_command_that_sets_it(said: Path) -> None:
    shown = " ".join(read(said, "differs.txt").split())
    assert "md/stripe_cache_size is 256, but 1024 is kept" in shown
    assert "sudo aligntool raid persist /dev/md0" in shown


def test_udev_sets_them_when_the_members_and_the_array_appear_again(said: Path) -> None:
    stopped = values(said, "stopped")
    assert all(stopped[f"nvme{number}n1/queue/scheduler"] == "none" for number in MEMBERS)
    assert values(said, "assembled") == wanted()


def test_a_rollback_restores_the_rule_and_the_settings(said: Path) -> None:
    """The kernel refuses one of the new values, after the rule was written."""
    assert read(said, "failed.txt").rstrip().endswith("exit 4") and "9999" in read(said, "failed.txt")
    assert read(said, "failed.rule.during") != read(said, "failed.rule")
    assert read(said, "rollback.txt").rstrip().endswith("exit 0")
    assert read(said, "rollback.rule") == read(said, "failed.rule")
    assert values(said, "rollback") == wanted()
    assert json.loads(read(said, "refused.json"))["before"]
