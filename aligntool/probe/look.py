"""Looking: the machine, or the disks and images that the user names, become an Inventory.

This only decides what is looked at, in which order, and what becomes of a target that cannot be; the looking itself is
done elsewhere, on this machine in a child process with a deadline (probe.deadline).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from aligntool.errors import Refused, objection_of, refuse
from aligntool.inventory import Disk, DiskKind, Gap, Inventory, IoLimits, System, Unseen
from aligntool.probe.contents import WHAT
from aligntool.probe.deadline import SILENCE_S, SILENT, Pulse, answer_of, answers_of
from aligntool.probe.devices import Block, is_disk, list_blocks, list_names
from aligntool.probe.images import read_image
from aligntool.probe.limits import Given
from aligntool.probe.stack import names_at_the_bottom
from aligntool.probe.sysroot import open_sysroot
from aligntool.probe.targets import find_target
from aligntool.probe.tree import Tree

if TYPE_CHECKING:
    from aligntool.probe.disks import Looker

__all__ = ["Given", "look"]

T = TypeVar("T")
Job = Callable[[Pulse], T]

_NOTHING_GIVEN = Given()
_NOT_NEEDED = Unseen(WHAT, "not needed here")
_FILES_S = 60.0  # for mdadm.conf, fstab and every initramfs, which are unpacked


def look(
    targets: Sequence[str],
    *,
    sysroot: str | None = None,
    given: Given = _NOTHING_GIVEN,
    wake: bool = False,
    files: bool = True,
    arrays: bool = False,
    silence_s: float = SILENCE_S,
    keep_going: bool = False, known: bool = True,
) -> Inventory:  # fmt: skip
    """Every disk of the machine, or the targets. `sysroot`: a captured tree is looked at instead, and nothing else.
    `files`: where there is an array, also those of the system that make it come back, which takes seconds.
    `arrays`: every array that runs as well, named or not; of disks that are neither named nor below an array, where
    none is named, only what sysfs has: they are not opened.
    `silence_s`: how long a disk may take for an answer. `known`: refuse a file in which nothing is recognised.

    Raises Refused when none of the targets can be looked at, or when one gives no answer; with `keep_going` they are
    named in the inventory's `unseen`.
    """
    with open_sysroot(sysroot) as tree:
        looking = _Looking(tree, given, wake or bool(targets), silence_s, known)
        if not targets:
            return _inventory(looking, looking.all_disks(arrays=arrays), files=files)
        found = looking.named(targets)
        disks = [one for one in found if isinstance(one, Disk)]
        refused = [(name, one) for name, one in zip(targets, found, strict=True) if isinstance(one, Refused)]
        if not keep_going:
            if not disks:
                refuse(objection_of(refusal) for _, refusal in refused)
            late = [(disk, one) for disk in disks for one in disk.unseen if one.gap is Gap.NO_ANSWER]
            refuse((f"{disk.path} {one.why}", one.hint) for disk, one in late)
        unique = {disk.path: disk for disk in disks}
        for disk in looking.arrays() if arrays else ():
            unique.setdefault(disk.path, disk)
        images = tuple(disk for disk in unique.values() if disk.kind is DiskKind.IMAGE)
        blocks = [disk for disk in unique.values() if disk.kind is not DiskKind.IMAGE]
        seen = _inventory(looking, blocks, files=files) if blocks else Inventory(())
        unseen = tuple(Unseen(name, str(refusal), refusal.hint, Gap.DISK) for name, refusal in refused)
        return replace(seen, disks=(*seen.disks, *images), unseen=unseen)


@dataclass(frozen=True, slots=True)
class _Looking:
    """`wake`: disks that are asleep, too; those that the user named are, because a name is a wish."""

    tree: Tree
    given: Given
    wake: bool
    silence_s: float
    known: bool

    def all_disks(self, *, arrays: bool) -> list[Disk]:
        """A device whose attributes cannot even be listed in time does not keep the others from being looked at."""
        blocks = self._in_time(lambda _: list_blocks(self.tree)) or list_names(self.tree)
        if not arrays:
            return self._look_at(blocks)
        needed = self._in_time(lambda _: _arrays_and_below(self.tree, blocks)) or frozenset()
        opened = self._look_at([block for block in blocks if block.name in needed])
        return opened + self._look_at([block for block in blocks if block.name not in needed], _NOT_NEEDED)

    def arrays(self) -> list[Disk]:
        """Those that run, as sysfs and udev know them."""
        blocks = self._in_time(lambda _: [one for one in list_blocks(self.tree) if _is_array(self.tree, one)])
        return self._look_at(blocks or [], _NOT_NEEDED)

    def system(self, disks: Sequence[Disk]) -> tuple[System | None, tuple[Unseen, ...]]:
        """Only where there is an array: images are unpacked for it."""
        from aligntool.probe.unfinished import FOLDER

        if not any(disk.array for disk in disks) and not self.tree.names(FOLDER):
            return None, ()
        from aligntool.probe.system import read_system

        seen = self._in_time(lambda _: read_system(self.tree), _FILES_S)
        why = f"did not answer within {_FILES_S:g} s"
        return seen, () if seen else (
            Unseen("mdadm.conf, fstab and initramfs", why, "sudo dmesg", Gap.NO_ANSWER),
        )

    def named(self, targets: Sequence[str]) -> list[Disk | Refused]:
        """Each target, or why it cannot be looked at. Every one is tried: all reasons are reported at once."""
        looker = self._looker()
        jobs = [partial(self._target, target, looker) for target in targets]
        found = self._all_in_time(jobs)
        late = [index for index, one in enumerate(found) if one is None]
        again = self._all_in_time(
            [partial(self._target, targets[index], looker, closed=self._no_answer()) for index in late]
        )
        for index, one in zip(late, again, strict=True):
            found[index] = one or Refused(f"{targets[index]} {self._no_answer().why}")
        return [one for one in found if one is not None]

    def _target(
        self, target: str, looker: "Callable[[], Looker]", pulse: Pulse, *, closed: Unseen | None = None
    ) -> Disk | Refused:
        try:
            block = find_target(self.tree, target)
            if block is None:
                return (
                    read_image(target, self.given, pulse, known=self.known)
                    if closed is None
                    else Refused(f"{target} {closed.why}")
                )
            disk = looker().look_at(block, pulse, closed)
        except Refused as refusal:
            return refusal
        missing = tuple(replace(one, gap=Gap.DISK) if one.gap is Gap.EMPTY else one for one in disk.unseen)
        return replace(disk, unseen=missing)

    def _look_at(self, blocks: Sequence[Block], closed: Unseen | None = None) -> list[Disk]:
        """Each disk; one that gives no answer is described from sysfs alone, and by its name where that hangs, too."""
        looker = self._looker()
        found = self._all_in_time([partial(self._disk, block, looker, closed=closed) for block in blocks])
        late = [index for index, one in enumerate(found) if one is None]
        jobs = [partial(self._disk, blocks[index], looker, closed=self._no_answer()) for index in late]
        for index, one in zip(late, self._all_in_time(jobs), strict=True):
            found[index] = one or [self._bare(blocks[index])]
        return [disk for one in found for disk in one or ()]

    def _disk(
        self, block: Block, looker: "Callable[[], Looker]", pulse: Pulse, *, closed: Unseen | None
    ) -> list[Disk]:
        return [looker().look_at(block, pulse, closed)] if is_disk(self.tree, block) else []

    def _looker(self) -> "Callable[[], Looker]":
        """Once for all disks, by the process that needs it. What all of them need is imported here: no child has to."""
        from aligntool.probe.disks import Looker

        if self.tree.live:
            import aligntool.probe.layers  # noqa: F401

        def make() -> Looker:
            return Looker.of(self.tree, self.given, wake=self.wake)

        return cache(make)

    def _no_answer(self) -> Unseen:
        why = f"did not answer within {self.silence_s:g} s"
        return Unseen(WHAT, why, "sudo dmesg", Gap.NO_ANSWER)

    def _bare(self, block: Block) -> Disk:
        path = f"/dev/{block.name}"
        return Disk(block.name, path, DiskKind.OTHER, None, IoLimits(), unseen=(self._no_answer(),))

    def _in_time(self, job: Job[T], silence_s: float | None = None) -> T | None:
        """A captured tree is files, and read in this process."""
        return answer_of(job, silence_s or self.silence_s) if self.tree.live else job(SILENT)

    def _all_in_time(self, jobs: Sequence[Job[T]]) -> list[T | None]:
        if not self.tree.live:
            return [job(SILENT) for job in jobs]
        answers = dict(answers_of(jobs, self.silence_s))
        return [answers[index] for index in range(len(jobs))]


def _is_array(tree: Tree, block: Block) -> bool:
    return tree.exists(f"{block.path}/md")


def _arrays_and_below(tree: Tree, blocks: Sequence[Block]) -> frozenset[str]:
    """The kernel's names of arrays that run and of the disks that they stand on."""
    running = [block for block in blocks if _is_array(tree, block)]
    below = {name for block in running for name in names_at_the_bottom(tree, block.path)}
    return frozenset(below | {block.name for block in running})


def _inventory(looking: _Looking, found: Sequence[Disk], *, files: bool) -> Inventory:
    from aligntool.probe.mapped import without_mapped_partitions
    from aligntool.probe.pcie import find_adapters, find_uplinks

    disks = without_mapped_partitions(found)
    system, unseen = looking.system(disks) if files else (None, ())
    adapters, captured = find_adapters(looking.tree), not looking.tree.live
    return Inventory(disks, find_uplinks(disks), adapters, unseen, system, captured)
