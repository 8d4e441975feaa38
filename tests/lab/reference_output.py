"""Parse the output of the programs in the guest of `reference_tools`.

It returns what the kernel, parted and aligntool report of the partitions of a disk, by the first logical block of each.
Several test modules read the same guest.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DiskReport:
    """One disk, named as its files are."""

    folder: Path
    name: str
    audit: str  # of which run of aligntool

    @cached_property
    def sysfs(self) -> dict[str, int]:
        lines = (self.folder / f"sysfs-{self.name}").read_text().splitlines()
        return {path: int(number) for path, number in (line.rsplit(" ", 1) for line in lines)}

    @cached_property
    def starts(self) -> dict[str, int]:
        """Return the first logical block of each partition by its kernel name; the kernel counts 512
        bytes everywhere.
        """
        block = self.sysfs["queue/logical_block_size"]
        found = {path: at * 512 // block for path, at in self.sysfs.items() if path.endswith("/start")}
        return {path.removesuffix("/start"): start for path, start in found.items()}

    def kernel(self, attribute: str) -> dict[int, int]:
        return {start: self.sysfs[f"{name}/{attribute}"] for name, start in self.starts.items()}

    def parted(self, kind: str) -> dict[int, bool]:
        """Return, by first block, whether it is aligned by `parted align-check`: minimal for each partition first, then
        optimal.
        """
        said = (self.folder / f"parted-{self.name}").read_text()
        answers = re.findall(r"^(\d+) (aligned|not aligned)", said, re.MULTILINE)
        numbers = {int(re.split(r"\D+", name)[-1]): start for name, start in self.starts.items()}
        assert len(answers) == 2 * len(numbers), said
        mine = answers[: len(numbers)] if kind == "minimal" else answers[len(numbers) :]
        return {numbers[int(number)]: answer == "aligned" for number, answer in mine}

    @cached_property
    def disk(self) -> dict[str, Any]:
        disks = json.loads((self.folder / self.audit).read_text())["disks"]
        kernel_name = re.sub(r"(\d)p\d+$|(\D)\d+$", r"\1\2", next(iter(self.starts)))
        (found,) = (disk for disk in disks if disk["name"] == kernel_name)
        assert isinstance(found, dict)
        return found

    @cached_property
    def findings(self) -> list[dict[str, Any]]:
        """Return aligntool's findings about this disk."""
        findings = json.loads((self.folder / self.audit).read_text())["findings"]
        return [finding for finding in findings if finding["disk"] == self.disk["name"]]

    @property
    def sources(self) -> dict[str, str]:
        """Return for each boundary that aligntool uses: reported, known or assumed."""
        return {grid["kind"]: grid["source"] for grid in self.disk["grids"]}

    def aligned(self, kind: str) -> dict[int, bool]:
        """Return, by first block, whether it is on this kind of boundary, according to aligntool."""
        return {
            self._block(part): check["on"]
            for part in self.disk["partitions"]
            for check in part["verdict"]["checks"]
            if check["kind"] == kind
        }

    def on_all(self) -> dict[int, bool]:
        """Return, by first block, whether it is on every boundary that aligntool knows there, also those
        it only notes.
        """
        return {
            self._block(part): all(check["on"] for check in part["verdict"]["checks"])
            for part in self.disk["partitions"]
        }

    def answers(self) -> dict[int, str]:
        return {self._block(part): part["verdict"]["answer"] for part in self.disk["partitions"]}

    def codes(self, block: int | None = None) -> dict[str, str]:
        """Return the severity by code of aligntool's findings about the disk or about the partition at this block."""
        numbers = {self._block(part): part["number"] for part in self.disk["partitions"]}
        wanted = None if block is None else numbers[block]
        return {each["code"]: each["severity"] for each in self.findings if each["partition"] == wanted}

    def _block(self, part: dict[str, Any]) -> int:
        return int(part["start"]) // int(self.disk["limits"]["logical_block_size"])


def links(folder: Path) -> dict[str, str]:
    """Return the output of `lspci -vv` by PCI address."""
    blocks = (folder / "lspci").read_text().split("\n\n")
    return {block.split()[0]: block for block in blocks if block.strip()}
