"""A Windows on an MBR disk finds its partitions after a move: its boot store and its drive letters are updated."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.change import Plan, from_json
from aligntool.mover.context import MoveContext
from aligntool.mover.journal_search import find_journal
from aligntool.mover.move import realign, resume, rollback
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.steps import CopyContent, HoldContent, ReleaseContent
from aligntool.units import Extent
from tests.conftest import run
from tests.mover import command_line, windows
from tests.mover.entries import entries
from tests.mover.loop_mounts import mounted
from tests.mover.planned_disks import Planned
from tests.mover.simulated_disk import SimulatedDisk, until_cut
from tests.mover.test_simulated_cuts import NoKernel, leads_to_new
from tests.mover.windows import SECTOR, Values
from tests.thorough import THOROUGH

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools(
        "hivexml", "hivexsh", "mkntfs", "ntfs-3g", "ntfscat", "ntfsinfo", "partclone.ntfs", "sfdisk"
    ),
]

SIZE = 6000  # sectors of a partition; not a multiple of a cluster
BOOT, WINDOWS = 2048, 8192 + 63  # the partition that stays, and the one that moves
STORE, SYSTEM = "Boot/BCD", "Windows/System32/config/SYSTEM"


def put(store: Path | None, system: Path | None) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        for path, source in ((STORE, store), (SYSTEM, system)):
            if source:
                (folder / path).parent.mkdir(parents=True)
                (folder / path).write_bytes(source.read_bytes())

    return fill


def hives(folder: Path, windows_at: int, boot_at: int) -> tuple[Path, Path]:
    store = windows.make_hive(folder / "BCD", windows.boot_store(windows_at * SECTOR, boot_at * SECTOR))
    values = {
        **windows.mounted_devices(windows_at * SECTOR, boot_at * SECTOR),
        **windows.elsewhere(windows_at * SECTOR),
    }
    return store, windows.make_hive(folder / "SYSTEM", values)


def two_partitions(folder: Path, *, label: str = "dos", change: Callable[[Path], None] = lambda _: None) -> Path:
    """Make the partition with the boot store on the grid, and that with Windows off it. `change`:
    applied to the hives.
    """
    made = hives(folder, WINDOWS, BOOT)
    for hive in made:
        change(hive)
    parts = {
        BOOT: windows.make_ntfs(folder / "boot.ntfs", SIZE, put(made[0], None), start=BOOT),
        WINDOWS: windows.make_ntfs(folder / "windows.ntfs", SIZE, put(None, made[1]), start=WINDOWS),
    }
    windows.make_disk(folder / "disk.img", parts, 22000, label=label)
    return folder / "disk.img"


def file_on(image: Path, start: int, path: str) -> bytes:
    """Return a file as ntfscat reads it, of the partition that begins at this sector."""
    content = image.with_suffix(".part")
    with image.open("rb") as file:
        file.seek(start * SECTOR)
        content.write_bytes(file.read(SIZE * SECTOR))
    target = image.with_suffix(".file")
    with mounted(content, "ntfs-3g", "-o", "ro") as folder:
        target.write_bytes((folder / path).read_bytes())
    return target.read_bytes()


def values_on(image: Path, start: int, path: str) -> Values:
    file_on(image, start, path)
    return windows.read_hive(image.with_suffix(".file"))


def plan_of(image: Path) -> Plan:
    command_line.aligntool("plan", "realign", image, "-o", image.with_suffix(".json"))
    return from_json(image.with_suffix(".json").read_text())


def new_start(image: Path, number: int) -> int:
    return entries(image.read_bytes(), SECTOR)[number].extent.start // SECTOR


def test_only_values_that_contain_a_changed_start_differ_afterwards(tmp_path: Path) -> None:
    image = two_partitions(tmp_path)
    before = values_on(image, BOOT, STORE), values_on(image, WINDOWS, SYSTEM)
    old = file_on(image, BOOT, STORE)
    said = command_line.realign(image)
    assert "contain starts that change; they will be updated; values changed: 4" in " ".join(said.split())
    new = new_start(image, 2)
    assert (new * SECTOR, new_start(image, 1)) == (windows.FORMER, BOOT)
    assert "DosDevices\\F: already names its new start" in " ".join(said.split())
    expected = windows.changed_in_store(new * SECTOR, BOOT * SECTOR)
    assert values_on(image, BOOT, STORE) == {**before[0], **expected}
    expected = windows.mounted_devices(new * SECTOR, BOOT * SECTOR)
    assert values_on(image, new, SYSTEM) == {**before[1], **expected}
    # Four elements: a changed header, checksum or sequence number would make more.
    differing = sum(one != other for one, other in zip(old, file_on(image, BOOT, STORE), strict=True))
    each = sum(
        one != two for one, two in zip(*(at.to_bytes(8, "little") for at in (WINDOWS * 512, new * 512)), strict=True)
    )
    assert differing == 4 * each
    assert "Nothing to do" in command_line.aligntool("plan", "realign", image)


def test_the_values_of_a_windows_in_a_single_partition_are_updated(tmp_path: Path) -> None:
    store, system = hives(tmp_path, 63, 63)
    content = windows.make_ntfs(tmp_path / "one.ntfs", SIZE, put(store, system), start=63)
    windows.make_disk(tmp_path / "disk.img", {63: content}, 22000)
    image = tmp_path / "disk.img"
    before = values_on(image, 63, STORE), values_on(image, 63, SYSTEM)
    command_line.realign(image)
    new = new_start(image, 1)
    assert new == 2048
    store_values, names = (
        windows.changed_in_store(new * SECTOR, new * SECTOR),
        windows.mounted_devices(new * SECTOR, new * SECTOR),
    )
    assert values_on(image, new, STORE) == {**before[0], **store_values}
    assert values_on(image, new, SYSTEM) == {**before[1], **names}


def test_a_table_by_which_a_windows_finds_its_partition_is_not_removed(tmp_path: Path) -> None:
    """The disk's signature is removed with it, so no value in its files could identify the disk any more."""
    store, system = hives(tmp_path, 63, 63)
    image = tmp_path / "disk.img"
    for hive in ((store, system), (None, None)):
        content = windows.make_ntfs(tmp_path / "one.ntfs", SIZE, put(*hive), start=63)
        windows.make_disk(image, {63: content}, 22000)
        before = image.read_bytes()
        windows_in_it = hive != (None, None)
        said = command_line.aligntool(
            "plan", "partition", "--undo", image, code=command_line.REFUSED if windows_in_it else command_line.DONE
        )
        assert (
            "name it by the disk signature and its start, and both are lost with the table" in said
        ) is windows_in_it
        assert (f"BCD {windows.LOADER} osdevice" in said) is (hive[0] is not None)
        assert ("MountedDevices \\DosDevices\\C:" in said) is (hive[1] is not None)
        assert image.read_bytes() == before
        (tmp_path / "one.ntfs").unlink()
        image.unlink()
    torn(store)
    content = windows.make_ntfs(tmp_path / "one.ntfs", SIZE, put(store, None), start=63)
    windows.make_disk(image, {63: content}, 22000)
    assert "may name this partition" in command_line.aligntool(
        "partition", "--undo", "--yes", image, code=command_line.REFUSED
    )


def test_a_hive_in_many_extents_is_updated_across_them(tmp_path: Path) -> None:
    """Clusters of one sector, each extent of the hive between those of another file, so it has a list of attributes."""
    loaders = [f"{{{number:08x}-1d81-11e3-806a-cb00aeb9e05c}}" for number in range(160)]
    old, new = 63 * SECTOR, 2048 * SECTOR
    values: Values = {("Objects", one, "Elements", "11000001", "Element"): windows.device(old) for one in loaders}
    store = windows.make_hive(tmp_path / "BCD", values)

    def fill(folder: Path) -> None:
        (folder / "Boot").mkdir()
        raw = store.read_bytes()
        with (folder / STORE).open("wb", buffering=0) as hive, (folder / "other").open("wb", buffering=0) as other:
            for at in range(0, len(raw), SECTOR):
                hive.write(raw[at : at + SECTOR])
                other.write(b"other" * 100)

    content = windows.make_ntfs(tmp_path / "one.ntfs", SIZE, fill, "-c", "512", start=63)
    assert "$ATTRIBUTE_LIST" in run("ntfsinfo", "-f", "-F", STORE, tmp_path / "one.ntfs")
    windows.make_disk(tmp_path / "disk.img", {63: content}, 22000)
    release = next(step for step in plan_of(tmp_path / "disk.img").steps if isinstance(step, ReleaseContent))
    assert {patch.length for patch in release.patches if patch.what.startswith("BCD")} == {4, 8}
    command_line.realign(tmp_path / "disk.img")
    assert set(values_on(tmp_path / "disk.img", 2048, STORE).values()) == {windows.device(new)}
    assert len(values_on(tmp_path / "disk.img", 2048, STORE)) == len(loaders)


def test_the_plan_shows_every_value_and_its_document_contains_them(tmp_path: Path) -> None:
    image = two_partitions(tmp_path)
    said = command_line.aligntool("plan", "realign", "-v", image)
    for words in ("boot entries (BCD) contain starts", "drive letters (MountedDevices) contain starts",
                  f"BCD {windows.LOADER} osdevice", "MountedDevices \\DosDevices\\C:"):  # fmt: skip
        assert words in " ".join(said.split()), said
    steps = json.loads(command_line.aligntool("plan", "realign", "-v", image, "--json").partition("\n")[2])["plan"][
        "steps"
    ]
    named = [patch["what"] for step in steps for patch in step.get("patches", ()) if "NTFS" not in patch["what"]]
    assert sorted(one.split()[0] for one in named) == ["BCD"] * 4 + ["MountedDevices"] * 2


def test_a_gpt_needs_no_update_and_the_reason_is_shown(tmp_path: Path) -> None:
    image = two_partitions(tmp_path, label="gpt")
    before = file_on(image, BOOT, STORE), file_on(image, WINDOWS, SYSTEM)
    assert "by their GUIDs" in command_line.realign(image)
    assert (file_on(image, BOOT, STORE), file_on(image, new_start(image, 2), SYSTEM)) == before


def test_values_that_name_another_disk_are_kept(tmp_path: Path) -> None:
    image = two_partitions(tmp_path)
    run("sfdisk", "-q", "--disk-id", image, f"0x{windows.SIGNATURE + 1:08x}")
    before = file_on(image, BOOT, STORE), file_on(image, WINDOWS, SYSTEM)
    command_line.realign(image)
    assert (file_on(image, BOOT, STORE), file_on(image, new_start(image, 2), SYSTEM)) == before


def dirty(hive: Path) -> None:
    raw = bytearray(hive.read_bytes())
    raw[4] += 1  # the first sequence number; the checksum follows
    raw[508] ^= raw[4] ^ (raw[4] - 1)
    hive.write_bytes(raw)


def torn(hive: Path) -> None:
    raw = bytearray(hive.read_bytes())
    raw[4096 + 35] ^= 0x80  # the length of the first cell: free
    hive.write_bytes(raw)


@pytest.mark.parametrize(
    ("change", "words"), [(dirty, "changes that are only in its log"), (torn, "is not an intact registry hive")]
)
def test_an_incomplete_hive_is_refused(tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    image = two_partitions(tmp_path, change=change)
    before = image.read_bytes()
    assert words in command_line.realign(image, code=command_line.REFUSED)
    assert image.read_bytes() == before


def test_a_hibernated_partition_that_does_not_move_is_not_written(tmp_path: Path) -> None:
    """The rule for a partition that moves also applies to one whose files have to change."""
    store, system = hives(tmp_path, WINDOWS, BOOT)

    def fill(folder: Path) -> None:
        put(store, None)(folder)
        (folder / "hiberfil.sys").write_bytes(b"HIBR" + bytes(8192))

    parts = {
        BOOT: windows.make_ntfs(tmp_path / "boot.ntfs", SIZE, fill, start=BOOT),
        WINDOWS: windows.make_ntfs(tmp_path / "windows.ntfs", SIZE, put(None, system), start=WINDOWS),
    }
    windows.make_disk(tmp_path / "disk.img", parts, 22000)
    said = command_line.realign(tmp_path / "disk.img", code=command_line.REFUSED)
    assert "partition 1: Windows is hibernated in it" in " ".join(said.split())


def test_a_compressed_hive_is_refused(tmp_path: Path) -> None:
    store, _ = hives(tmp_path, WINDOWS, BOOT)

    def fill(folder: Path) -> None:
        (folder / "Boot").mkdir()
        os.setxattr(folder / "Boot", "system.ntfs_attrib_be", bytes((0, 0, 8, 0x10)))  # compressed, a folder
        (folder / STORE).write_bytes(store.read_bytes())

    parts = {
        BOOT: windows.make_ntfs(tmp_path / "boot.ntfs", SIZE, fill, start=BOOT),
        WINDOWS: windows.make_ntfs(tmp_path / "windows.ntfs", SIZE, lambda _: None, start=WINDOWS),
    }
    windows.make_disk(tmp_path / "disk.img", parts, 22000)
    assert "is stored compressed" in " ".join(
        command_line.realign(tmp_path / "disk.img", code=command_line.REFUSED).split()
    )


# A power cut before every write, then resume or roll back.


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    image = two_partitions(tmp_path_factory.mktemp("windows"))
    found = find_plan(str(image), Request())
    stays = {number: (Extent(0, SIZE * SECTOR),) for number in (1,)}
    return Planned(image.read_bytes(), SECTOR, found.plan, {**found.runs, **stays})


def parts_after(planned: Planned, platter: bytes, *, new: bool) -> None:
    """Check that both partitions are unchanged, or have every name changed and nothing else."""
    seen = entries(platter, SECTOR)
    assert not any(entry.parked for entry in seen.values())
    copy = next(step for step in planned.plan.steps if isinstance(step, CopyContent))
    old, now = copy.source.start, (copy.target if new else copy.source).start
    assert [seen[number].extent.start for number in (1, 2)] == [BOOT * SECTOR, now]
    for step in planned.plan.steps:
        if isinstance(step, HoldContent):
            was = planned.platter[step.source.start : step.source.end]
            for each in (windows.partition, windows.mounted_device):
                was = was.replace(each(old), each(now)).replace(windows.DECOY + each(now), windows.DECOY + each(old))
            if step.partition == 2:
                for at in (0x1C, was.rindex(b"\xeb\x52\x90NTFS") + 0x1C):
                    was = was[:at] + (now // SECTOR).to_bytes(4, "little") + was[at + 4 :]
            start = now if step.partition == 2 else step.source.start
            for extent in (*planned.runs[step.partition], *step.held.ranges):
                assert platter[start + extent.start : start + extent.end] == was[extent.start : extent.end]


FIRST_SEEN = 40  # operations: before the entries are parked, a resume has nothing to resume


def recovered(how: str, platter: bytes, cut: int | None, luck: random.Random) -> bytes:
    disk = SimulatedDisk(platter, cut=cut, sector=SECTOR)
    context = MoveContext(disk, NoKernel(), None)
    if find_journal(disk, None) is not None:
        until_cut(resume(context) if how == "resume" else rollback(context))
    return disk.after_the_cut(luck, torn=False)


class Seen(NoKernel):
    """A kernel that records which partitions it shows."""

    def __init__(self) -> None:
        self.forgotten: tuple[int, ...] = ()
        self.shown: dict[int, Extent] = {}

    def forget(self, numbers: tuple[int, ...]) -> None:
        self.forgotten = numbers

    def add_absent(self, partitions: tuple[tuple[int, Extent], ...]) -> None:
        self.shown = dict(partitions)


def test_the_kernel_also_shows_the_partition_that_did_not_move_again(planned: Planned) -> None:
    kernel = Seen()
    for _ in realign(
        planned.plan, MoveContext(SimulatedDisk(planned.platter, sector=SECTOR), kernel, None), planned.runs
    ):
        pass
    assert kernel.forgotten[:2] == (1, 2)  # the others claim free space
    assert [kernel.shown[number].start for number in (1, 2)] == [BOOT * SECTOR, windows.FORMER]


def test_a_cut_anywhere_leaves_the_old_values_or_the_new_ones(planned: Planned) -> None:
    luck = random.Random(39)
    whole = SimulatedDisk(planned.platter, sector=SECTOR)
    list(realign(planned.plan, MoveContext(whole, NoKernel(), None), planned.runs))
    parts_after(planned, whole.after_the_cut(luck, torn=False), new=True)
    for cut in range(0, whole.operations, 1 if THOROUGH else 23):
        left = whole.before(cut).after_the_cut(luck, torn=False)
        for how in ("resume", "rollback"):
            again = recovered(how, left, luck.randrange(60), luck)
            done = recovered(how, again, None, luck)
            new = entries(done, SECTOR)[2].extent.start != WINDOWS * SECTOR
            assert new or how == "rollback" or cut < FIRST_SEEN or not leads_to_new(left, resumed=True)
            parts_after(planned, done, new=new)
