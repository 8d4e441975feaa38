"""`aligntool-ensure@.service` on a Debian that boots: drives that are kept, all blank, one blank, and none at all."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aligntool.units import GIB
from tests.lab.conftest import Debian
from tests.lab.debian_pc import DebianPC, powered
from tests.lab.drives import Nvme
from tests.lab.kernel import ROOT
from tests.lab.marks import DEBIAN_PC
from tests.thorough import when_thorough

pytestmark = [*DEBIAN_PC, when_thorough("starts a PC five times")]

SERIALS = ("store0", "store1")
UNIT = "aligntool-ensure@scratch.service"
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
# The mount is slow, like that of a file system with a long log.
SLOW = """[Unit]
DefaultDependencies=no
Before=srv-scratch.mount
[Service]
Type=oneshot
ExecStart=/bin/sleep 8
[Install]
WantedBy=local-fs.target
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
echo 'UUID=11111111-2222-4333-8444-555555555555 /srv/other xfs noauto 0 0' >> /etc/fstab
cat > /etc/systemd/system/slow.service << 'END'
{slow}
END
systemctl daemon-reload
systemctl enable slow.service {name}
systemctl start {name}
echo kept > /srv/scratch/file
sync
"""
LOOK = """
echo "unit $(systemctl show --property=Result --value {name})"
echo "local-fs $(systemctl is-active local-fs.target)"
echo "mounted $(findmnt --noheadings --output FSTYPE,UUID /srv/scratch)"
echo "line $(grep -v ^# /etc/fstab | grep '/srv/scratch xfs')"
echo "file $(cat /srv/scratch/file)"
echo "access $(stat -c '%g %a' /srv/scratch)"
echo "bound $(findmnt --noheadings --output SOURCE /var/lib/pods | sed 's/.*\\[/[/')"
echo "arrays $(ls /dev/md 2>/dev/null | tr '\\n' ' ')"
cat /proc/mdstat
cat /etc/mdadm/mdadm.conf /etc/fstab
journalctl -b --no-pager --unit {name}
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """What there was at each start."""

    kept: str
    blank: str
    kept_again: str
    one_blank: str
    none: str


@pytest.fixture(scope="module")
def observed(debian: Debian) -> Iterator[Observed]:
    drives = tuple(Nvme(name, GIB) for name in SERIALS)
    with powered(debian.pc(*drives)) as pc:
        unit = (ROOT / "packaging/systemd/aligntool-ensure@.service").read_text()
        pc.run(SET_UP.format(unit=unit, file=FILE, slow=SLOW, name=UNIT))
        yield Observed(
            kept=_restarted(pc), blank=_restarted(pc, *SERIALS), kept_again=_restarted(pc),
            one_blank=_restarted(pc, SERIALS[1]), none=_without(pc),
        )  # fmt: skip


def _restarted(pc: DebianPC, *blank: str) -> str:
    """Return what there is after a restart, for which these drives became blank."""
    pc.off()
    for serial in blank:
        (pc.folder / f"{serial}.img").unlink()
    pc.start()
    return pc.run(LOOK.format(name=UNIT), code=None).out


def _without(pc: DebianPC) -> str:
    pc.off()
    pc.drives = ()
    pc.start()
    return pc.run(LOOK.format(name=UNIT), code=None).out


def value(said: str, name: str) -> str:
    return next(line.removeprefix(f"{name} ") for line in said.splitlines() if line.startswith(f"{name} "))


def test_drives_with_their_content_are_left_as_they_are(observed: Observed) -> None:
    for said in (observed.kept, observed.kept_again):
        assert (value(said, "unit"), value(said, "local-fs")) == ("success", "active"), said
        assert "already as requested" in said and "Nothing to do." in said, said
        assert value(said, "mounted").startswith("xfs"), said
        assert (value(said, "access"), value(said, "bound")) == ("12 2770", "[/pods]"), said
    assert value(observed.kept, "file") == "kept"


def test_blank_drives_get_the_array_anew_before_the_boot_is_done(observed: Observed) -> None:
    said = observed.blank
    assert (value(said, "unit"), value(said, "local-fs")) == ("success", "active"), said
    kind, uuid = value(said, "mounted").split()
    assert kind == "xfs" and value(said, "line").startswith(f"UUID={uuid} /srv/scratch xfs"), said
    assert (value(said, "access"), value(said, "bound")) == ("12 2770", "[/pods]"), said
    binds = [line for line in said.splitlines() if line.startswith("/srv/scratch/pods /var/lib/pods none bind,nofail")]
    assert len(binds) == 1, said
    old = value(observed.kept, "line")
    assert not value(said, "line").startswith(old.split()[0]) and f"# replaced by aligntool: {old}" in said
    assert "UUID=11111111-2222-4333-8444-555555555555 /srv/other xfs noauto 0 0" in said.splitlines()
    assert "file kept" not in said.splitlines()
    assert value(observed.kept_again, "mounted") == value(said, "mounted")


def test_with_one_blank_drive_the_system_starts_and_both_are_named(observed: Observed) -> None:
    said = observed.one_blank
    assert (value(said, "unit"), value(said, "local-fs")) == ("exit-code", "active"), said
    assert "(serial store0), and nvme" in said and "(serial store1) has none: it is not made anew" in said
    assert value(said, "mounted") == ""
    assert value(said, "line") == value(observed.blank, "line")


def test_without_a_drive_there_is_nothing_to_do(observed: Observed) -> None:
    said = observed.none
    assert (value(said, "unit"), value(said, "local-fs")) == ("success", "active"), said
    assert "no drive is selected" in said
