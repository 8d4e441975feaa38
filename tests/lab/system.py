"""Queries to the emulated Debian, and their answers as values.

They use mdadm, blkid, findmnt, sysfs and aligntool in a running PC. Every test asks the same before and after a reboot.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.lab.debian_pc import DebianPC

# A section of an answer begins with its name on a line of its own.
_MARK = "=====8<===== "
_FACTS = """
md=$(basename $(readlink -f {device}))
say() {{ echo; echo "{mark}$1"; }}
say node; echo $md
say detail; mdadm --detail --export {device}
say state; cat /sys/block/$md/md/array_state /sys/block/$md/md/sync_action 2>/dev/null
say examine; for member in $(cd /sys/block/$md/slaves && ls); do mdadm --examine /dev/$member; done
say limits; cd /sys/block/$md/queue && grep -H . minimum_io_size optimal_io_size logical_block_size chunk_sectors
say blkid; blkid -p -o export {device}
say mount; findmnt --json -o TARGET,SOURCE,FSTYPE,OPTIONS,UUID --source {device}
say end
"""
# Queries in case of a failure, to show its cause.
CIRCUMSTANCES = """cat /proc/mdstat
systemctl list-units --all --no-pager 'mdadm-last-resort@*' 'mdadm-late-start*' 'srv-*.mount'
systemctl list-jobs --no-pager
journalctl -b --no-pager -o short-monotonic | grep -i -e mdadm -e raid -e 'md[0-9]' -e srv- | tail -n 60
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tools report of one array; `examine` has one text for each member, in the order of their names."""

    node: str
    detail: dict[str, str]
    state: str
    examine: tuple[dict[str, str], ...]
    limits: dict[str, int]
    blkid: dict[str, str]
    mount: dict[str, Any] | None

    @property
    def lasting(self) -> dict[str, str]:
        """Return the part of `detail` that a reboot must not change: everything but the kernel's names
        of the members.
        """
        return {name: value for name, value in self.detail.items() if not name.startswith("MD_DEVICE_")}


def facts(pc: DebianPC, device: str) -> Facts:
    """Return the facts of the array that this name leads to."""
    said = _sections(pc.run(_FACTS.format(device=device, mark=_MARK), code=None).out)
    mounts = json.loads(said["mount"] or '{"filesystems": []}')["filesystems"]
    return Facts(
        node=said["node"],
        detail=_pairs(said["detail"]),
        state=said["state"],
        examine=tuple(_colons(each) for each in said["examine"].split("/dev/")[1:]),
        limits={name: int(value) for name, _, value in (line.partition(":") for line in said["limits"].splitlines())},
        blkid=_pairs(said["blkid"]),
        mount=mounts[0] if mounts else None,
    )


def arrays(pc: DebianPC) -> set[str]:
    """Return the kernel's names of all arrays, running or not."""
    return set(pc.run("cd /sys/block && ls -d md* 2>/dev/null", code=None).out.split())


def _sections(text: str) -> dict[str, str]:
    parts = (part.partition("\n") for part in text.split(_MARK)[1:])
    return {name.strip(): body.strip() for name, _, body in parts}


def _pairs(text: str) -> dict[str, str]:
    return {name: value for name, found, value in (line.partition("=") for line in text.splitlines()) if found}


def _colons(text: str) -> dict[str, str]:
    lines = (line.partition(" : ") for line in text.splitlines())
    return {name.strip(): value.strip() for name, found, value in lines if found}
