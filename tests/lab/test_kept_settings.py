"""Settings that `raid persist --tuned` keeps are those of the array and of its drives after a reboot of a Debian."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aligntool.units import GIB
from tests.lab.array_cases import BY_ID
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.marks import DEBIAN_PC
from tests.lab.system import CIRCUMSTANCES
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, when_thorough("starts a PC twice")]

NAMES = ("left", "middle", "right")
KEPT = {
    "md/group_thread_cnt": "2",
    "md/stripe_cache_size": "1024",
    "queue/read_ahead_kb": "4096",
    "queue/scheduler": "mq-deadline",
    "queue/nr_requests": "64",
}
# A result as `raid tune` writes it: its rates leave no doubt that these values are faster.
MEASURED = f"""
from pathlib import Path
from aligntool.cli.raid import SettingsOptions, _find_settings_sweep
from aligntool.raid.settings import SettingSample, SettingsTuning, settings_text
sweep = _find_settings_sweep("md0", SettingsOptions("general", None, (), None, 3, 1.0, None))
samples = tuple(
    SettingSample(number, name, value, "read", rate, 0)
    for name, faster in {KEPT}.items() for number in range(3) for value, rate in ((sweep.now[name], 1), (faster, 2))
)
before = {{name: sweep.now[name] for name in {KEPT}}}
tuning = SettingsTuning(
    sweep.uuid, sweep.level, sweep.identities, "general", 16384, "array", 1 << 20, 1.0, True, {{}}, before, samples
)
Path("/root/settings.json").write_text(settings_text(tuning))
"""
MAKE = """set -e
for drive in {drives}; do echo '2048,,fd' | sfdisk -q $drive; done
udevadm settle
mdadm --create /dev/md0 --run --level=5 --raid-devices=3 --chunk=64 --assume-clean --bitmap=none {parts}
mkfs.ext4 -q /dev/md0
PYTHONPATH=/opt/aligntool/python python3 - <<'PYTHON'
{measured}
PYTHON
"""
LOOK = """
node=$(basename $(realpath /dev/disk/by-id/md-uuid-*))
for name in md/group_thread_cnt md/stripe_cache_size queue/read_ahead_kb; do
    echo $name $(cat /sys/block/$node/$name)
done
for drive in {drives}; do
    for name in scheduler nr_requests; do
        echo queue/$name $(sed 's/.*\\[\\(.*\\)\\].*/\\1/' /sys/block/$(basename $(realpath $drive))/queue/$name)
    done
done
"""


@dataclass(frozen=True, slots=True)
class Observed:
    before: str
    persisted: str
    set_at_once: str
    after_reboot: str
    shown: str
    again: str
    circumstances: str


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    with powered(debian.pc(*(Nvme(name, GIB) for name in NAMES))) as pc:
        yield _observe(pc)


def _observe(pc: DebianPC) -> Observed:
    drives = " ".join(f"{BY_ID}{name}" for name in NAMES)
    parts = " ".join(f"{BY_ID}{name}-part1" for name in NAMES)
    look = LOOK.format(drives=drives)
    pc.run(MAKE.format(drives=drives, parts=parts, measured=MEASURED))
    before = pc.run(look).out
    persisted = pc.run("aligntool raid persist /dev/md0 --tuned /root/settings.json --yes").out
    set_at_once = pc.run(look).out
    pc.reboot()
    return Observed(
        before=before,
        persisted=persisted,
        set_at_once=set_at_once,
        after_reboot=pc.run(look).out,
        shown=pc.run("aligntool raid show").out,
        again=pc.run("aligntool raid persist $(realpath /dev/disk/by-id/md-uuid-*) --yes").out,
        circumstances=pc.run(f"cat /etc/udev/rules.d/*; {CIRCUMSTANCES}", code=None).out,
    )


def pairs(text: str) -> set[tuple[str, str]]:
    return {(name, value) for name, _, value in (line.partition(" ") for line in text.splitlines())}


def test_the_settings_are_set_at_once_and_after_a_reboot(observed: Observed) -> None:
    assert not pairs(observed.before) & set(KEPT.items()), "or nothing would be seen"
    assert pairs(observed.set_at_once) == set(KEPT.items())
    assert pairs(observed.after_reboot) == set(KEPT.items()), observed.circumstances


def test_after_a_reboot_nothing_differs_from_what_is_kept(observed: Observed) -> None:
    assert "kept settings: " in observed.shown and "is kept" not in observed.shown, observed.shown
    assert "Nothing to do." in observed.again, observed.again
