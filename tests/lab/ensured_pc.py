"""A Debian whose boots run `aligntool-ensure@scratch.service`, and what there is after one."""

from tests.lab.debian_pc import DebianPC
from tests.lab.kernel import ROOT

UNIT = "aligntool-ensure@scratch.service"
OTHER = "UUID=11111111-2222-4333-8444-555555555555 /srv/other xfs noauto 0 0"  # a line of the administrator
FILE = """format = 1
kind = "ensure"
level = "raid0"
filesystem = "xfs"
group = "12"
mode = "2770"
bind = [{from = "pods", to = "/var/lib/pods"}]

[drives]
select = "all-unused"
by_id = "nvme-*_store?"
at_least = 2
none = "nothing"
"""
# The program is on a disk that this Debian mounts late, so a copy of it is on the system's own.
SET_UP = """set -e
cp -a /opt/aligntool /usr/local/lib/aligntool
printf '#!/bin/sh\\nPYTHONPATH=/usr/local/lib/aligntool/python exec python3 -m aligntool "$@"\\n' > /usr/bin/aligntool
chmod 755 /usr/bin/aligntool
cat > /etc/systemd/system/aligntool-ensure@.service << 'END'
{unit}
END
mkdir -p /etc/aligntool/arrays.d
cat > /etc/aligntool/arrays.d/scratch.toml << 'END'
{file}
END
echo '{other}' >> /etc/fstab
systemctl daemon-reload
systemctl enable {name}
"""
LOOK = """
echo "unit $(systemctl show --property=Result --value {name})"
echo "local-fs $(systemctl is-active local-fs.target)"
echo "mounted $(findmnt --noheadings --output FSTYPE,UUID /srv/scratch)"
echo "line $(grep -v ^# /etc/fstab | grep '/srv/scratch xfs')"
echo "file $(cat /srv/scratch/file)"
echo "sum $(sha256sum < /srv/scratch/random)"
echo "access $(stat -c '%g %a' /srv/scratch)"
echo "bound $(findmnt --noheadings --output SOURCE /var/lib/pods | sed 's/.*\\[/[/')"
echo "arrays $(ls /dev/md 2>/dev/null | tr '\\n' ' ')"
echo "tables $(cat /etc/mdadm/mdadm.conf /etc/fstab | sha256sum)"
echo "records $(ls /var/lib/aligntool/arrays | tr '\\n' ' ')"
for drive in /sys/class/nvme/nvme*; do
  echo "${{drive##*/}}" $(cat $drive/serial)
done
cat /proc/mdstat
cat /etc/mdadm/mdadm.conf /etc/fstab
journalctl -b --no-pager --unit {name}
"""


def set_up(pc: DebianPC) -> None:
    """Install and enable the unit, and a file that it reads. It is not started."""
    unit = (ROOT / "packaging/systemd/aligntool-ensure@.service").read_text()
    pc.run(SET_UP.format(unit=unit, file=FILE, other=OTHER, name=UNIT))


def look(pc: DebianPC) -> str:
    return pc.run(LOOK.format(name=UNIT), code=None).out


def blank(pc: DebianPC, *serials: str) -> None:
    """Replace these drives of a PC that is off by blank ones."""
    for serial in serials:
        (pc.folder / f"{serial}.img").unlink(missing_ok=True)


def value(said: str, name: str) -> str:
    return next(line.removeprefix(f"{name} ") for line in said.splitlines() if line.startswith(f"{name} "))
