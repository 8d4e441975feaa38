"""The content of a whole disk gets a table or loses it, and the power is cut before every operation:
nothing is lost.
"""

import itertools
import json
import random
import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pytest

from aligntool.change import MovePlan, RealignGoal
from aligntool.claims import ALL_FREE, outside
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Layer
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.left_journals import find_left
from aligntool.mover.move import resume, rollback
from aligntool.realign.request import Request, look_at
from aligntool.units import KIB, MIB, Extent, align_up
from aligntool.whole_disk.operation import WholeDisk
from aligntool.whole_disk.planning import plan_partition, with_needed_length
from tests.conftest import run
from tests.mover.libblkid import ProbedImage
from tests.mover.simulated_disk import SimulatedDisk, crashes
from tests.mover.test_simulated_cuts import NoKernel, act_on, final, recovered
from tests.run_aligntool import run_aligntool
from tests.thorough import THOROUGH, sample

pytestmark = pytest.mark.needs_tools("mke2fs", "mkswap", "mkfs.fat", "sfdisk", "cryptsetup")

EVERY = 1 if THOROUGH else 7
LUKS = (
    "cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-size 256"
    " --luks2-metadata-size 16k --luks2-keyslots-size 128k --align-payload 8 --sector-size 512 {path} -"
)
MAKE = {
    "ext2": "mke2fs -q -F -t ext2 -b 1024 {path} {kib}",
    "swap": "mkswap {path} {kib}",
    "vfat": "mkfs.fat -F 12 --mbr=n {path} {kib}",
}


UNLISTED = Extent(1728 * KIB, 64 * KIB + 512)


@dataclass(frozen=True)
class Case:
    """A disk and the change that is planned for it."""

    kind: str
    platter: bytes
    plan: MovePlan
    runs: dict[int, tuple[Extent, ...]]
    sector: int = 512

    @property
    def source(self) -> Extent:
        place = self.plan.places[0].before
        assert place is not None
        return place

    @property
    def target(self) -> Extent:
        return self.plan.places[0].after

    def act(self, platter: bytes, how: str, cut: int | None = None) -> SimulatedDisk:
        return self.act_on(SimulatedDisk(platter, cut=cut, sector=self.sector), how)

    def act_on(self, disk: SimulatedDisk, how: str) -> SimulatedDisk:
        return act_on(disk, self.plan, self.runs, how)


def make(
    folder: Path,
    kind: str,
    *,
    label: str = "gpt",
    grain: int = MIB,
    undo: bool = False,
    old: bytes = b"",
    sector: int = 512,
) -> Case:
    """Make a file system of 600 KiB on a disk of 3 MiB, with a file in it if possible, and data behind it that nothing
    lists; `old`: other content instead.
    """
    path = folder / "disk.img"
    if old:
        path.write_bytes(old)
    else:
        content = bytearray(3 * MIB)
        content[UNLISTED.start : UNLISTED.end] = random.Random(kind).randbytes(UNLISTED.length)
        path.write_bytes(content)
        run(*MAKE[kind].format(path=path, kib=600).split())
    request = Request(RealignGoal(grain=grain), sector_size=sector)
    found = WholeDisk(request, label, undo).find_plan(str(path), request)
    return Case(kind, path.read_bytes(), found.plan, found.runs, sector)


def make_luks(folder: Path) -> Case:
    """Make a LUKS2 of 600 KiB, which only a key would show: a disk of 3 MiB with noise behind it."""
    path = folder / "disk.img"
    path.write_bytes(random.Random(0).randbytes(3 * MIB))
    run(*LUKS.format(path=path).split(), stdin="secret")
    request = Request(RealignGoal(), sector_size=512)
    judged, _ = look_at(str(path), request)
    (luks,) = judged.disk.content
    start = luks.data_start or 0
    inside = (Layer("ext2", Extent(0, 600 * KIB - start), claims_size=600 * KIB - start),)
    luks = with_needed_length(luks, inside, 3 * MIB - start, judged.disk)
    judged = replace(judged, disk=replace(judged.disk, content=(luks,)))
    plan = plan_partition(judged, request.goal, "gpt", {}, ALL_FREE)
    return Case("crypto_LUKS", path.read_bytes(), plan, {1: (Extent(0, 600 * KIB),)})


def seen(platter: bytes) -> dict[str, str]:
    """Return what libblkid finds on the disk."""
    with ProbedImage(platter) as witness:
        return witness.see(0, len(platter))


def is_whole_at(case: Case, platter: bytes, place: Extent) -> bool:
    return used_bytes(case, platter, place) == used_bytes(case, case.platter, case.source)


def used_bytes(case: Case, platter: bytes, place: Extent) -> bytes:
    held = next(step.held for step in case.plan.steps if hasattr(step, "held"))
    runs = (*case.runs[case.plan.places[0].number], *held.ranges)
    content = bytearray(platter[place.start : place.end])
    if case.kind == "vfat":
        content[0x1C:0x20] = bytes(4)
    return b"".join(bytes(content[run.start : run.end]) for run in sorted(runs))


def check_seen(case: Case, platter: bytes) -> None:
    """Check that the old content is visible and complete, nothing is visible, or the new content is."""
    facts = seen(platter)
    has_table = "PTTYPE" in facts and not ("TYPE" in facts and facts["PTTYPE"] == "dos")
    if "TYPE" in facts:
        assert facts["TYPE"] == case.kind
        whole = case.target if case.target.start == 0 else case.source
        if case.kind == "vfat":  # a torn boot sector: docs/crash-safety.md, "Assumptions"
            platter = platter[:510] + case.platter[case.source.start + 510 :][:2] + platter[512:]
        if case.kind == "crypto_LUKS":  # its second header is removed first, and LUKS2 is complete without it
            platter = (
                platter[: 16 * KIB] + case.platter[case.source.start + 16 * KIB :][:512] + platter[16 * KIB + 512 :]
            )
        assert is_whole_at(case, platter, whole), "half a file system is recognised at the start of the disk"
    elif has_table:
        place = case.target if case.target.start else case.source
        assert is_whole_at(case, platter, place), "a table shows half a file system"


def end(case: Case, folder: Path, platter: bytes) -> str:
    """Return old or new; the disk must be exactly one of the two, with nothing in flight."""
    assert find_journal(SimulatedDisk(platter, sector=case.sector), None) is None
    facts = seen(platter)
    at_start = facts.get("TYPE") == case.kind
    place = case.source if at_start == (case.source.start == 0) else case.target
    assert is_whole_at(case, platter, place)
    if case.kind != "crypto_LUKS":  # all of the disk is its own
        check_unlisted(case, platter)
    if not at_start:
        check_entry(case, folder, platter, place)
    if place == case.source:
        head = align_up(16 * KIB, case.sector) + 2 * case.sector
        tail = head - case.sector
        assert platter[:head] == case.platter[:head]
        assert platter[-tail:] == case.platter[-tail:]
    return "old" if place == case.source else "new"


def check_unlisted(case: Case, platter: bytes) -> None:
    """Check that what is in no partition is as before: also the place of the journal, which was zero. The sector of its
    first or last mark may be torn by the cut itself.
    """
    listed = (Extent(0, 10 * 4096), case.source, case.target, Extent(len(platter) - 10 * 4096, 10 * 4096))
    size = case.sector
    changed = [
        at
        for place in outside((Extent(0, len(platter)),), listed)
        for at in range(place.start, place.end, size)
        if platter[at : at + size] != case.platter[at : at + size]
    ]
    assert changed == [] or (len(changed) == 1 and changed[0] % (64 * KIB) == 0)


def check_entry(case: Case, folder: Path, platter: bytes, place: Extent) -> None:
    """Check with sfdisk; for sectors that it does not support, check the fields: UEFI specification 2.10, table 5-6."""
    if case.sector == 512:
        listed, verified = said_by_sfdisk(folder, platter)
        assert f"start={place.start // 512:>12}, size={place.length // 512:>12}" in listed
        assert "No errors detected" in verified
    else:
        assert platter[case.sector :].startswith(b"EFI PART")
        first, last = struct.unpack_from("<QQ", platter, 2 * case.sector + 32)
        assert (first * case.sector, (last + 1) * case.sector) == (place.start, place.end)


@lru_cache(8)  # most disks at the end of a recovery are equal
def said_by_sfdisk(folder: Path, platter: bytes) -> tuple[str, str]:
    (folder / "seen.img").write_bytes(platter)
    return run("sfdisk", "--dump", folder / "seen.img"), run("sfdisk", "--verify", folder / "seen.img")


ALL = [*itertools.product(MAKE, ("gpt", "dos"), (False, True), (MIB, 64 * KIB))]
SOME = [
    *itertools.product(("ext2",), ("gpt", "dos"), (False, True), (MIB,)),
    *itertools.product(("ext2", "vfat"), ("gpt",), (True,), (64 * KIB,)),
    ("vfat", "dos", False, MIB),
    ("swap", "gpt", False, MIB),
]


@sample(4)
@pytest.mark.parametrize(("kind", "label", "undo", "grain"), ALL if THOROUGH else SOME)
def test_a_cut_before_every_operation_loses_nothing(
    tmp_path: Path, kind: str, label: str, undo: bool, grain: int
) -> None:
    case = make(tmp_path, kind, label=label, grain=grain)
    whole = case.act(case.platter, "realign")
    assert end(case, tmp_path, final(whole)) == "new"
    if undo:
        case = make(tmp_path, kind, undo=True, old=final(whole))
        whole = case.act(case.platter, "realign")
        assert end(case, tmp_path, final(whole)) == "new"
    check_every_cut(case, tmp_path, whole)


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_a_resume_before_anything_is_hidden_reports_the_old_state(tmp_path: Path, way: str) -> None:
    case, image = make(tmp_path, "ext2"), tmp_path / "disk.img"
    whole = case.act(case.platter, "realign")
    platters = (final(whole.before(cut)) for cut in range(whole.operations))
    image.write_bytes(next(cut for cut in platters if find_journal(SimulatedDisk(cut), None)))
    assert " to take:" not in run_aligntool(way, "--dry-run", image, code=0).stdout
    last = json.loads(run_aligntool(way, "--yes", "--json", image, code=0).stdout.splitlines()[-1])
    assert last["event"] == "end" and last["state"] == "old"
    assert image.read_bytes()[: 600 * KIB] == case.platter[: 600 * KIB]


def test_a_cut_loses_nothing_of_a_luks_of_the_length_that_its_key_shows(tmp_path: Path) -> None:
    case = make_luks(tmp_path)
    whole = case.act(case.platter, "realign")
    assert end(case, tmp_path, final(whole)) == "new"
    check_every_cut(case, tmp_path, whole)


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_cut_of_an_undo_leaves_no_key_of_a_luks_behind(tmp_path: Path, label: str) -> None:
    """Its length is not known without a key: what follows it may be its own. Its old header must not stay."""
    image = tmp_path / "old.img"
    path = tmp_path / "content.img"
    path.write_bytes(random.Random(0).randbytes(600 * KIB))
    run(*LUKS.format(path=path).split(), stdin="secret")
    start = 1536 * KIB
    image.write_bytes(bytes(start) + path.read_bytes() + bytes(3 * MIB - start - 600 * KIB))
    run("sfdisk", "-q", "--wipe", "never", image, stdin=f"label: {label}\nstart={start // 512}, size=1200\n")
    case = make(tmp_path, "crypto_LUKS", undo=True, old=image.read_bytes())
    whole = case.act(case.platter, "realign")
    assert end(case, tmp_path, final(whole)) == "new"
    for number, platter in enumerate(crashes(case.platter, whole.log, random.Random(label))):
        if number % EVERY:
            continue
        check_seen(case, platter)
        for how in ("resume", "rollback"):
            ended = final(recovered(case, platter, how, sector=case.sector))
            if end(case, tmp_path, ended) == "new":
                assert find_left(SimulatedDisk(ended)) is None


@sample(2)
@pytest.mark.parametrize("kind", ["ext2", "swap"])  # not a boot sector, which may be torn
@pytest.mark.parametrize("start", [1, 27, 32, 33, 34])
def test_a_cut_loses_nothing_of_a_partition_where_a_gpt_would_be(tmp_path: Path, kind: str, start: int) -> None:
    """Old flash has its first partition at sector 32: its content is hidden with its own deciding signature last."""
    path = tmp_path / "content.img"
    path.write_bytes(bytes(600 * KIB))
    run(*MAKE[kind].format(path=path, kib=600).split())
    image = tmp_path / "old.img"
    image.write_bytes(bytes(start * 512) + path.read_bytes() + bytes(3 * MIB - start * 512 - 600 * KIB))
    run("sfdisk", "-q", "--wipe", "never", image, stdin=f"label: dos\nstart={start}, size=1200, type=83\n")
    case = make(tmp_path, kind, undo=True, old=image.read_bytes())
    whole = case.act(case.platter, "realign")
    assert end(case, tmp_path, final(whole)) == "new"
    check_every_cut(case, tmp_path, whole)


@sample(1)
@pytest.mark.parametrize("undo", [False, True])
def test_a_cut_loses_nothing_on_sectors_of_4096_bytes(tmp_path: Path, undo: bool) -> None:
    case = make(tmp_path, "ext2", sector=4096)
    whole = case.act(case.platter, "realign")
    if undo:
        case = make(tmp_path, "ext2", undo=True, old=final(whole), sector=4096)
        whole = case.act(case.platter, "realign")
    assert end(case, tmp_path, final(whole)) == "new"
    check_every_cut(case, tmp_path, whole)


@pytest.mark.parametrize("undo", [False, True])
@pytest.mark.parametrize("place", ["first", "copied", "last"])
def test_a_bad_sector_at_the_new_place_is_rolled_back(tmp_path: Path, undo: bool, place: str) -> None:
    case = make(tmp_path, "ext2")
    if undo:
        case = make(tmp_path, "ext2", undo=True, old=final(case.act(case.platter, "realign")))
    (runs,) = case.runs.values()
    copied = next(run.end for run in sorted(runs) if run.end > 136 * KIB) - 512
    bad = [case.target.start + {"first": 0, "copied": copied, "last": 600 * KIB - 512}[place]]
    disk = SimulatedDisk(case.platter, bad=bad)
    with pytest.raises((Stopped, Refused)) as stop:
        case.act_on(disk, "realign")
    platter = final(disk)
    check_seen(case, platter)
    if isinstance(stop.value, Stopped):
        platter = final(case.act_on(SimulatedDisk(platter, bad=bad), "rollback"))
    assert end(case, tmp_path, platter) == "old"


def check_every_cut(case: Case, folder: Path, whole: SimulatedDisk) -> None:
    states = set()
    luck = random.Random(case.kind)
    for number, platter in enumerate(crashes(case.platter, whole.log, luck, sector=case.sector)):
        if number % EVERY:
            continue
        check_seen(case, platter)
        for how in ("resume", "rollback"):
            states.add((how, end(case, folder, final(recovered(case, platter, how, sector=case.sector)))))
    assert {("resume", "new"), ("rollback", "old")} <= states


def number_of(kind: str) -> int:
    return list(MAKE).index(kind)


@pytest.mark.parametrize("seed", range(200 if THOROUGH else 6))
def test_many_cuts_in_a_row_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Resume and rollback alternate, each cut again and again."""
    luck = random.Random(seed)
    kind, label, grain = luck.choice(list(MAKE)), luck.choice(("gpt", "dos")), luck.choice((64 * KIB, MIB))
    case = make(tmp_path, kind, label=label, grain=grain)
    if luck.random() < 0.5:
        case = make(tmp_path, kind, undo=True, old=final(case.act(case.platter, "realign")))
    operations = case.act(case.platter, "realign").operations
    disk = case.act(case.platter, "realign", luck.randrange(operations))
    for _ in range(luck.randint(1, 8)):
        platter = disk.after_the_cut(luck)
        check_seen(case, platter)
        disk = recovered(
            case, platter, luck.choice(("resume", "resume", "rollback")), luck.randint(0, 60), sector=case.sector
        )
    platter = disk.after_the_cut(luck)
    check_seen(case, platter)
    end(case, tmp_path, final(recovered(case, platter, luck.choice(("resume", "rollback")), sector=case.sector)))


USED = 1024 + 44  # s_mtime of an ext2 superblock: linux/fs/ext4/ext4.h


@sample(2)
@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("undo", [False, True])
def test_writes_of_a_system_after_a_cut_are_kept(tmp_path: Path, label: str, undo: bool) -> None:
    """A system that starts after a cut mounts what it sees; no recovery overwrites that with the
    journal's superblock.
    """
    case = make(tmp_path, "ext2", label=label)
    if undo:
        case = make(tmp_path, "ext2", undo=True, old=final(case.act(case.platter, "realign")))
    count = 0
    for number, platter in enumerate(
        crashes(case.platter, case.act(case.platter, "realign").log, random.Random(number_of("ext2")))
    ):
        if seen(platter).get("TYPE") != "ext2":
            continue
        used = bytearray(platter)
        used[USED : USED + 4] = b"used"
        count += 1
        for how in ("resume", "rollback"):
            try:
                done = final(recovered(case, bytes(used), how, sector=case.sector))
            except Stopped:
                done = bytes(used)
            assert seen(done)["TYPE"] == "ext2", f"cut {number}, {how}"
            assert done[USED : USED + 4] == b"used", f"cut {number}, {how}"
    assert count


@sample(3)
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("length", [512, 17 * KIB])  # a protective MBR alone, a whole GPT: UEFI specification 2.10, 5.3
def test_an_old_table_over_released_content_loses_nothing(tmp_path: Path, kind: str, length: int) -> None:
    """Only the journal has the bytes that it covers: neither direction may close it before they are back."""
    case = make(tmp_path, kind)
    case = make(tmp_path, kind, undo=True, old=final(case.act(case.platter, "realign")))
    whole = case.act(case.platter, "realign")
    stopped = 0
    for platter in crashes(case.platter, whole.log, random.Random(kind)):
        is_released = is_whole_at(case, platter, case.target) and seen(platter).get("TYPE") == kind
        if not is_released or find_journal(SimulatedDisk(platter), None) is None:
            continue
        covered = case.platter[:length] + platter[length:]
        if covered == platter:
            continue
        for way, state in ((resume, "new"), (rollback, "old")):
            disk = SimulatedDisk(covered)
            try:
                list(way(MoveContext(disk, NoKernel())))  # as long as the release is not recorded, it is repeated
            except (Refused, Stopped) as stop:
                assert disk.operations == 0, stop
                stopped += 1
                try:
                    list(way(MoveContext(disk, NoKernel()), restore_table=True))
                except Stopped:  # the old place is gone, once the journal is being closed
                    assert way is rollback and disk.operations == 0
                    continue
            assert end(case, tmp_path, final(disk)) == state
    assert stopped
