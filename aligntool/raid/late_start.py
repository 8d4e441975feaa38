"""Arrays that lack a drive when the machine starts, on Debian and Ubuntu: started all the same, half a minute later.

In: the goal and the system. Out: steps: a script, a service, its timer. Alone because of a gap between two programs:
initramfs-tools adds members one by one and starts incomplete arrays only for the root file system (its script
local-block/mdadm); mdadm's own timer for the others (mdadm-last-resort@.timer) is started when a member is added, and
by then all of them are.
"""

from collections.abc import Iterator

from aligntool.audit.incomplete import LEAVES_INACTIVE
from aligntool.inventory import LATE_START
from aligntool.plan import RaidGoal, RunCommand, WriteFile
from aligntool.raid.levels import LEVELS
from aligntool.raid.systems import System, own_file

NAME = LATE_START.removesuffix(".timer")
SCRIPT_FILE = f"/usr/local/lib/{NAME}.sh"
SERVICE_FILE = f"/etc/systemd/system/{NAME}.service"
TIMER_FILE = f"/etc/systemd/system/{LATE_START}"
DELAY_S = 30  # as mdadm-last-resort@.timer has it; fstab waits two minutes

SCRIPT = """\
# From aligntool: starts each array of mdadm.conf that is still inactive, without the drives that it lacks.
for state in /sys/block/md*/md/array_state; do
    [ "$(cat "$state" 2> /dev/null)" = inactive ] || continue
    array=${state#/sys/block/}
    array=${array%%/*}
    for member in "/sys/block/$array/slaves/"*; do
        uuid=$(mdadm --examine --export "/dev/${member##*/}" | sed -n '/^MD_UUID=/{s///;s/:/[:.-]?/g;p}')
        if [ -n "$uuid" ] && cat /etc/mdadm/mdadm.conf /etc/mdadm/mdadm.conf.d/*.conf /etc/mdadm.conf 2> /dev/null |
            grep -iE "^[^#]*$uuid" | grep -qv "<ignore>"; then
            mdadm --run "/dev/$array" || echo "/dev/$array lacks too many drives"
        fi
        break
    done
done
exit 0
"""
SERVICE = f"""\
[Unit]
Description=Start arrays without the drives that they lack
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target
[Service]
Type=oneshot
ExecStart=/bin/sh {SCRIPT_FILE}
"""
TIMER_TEXT = f"""\
[Unit]
Description=Wait for the drives of arrays, then start them without
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target
[Timer]
OnActiveSec={DELAY_S}
AccuracySec=1
Unit={NAME}.service
[Install]
WantedBy=sysinit.target
"""


def late_start_steps(goal: RaidGoal, system: System) -> Iterator[WriteFile | RunCommand]:
    """Where the array can do without a drive, and nobody else would start it then."""
    if system.word == LEAVES_INACTIVE and LEVELS[goal.level].redundant:
        yield from bring_late_start()


def bring_late_start() -> Iterator[WriteFile | RunCommand]:
    """For all arrays of mdadm.conf at once."""
    for file, text in ((SCRIPT_FILE, SCRIPT), (SERVICE_FILE, SERVICE), (TIMER_FILE, TIMER_TEXT)):
        yield own_file(file, text)
    yield RunCommand("have it started without a drive that is missing", ("systemctl", "enable", LATE_START))
