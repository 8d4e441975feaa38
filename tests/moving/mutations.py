"""Deliberate bugs in the mover, the journal and the table writer: each must be caught by the simulated power cuts.

A bug is a piece of source, the same piece gone wrong, and what goes wrong. docs/crash-safety.md lists them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    file: str
    right: str
    wrong: str
    why: str  # what a power cut makes of it


MUTATIONS = (
    Mutation(
        "data is not flushed before the record", "aligntool/realign/steps.py",
        "        device.flush()\n", "        pass\n",
        "the record says that a batch is at its new place, and half of it was in the drive's cache",
    ),
    Mutation(
        "the record is written before the copy", "aligntool/realign/steps.py",
        "        disk.together(load.writing())\n",
        "        record(load.after)\n        disk.together(load.writing())\n",
        "a batch that was cut short is taken for done",
    ),
    Mutation(
        "the record is not flushed", "aligntool/realign/journal.py",
        "                continue\n            self._device.flush()\n", "                continue\n",
        "a batch is done again after the next one has overwritten its source",
    ),
    Mutation(
        "both copies of a record are written in one go", "aligntool/realign/journal.py",
        "            self._device.flush()\n        if len(failed) == len(COPIES):\n            raise failed[0]\n",
        "        if len(failed) == len(COPIES):\n            raise failed[0]\n        self._device.flush()\n",
        "a cut tears both, and nothing tells whether a newer record is lost",
    ),
    Mutation(
        "a record that both copies have lost is passed over", "aligntool/realign/move.py",
        "    if journal.lost_slots:\n", "    if False:\n",
        "the work goes on from an older record, and does a batch again whose source is overwritten",
    ),
    Mutation(
        "a record that a cut left in one copy stays there alone", "aligntool/realign/journal.py",
        "        self.record(self.position)\n", "        pass\n",
        "that copy is damaged, and the older record of the other one is taken for the newest",
    ),
    Mutation(
        "a complete move is parked again", "aligntool/realign/standing.py",
        "        if complete or (table", "        if (table",
        "the journal is closed beside a parked table, and nothing leads back",
    ),
    Mutation(
        "a table that another program made is written over without being asked", "aligntool/realign/move.py",
        "    if stands is Standing.CHANGED and not restore_table:\n", "    if False:\n",
        "partitions that were made meanwhile are gone",
    ),
    Mutation(
        "the resume leaves a batch out", "aligntool/realign/steps.py",
        "islice(self._schedule(step).batches(), first, None)",
        "islice(self._schedule(step).batches(), first + bool(first), None)",
        "the bytes of one batch stay at the old place",
    ),
    Mutation(
        "a window is longer than the distance", "aligntool/realign/schedule.py",
        "_windows(lane.runs, lanes.window)", "_windows(lane.runs, lanes.window * 2)",
        "a batch overwrites its own source, and cannot be done again",
    ),
    Mutation(
        "the foot of a lane is not stashed", "aligntool/realign/schedule.py",
        "found.append(Lane(tuple(body), tuple(foot)))", "found.append(Lane(tuple(lane), ()))",
        "the lane behind writes over it",
    ),
    Mutation(
        "a staged window leaves the stash in the batch that fills it", "aligntool/realign/schedule.py",
        "        yield tuple(into)\n        yield tuple(out)\n", "        yield tuple(into + out)\n",
        "the batch reads what it has not written yet",
    ),
    Mutation(
        "lanes meet at gaps that are too short", "aligntool/realign/schedule.py",
        "chain[-1].start - run.end >= distance", "chain[-1].start - run.end >= distance // 2",
        "two lanes of one batch write over each other's sources",
    ),
    Mutation(
        "the way back takes the batches in the order in which they were done", "aligntool/realign/steps.py",
        "in schedule.backwards(done))", "in reversed(list(schedule.backwards(done))))",
        "a batch is put back over sources that the next one still needs",
    ),
    Mutation(
        "holes are passed over without a record", "aligntool/realign/steps.py",
        "after = there[-1].after if there else load.after", "after = load.after",
        "a hole is copied again after its source has been written over",
    ),
    Mutation(
        "a hole is passed over whatever its target holds", "aligntool/realign/steps.py",
        " and piece.to.is_hole(piece.target, piece.length)", "",
        "old bytes stay where zeros belong",
    ),
    Mutation(
        "signatures are hidden last", "aligntool/realign/held.py",
        "    _hide(device, start, view, signs_of(view, *others))\n"
        "    _write(device, start, view.held, _blank(view.held, view.sign))\n    device.flush()\n",
        "    _write(device, start, view.held, _blank(view.held, view.sign))\n    device.flush()\n"
        "    _hide(device, start, view, signs_of(view, *others))\n",
        "blkid recognises a file system that has lost its head",
    ),
    Mutation(
        "hiding is not flushed before the rest is overwritten", "aligntool/realign/held.py",
        "    device.flush()\n    if _still_there", "    if _still_there",
        "the markers land and the hiding does not",
    ),
    Mutation(
        "whether it is hidden is not looked at", "aligntool/realign/held.py",
        "    if _still_there(device, start, view, vital):\n", "    if False:\n",
        "a write that the drive lost leaves something to recognise",
    ),
    Mutation(
        "redundant signatures are not hidden before the one that counts", "aligntool/realign/held.py",
        "    if signs.redundant:\n"
        "        _write_sectors(device, start, view, _blank(view.held, view.sign), signs.redundant)\n"
        "        _check_hidden(device, start, view, signs.vital - frozenset().union(*signs.last))\n",
        "",
        "blkid recognises what was left over from before",
    ),
    Mutation(
        "signatures are put back in one go with the rest", "aligntool/realign/held.py",
        "    _write(device, start, view.held, veiled(view, signs.redundant, hidden))\n"
        "    _check(device, start, view.held, veiled(view, signs.redundant, hidden))\n",
        "    _write(device, start, view.held, veiled(view, signs.redundant, hidden))\n",
        "blkid recognises a file system that has no head yet",
    ),
    Mutation(
        "redundant signatures are put back with the rest", "aligntool/realign/held.py",
        "    signs = signs_of(view, *others)\n    hidden",
        "    signs = signs_of(view, *others)\n    signs = Signs(frozenset(), signs.last, signs.vital)\n    hidden",
        "blkid recognises what was left over from before",
    ),
    Mutation(
        "a whole sector is changed where one byte is enough", "aligntool/realign/held.py",
        "                changed[at - extent.start] = view.sign[at % size]\n",
        "                here = (at - extent.start) // size * size\n"
        "                changed[here : here + size] = view.sign\n",
        "a torn sector shows a signature whose superblock is not whole",
    ),
    Mutation(
        "what was put back is not read before it can be recognised", "aligntool/realign/held.py",
        "    if read_held(device, start, held) != tuple(content):\n", "    if False:\n",
        "blkid recognises a file system of which the drive lost a write",
    ),
    Mutation(
        "nothing is parked", "aligntool/realign/steps.py",
        "            case ParkEntries():\n"
        "                write_table(self.device, contents.images, TableState.PARKED)\n",
        "            case ParkEntries():\n                pass\n",
        "a kernel offers a partition that is half moved",
    ),
    Mutation(
        "the table is rewritten before the content is put back", "aligntool/realign/steps.py",
        "                release(self.device, step.target.start, *self._at_target(step))\n",
        "                write_table(self.device, contents.images, TableState.AFTER)\n"
        "                release(self.device, step.target.start, *self._at_target(step))\n",
        "a kernel offers a partition without its head",
    ),
    Mutation(
        "both copies of the GPT are written in one go", "aligntool/realign/table.py",
        "            device.write(sectors.at, sectors.data)\n        device.flush()\n",
        "            device.write(sectors.at, sectors.data)\n",
        "a cut tears both, and the disk has no table",
    ),
    Mutation(
        "EBRs are written after the MBR that shows them", "aligntool/realign/table.py",
        "    for group in writing:", "    for group in reversed(writing):",
        "a kernel reads an EBR chain that lies under data",
    ),
    Mutation(
        "the hidden-sectors field is not changed", "aligntool/realign/steps.py",
        "patch.after.to_bytes", "patch.before.to_bytes",
        "the boot sector says that the partition is where it was",
    ),
    Mutation(
        "runs that reach into the held head are cut short", "aligntool/realign/move.py",
        "                start = held.end\n", "                start = held.end + 512\n",
        "the sector behind the held head stays at the old place",
    ),
)  # fmt: skip
