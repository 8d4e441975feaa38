"""Deliberate bugs in the mover, the journal and the table writer: the simulated power cuts must catch each of them.

A bug is a piece of source, its broken version, and the consequence. docs/crash-safety.md names some.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    file: str
    right: str
    wrong: str
    why: str  # the consequence of a power cut
    caught_by: str  # a test below tests/mover that fails with it, within seconds


EVERY_CUT = "test_simulated_cuts.py::test_a_cut_before_every_operation_loses_nothing"
JOINT_FAULT = "test_joint_faults.py::test_a_record_survives_a_cut_and_a_bad_sector_in_every_combination"
OLD_COPIES = "test_old_copies.py::test_a_disk_and_a_file_of_different_moments_are_refused_or_lose_nothing"
MUTATIONS = (
    Mutation(
        "data is not flushed before the record", "aligntool/mover/steps.py",
        "        device.flush()\n", "        pass\n",
        "the record says that a batch is at its new place, and half of it was in the drive's cache",
        f"{EVERY_CUT}[gpt-3]",
    ),
    Mutation(
        "the record is written before the copy", "aligntool/mover/steps.py",
        "        disk.run_parallel(load.writing())\n",
        "        record(load.after)\n        disk.run_parallel(load.writing())\n",
        "a batch that was cut short is taken for done",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "the record is not flushed", "aligntool/mover/journal.py",
        "            raise failed[0]\n        self._device.flush()\n", "            raise failed[0]\n",
        "a batch is done again after the next one has overwritten its source",
        f"{EVERY_CUT}[gpt-2]",
    ),
    Mutation(
        "both slots of a record are written without a flush in between", "aligntool/mover/journal.py",
        "            self._write_to_either(slot, sealed)\n",
        "            for copy in COPIES:\n                with suppress(OSError):\n"
        "                    self._device.write(self._offset(copy, slot), sealed)\n"
        "        self._device.flush()\n",
        "a cut tears all four sectors, and nothing tells how far the move got",
        f"{JOINT_FAULT}[0]",
    ),
    Mutation(
        "a record is written first to the slot that the next one does not overwrite", "aligntool/mover/journal.py",
        "(record.next_slot, record.slot)", "(record.slot, record.next_slot)",
        "a cut and one bad sector hide whether a newer record is lost",
        f"{JOINT_FAULT}[0]",
    ),
    Mutation(
        "a record that both copies have lost is ignored", "aligntool/mover/journal_search.py",
        "    if journal.lost_slots:\n", "    if False:\n",
        "the work goes on from an older record, and does a batch again whose source is overwritten",
        "test_damaged_records.py::test_with_a_slot_damaged_in_both_copies_nothing_continues_from_an_older_record[gpt-0]",
    ),
    Mutation(
        "content that is visible is written again by a repeated step", "aligntool/mover/steps.py",
        "        if in_flight.is_showing(self.journal, index, back=back) and is_visible(",
        "        if back is None and is_visible(",
        "what a system has written to it since is overwritten",
        "test_visible_content.py::test_what_a_system_writes_to_visible_content_is_kept[gpt-resume-saved_sector]",
    ),
    Mutation(
        "a record that a cut left in one sector is not written to the others", "aligntool/mover/journal.py",
        "                self._write_damaged_sectors(part)\n        self._write_newest_everywhere()\n",
        "                self._write_damaged_sectors(part)\n",
        "that sector is damaged, and the older record of the other ones is taken for the newest",
        "test_damaged_records.py::test_a_record_that_a_cut_left_in_one_copy_is_completed_before_the_move_continues[1]",
    ),
    Mutation(
        "an older copy of a journal file is followed", "aligntool/mover/numbered_marker.py",
        "    if at is not None and _is_of_other_age(", "    if at is None and _is_of_other_age(",
        "batches are repeated whose source is overwritten",
        f"{OLD_COPIES}[0]",
    ),
    Mutation(
        "the marker names a record only after it is written", "aligntool/mover/numbered_marker.py",
        "    _write(device, at, _numbered(sign, newest, following), position)\n", "",
        "a file of one record earlier passes for the newest one",
        "test_old_copies.py::test_a_disk_and_a_file_of_the_same_moment_are_never_refused[0]",
    ),
    Mutation(
        "the old table is written while content is still hidden", "aligntool/mover/steps.py",
        "                self._complete_sources()\n", "",
        "a partition is shown without its superblock",
        f"{OLD_COPIES}[0]",
    ),
    Mutation(
        "a record of version 0.1.0 is not written to the other slot before the next one",
        "aligntool/mover/journal.py",
        "        journal._is_everywhere = False", "        journal._is_everywhere = True",
        "a cut tears both sectors that hold the newest record",
        "test_joint_faults.py::test_a_journal_of_version_1_is_never_continued_from_an_older_record[1]",
    ),
    Mutation(
        "a complete move is parked again", "aligntool/mover/disk_state.py",
        "        if complete or (committed", "        if (committed",
        "the journal is closed beside a parked table, and nothing leads back",
        "test_lost_tables.py::test_a_complete_move_is_never_parked_again",
    ),
    Mutation(
        "another program's table is overwritten without --restore-table", "aligntool/mover/changed_disk.py",
        "    if state is disk_state.DiskState.CHANGED and not restore_table:\n", "    if False:\n",
        "partitions that were made meanwhile are gone",
        "test_lost_tables.py::test_a_larger_clone_whose_backup_gpt_was_moved_gets_the_table_of_the_journal[resume]",
    ),
    Mutation(
        "the resume omits a batch", "aligntool/mover/steps.py",
        "islice(schedule_of(self.journal, step).batches(), first, None)",
        "islice(schedule_of(self.journal, step).batches(), first + bool(first), None)",
        "the bytes of one batch stay at the old place",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "a window is longer than the distance", "aligntool/mover/schedule.py",
        "_windows(strip.runs, lanes.window)", "_windows(strip.runs, lanes.window * 2)",
        "a batch overwrites its own source, and cannot be done again",
        f"{EVERY_CUT}[gpt-1]",
    ),
    Mutation(
        "the foot of a copy strip is not stashed", "aligntool/mover/schedule.py",
        "found.append(CopyStrip(tuple(body), tuple(foot)))", "found.append(CopyStrip(tuple(strip), ()))",
        "the lane behind writes over it",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "a staged window leaves the stash in the batch that fills it", "aligntool/mover/schedule.py",
        "        yield tuple(into)\n        yield tuple(out)\n", "        yield tuple(into + out)\n",
        "the batch reads what it has not written yet",
        f"{EVERY_CUT}[gpt-2]",
    ),
    Mutation(
        "copy strips are divided at gaps that are too short", "aligntool/mover/schedule.py",
        "chain[-1].start - run.end >= distance", "chain[-1].start - run.end >= distance // 2",
        "two lanes of one batch write over each other's sources",
        "test_simulated_cuts.py::test_many_cuts_in_a_row_lose_nothing[12]",
    ),
    Mutation(
        "a rollback undoes the batches in the order in which they were done", "aligntool/mover/steps.py",
        "in schedule.backwards(done))", "in reversed(list(schedule.backwards(done))))",
        "a batch is put back over sources that the next one still needs",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "holes are skipped without a record", "aligntool/mover/steps.py",
        "after = empty[-1].after if empty else load.after", "after = load.after",
        "a hole is copied again after its source has been written over",
        "test_simulated_copies.py::test_a_copy_can_be_continued_or_undone_from_every_record[8]",
    ),
    Mutation(
        "a hole is skipped although its target is not a hole", "aligntool/mover/steps.py",
        " and copy.to.is_hole(copy.target, copy.length)", "",
        "old bytes stay where zeros belong",
        f"{EVERY_CUT}[gpt-2]",
    ),
    Mutation(
        "signatures are hidden last", "aligntool/mover/hidden_signatures.py",
        "    _hide(device, start, view, signature_bytes(view, *others))\n"
        "    _write_ranges(device, start, view.held, _markers(view.held, view.sign))\n    device.flush()\n",
        "    _write_ranges(device, start, view.held, _markers(view.held, view.sign))\n    device.flush()\n"
        "    _hide(device, start, view, signature_bytes(view, *others))\n",
        "blkid recognises a file system that has lost its head",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "hiding is not flushed before the rest is overwritten", "aligntool/mover/hidden_signatures.py",
        "    device.flush()\n    if _is_still_readable", "    if _is_still_readable",
        "the markers land and the hiding does not",
        f"{EVERY_CUT}[gpt-2]",
    ),
    Mutation(
        "hiding is not verified", "aligntool/mover/hidden_signatures.py",
        "    if _is_still_readable(device, start, view, vital):\n", "    if False:\n",
        "a write that the drive lost leaves something to recognise",
        "test_lost_writes.py::test_a_lost_write_is_detected_before_incomplete_content_can_be_recognised[gpt-0]",
    ),
    Mutation(
        "redundant signatures are not hidden before the deciding one", "aligntool/mover/hidden_signatures.py",
        "    if signs.redundant:\n"
        "        _write_sectors(device, start, view, _markers(view.held, view.sign), signs.redundant)\n"
        "        _check_hidden(device, start, view, signs.vital - frozenset().union(*signs.last))\n",
        "",
        "blkid recognises what was left over from before",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "all signatures are restored together with the rest", "aligntool/mover/hidden_signatures.py",
        "    write_verified(device, start, view.held, with_markers(view, signs.redundant, hidden))\n",
        "    _write_ranges(device, start, view.held, with_markers(view, signs.redundant, hidden))\n",
        "blkid recognises a file system that has no head yet",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "redundant signatures are restored together with the rest", "aligntool/mover/hidden_signatures.py",
        "    signs = signature_bytes(view, *others)\n    hidden: Bytes",
        "    signs = signature_bytes(view, *others)\n"
        "    signs = SignatureBytes(frozenset(), signs.last, signs.vital)\n    hidden: Bytes",
        "blkid recognises what was left over from before",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "a whole sector is changed instead of one byte", "aligntool/mover/hidden_signatures.py",
        "                changed[at - extent.start] = view.sign[at % size]\n",
        "                here = (at - extent.start) // size * size\n"
        "                changed[here : here + size] = view.sign\n",
        "a torn sector shows a signature whose superblock is not whole",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "restored content is not read back before it can be recognised", "aligntool/mover/hidden_signatures.py",
        "    if read_saved(device, start, held) != tuple(content):\n", "    if False:\n",
        "blkid recognises a file system of which the drive lost a write",
        "test_lost_writes.py::test_a_lost_write_is_detected_before_incomplete_content_can_be_recognised[gpt-0]",
    ),
    Mutation(
        "nothing is parked", "aligntool/mover/steps.py",
        "            case steps.ParkEntries():\n"
        "                write_table(self.device, self._images(TableState.BEFORE), TableState.PARKED)\n",
        "            case steps.ParkEntries():\n                pass\n",
        "a kernel offers a partition that is half moved",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "the table is rewritten before the content is restored", "aligntool/mover/steps.py",
        "                self._show(index, step.target.start, self._views_at_target(step))\n",
        "                write_table(self.device, self._images(TableState.AFTER), TableState.AFTER)\n"
        "                self._show(index, step.target.start, self._views_at_target(step))\n",
        "a kernel offers a partition without its head",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "both copies of the GPT are written without a flush in between", "aligntool/mover/table.py",
        "            device.write(sectors.at, sectors.data)\n        device.flush()\n",
        "            device.write(sectors.at, sectors.data)\n",
        "a cut tears both, and the disk has no table",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "EBRs are written after the MBR that shows them", "aligntool/mover/table.py",
        "    for group in writing:", "    for group in reversed(writing):",
        "a kernel reads an EBR chain that lies under data",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "the hidden-sectors field is not changed", "aligntool/mover/steps.py",
        "patch.after.to_bytes", "patch.before.to_bytes",
        "the boot sector says that the partition is where it was",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "runs that reach into the saved head are cut short", "aligntool/mover/journal_contents.py",
        "                start = held.end\n", "                start = held.end + 512\n",
        "the sector behind the held head stays at the old place",
        f"{EVERY_CUT}[gpt-0]",
    ),
    Mutation(
        "markers are written over content that is not hidden yet", "aligntool/mover/table.py",
        "replace(self, parked=self.parked[:1])", "self",
        "blkid recognises a file system on a whole disk that has lost its first sectors",
        "test_whole_disk_cuts.py::test_a_cut_before_every_operation_loses_nothing[ext2-gpt-False-1048576]",
    ),
    Mutation(
        "data that a system wrote after a cut are mistaken for the journal's", "aligntool/mover/whole_disk.py",
        "released and visible", "False",
        "the superblock of the journal is written over a newer one",
        "test_whole_disk_cuts.py::test_writes_of_a_system_after_a_cut_are_kept[True-gpt]",
    ),
)  # fmt: skip
