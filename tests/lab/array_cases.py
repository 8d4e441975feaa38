"""The arrays that the lab makes, and the values in their plans that tools must report afterwards.

The plan, as JSON, is the expectation: it was shown before anything was written, and mdadm, mkfs and the kernel are
asked whether it came true.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from aligntool.change import from_json
from aligntool.raid.commands import command_of
from aligntool.steps import MakeArray
from aligntool.units import GIB
from tests.lab.drives import Nvme

BY_ID = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Case:
    """An array to be made: `words` for `raid create`, the number of members, the bytes of their logical blocks."""

    name: str
    words: str
    members: int
    block: int
    kind: str
    data_members: int
    applied: bool = False  # by `raid plan` and `apply` instead of `raid create`

    @property
    def drives(self) -> tuple[Nvme, ...]:
        return tuple(Nvme(f"{self.name}{number}", GIB, block=self.block) for number in range(self.members))

    @property
    def command(self) -> str:
        """Return the arguments of `raid plan` and `raid create`."""
        members = " ".join(f"{BY_ID}{drive.serial}" for drive in self.drives)
        return f"{self.words} --name {self.name} {members}"

    @property
    def device(self) -> str:
        return f"/dev/md/{self.name}"

    @property
    def place(self) -> str:
        return f"/srv/{self.name}"


def cases(*, swapped: bool = False) -> tuple[Case, ...]:
    """Return every level on drives of both block sizes; `swapped`: each on drives of the other size."""
    small, large = (4096, 512) if swapped else (512, 4096)
    return (
        Case("scratch", "--recipe nvme-raid0-scratch", 2, small, "xfs", 2),
        Case("mirror", "--level 1 --fs ext4", 2, large, "ext4", 1),
        Case("database", "--recipe raid10-database", 4, small, "xfs", 2),
        Case("archive", "--level 5 --fs ext4 --workload sequential", 3, large, "ext4", 2, applied=True),
        Case("twofold", "--recipe raid6-archive", 4, small, "xfs", 2),
    )


class Planned:
    """The values in the steps of a plan."""

    def __init__(self, text: str) -> None:
        steps: list[dict[str, Any]] = json.loads(text)["plan"]["steps"]
        self.array = next(step for step in steps if step["step"] == "MakeArray")
        self.content = next(step for step in steps if step["step"] == "MakeFileSystem")
        self.files = {step["path"]: step["lines"] for step in steps if step["step"] in ("EditFile", "WriteFile")}
        made = next(step for step in from_json(text).steps if isinstance(step, MakeArray))
        found = (re.fullmatch(r"--([a-z-]+)=(.*)", word) for word in command_of(made))
        self.words = {match[1]: match[2] for match in found if match}

    def size(self, word: str) -> int:
        """Return an option of `mdadm --create` in bytes."""
        return in_bytes(self.words[word])

    def mkfs(self, name: str) -> int | None:
        """Return a value of mkfs, such as su or stride, in its own unit; None if it is not given."""
        found = re.search(rf"\b{name}=(\d+)([kmg]?)\b", " ".join(self.content["options"]))
        return int(found[1]) * UNITS[found[2].upper()] if found else None


def in_bytes(text: str) -> int:
    """Convert a size of mdadm to bytes: 512K, 1G."""
    return int(text.rstrip("KMG")) * UNITS[text[len(text.rstrip("KMG")) :]]
