"""Blocks that a file system calls free are moved, too, where something else needs them: hash trees, shadow copies."""

import json
import re
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from aligntool.change import RealignGoal, Used
from aligntool.contents.ntfs import HEADER, shadow_copies
from aligntool.formats import part_types
from aligntool.linux.file_reader import FileReader
from aligntool.realign.found_plan import find_plan
from aligntool.realign.request import Request
from aligntool.units import KIB, MIB, Extent
from tests.conftest import run
from tests.mover.command_line import aligntool, realign
from tests.mover.disks import entries
from tests.mover.loop_mounts import mounted

Sparse = Callable[..., Path]
SECTOR = 512
OLD, BEHIND = 63, 20 * 2048  # sectors: where the file system is, and the partition behind it
LENGTH = 16 * MIB
RUBBISH = bytes(range(1, 256)) * (LENGTH // 255 + 1)
LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
TREE_TYPES = {"plain": LINUX, "verity": "2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5"}


def make_disk(image: Path, second: str) -> None:
    """Make an ext4 off the grid, with data in its free blocks, before a second partition: a line for sfdisk."""
    with image.open("r+b") as file:
        file.seek(OLD * SECTOR)
        file.write(RUBBISH[:LENGTH])
    make_table(image, f"start={OLD}, size={LENGTH // SECTOR}, type={LINUX}", f"start={BEHIND}, {second}")
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-E", f"nodiscard,offset={OLD * SECTOR}", image, "16m")


def make_table(image: Path, *lines: str) -> None:
    head = ("label: gpt", "unit: sectors", "grain: 512", "first-lba: 34")
    run("sfdisk", "-q", "--wipe", "never", image, stdin="\n".join((*head, *lines, "")))


def cut_out(image: Path, start: int, length: int) -> Path:
    found = image.with_name(f"{start}.img")
    with image.open("rb") as disk:
        disk.seek(start)
        found.write_bytes(disk.read(length))
    return found


def put(image: Path, content: bytes, at: int) -> None:
    with image.open("r+b") as disk:
        disk.seek(at)
        disk.write(content)


def used_of(image: Path, *, used_only: bool = False) -> Used:
    estimate = find_plan(str(image), Request(RealignGoal(used_only=used_only))).plan.estimate
    assert estimate
    (used,) = estimate.used
    return used


@pytest.mark.needs_root
@pytest.mark.needs_tools("veritysetup", "sfdisk", "mke2fs", "dumpe2fs", "e2fsck")
@pytest.mark.parametrize("superblock", [False, True], ids=["no superblock", "superblock"])
@pytest.mark.parametrize("kind", TREE_TYPES)
@pytest.mark.parametrize("used_only", [False, True], ids=["default", "--used-only"])
def test_a_hash_tree_in_another_partition_still_fits_after_a_move(
    sparse: Sparse, tmp_path: Path, superblock: bool, kind: str, used_only: bool
) -> None:
    """The tree covers free blocks, too; only the user's word that nothing needs them makes it fail."""
    image = sparse(40 * MIB)
    make_disk(image, f"size=4096, type={TREE_TYPES[kind]}")
    data, tree = cut_out(image, OLD * SECTOR, LENGTH), tmp_path / "tree"
    tree.touch()
    options = ("--data-blocks", str(LENGTH // 4096), "--salt", "5a" * 32)
    plain = options if superblock else ("--no-superblock", "--hash", "sha256", *options)
    found = re.search(r"Root hash:\s+([0-9a-f]{64})", run("veritysetup", "format", *plain, data, tree))
    assert found
    put(image, tree.read_bytes(), BEHIND * SECTOR)

    said = realign(image, *(["--used-only"] if used_only else []))
    new = entries(image)[1]["start"]
    assert new % 2048 == 0
    moved = cut_out(image, new * SECTOR, LENGTH)
    kept = cut_out(image, BEHIND * SECTOR, len(tree.read_bytes()))
    words = ("--no-superblock", *options, "--hash", "sha256") if not superblock else ()
    with pytest.raises(AssertionError, match="Verification failed") if used_only else nullcontext():
        run("veritysetup", "verify", *words, moved, kept, found[1])
    run("e2fsck", "-fn", moved)
    reason = "hash" if superblock or kind == "verity" else "the content of partition 2 is unknown"
    shown = " ".join(said.split())
    assert reason in shown and "--used-only" in shown


@pytest.mark.needs_tools("sfdisk", "mke2fs", "dumpe2fs", "e2fsck")
def test_the_plan_names_the_rule_its_cost_and_the_option_against_it(sparse: Sparse) -> None:
    image = sparse(40 * MIB)
    make_disk(image, "size=4096")
    usual = used_of(image)
    assert usual.by == "dumpe2fs" and usual.bytes < LENGTH // 2
    put(image, b"\x5a", BEHIND * SECTOR + 4095 * SECTOR)
    why = "the content of partition 2 is unknown, and may need free blocks, too"
    whole = used_of(image)
    assert LENGTH - MIB < whole.bytes <= LENGTH  # what the journal has saved is not copied
    free = f"{round((whole.bytes - usual.bytes) / MIB, 1):g}MiB"
    assert whole.by == f"everything: {why}. {free} of it is free (dumpe2fs); --used-only skips that"
    only = used_of(image, used_only=True)
    assert (only.bytes, only.by) == (usual.bytes, f"dumpe2fs, by --used-only, although {why}")


@pytest.mark.needs_tools("sfdisk", "mke2fs", "dumpe2fs", "e2fsck")
def test_free_blocks_are_not_moved_on_an_ordinary_disk(sparse: Sparse) -> None:
    """What is in them stays behind: the new place has the zeros that were there before."""
    image = sparse(60 * MIB)
    make_disk(image, f"size=2048, type={part_types.ROLES['bios-boot'].gpt}")
    put(image, RUBBISH[:MIB], BEHIND * SECTOR)
    said = realign(image, "--grain", "32MiB")
    assert entries(image)[1]["start"] == 32 * 2048 and "according to dumpe2fs" in said
    moved = cut_out(image, 32 * MIB, LENGTH).read_bytes()
    run("e2fsck", "-fn", image.with_name(f"{32 * MIB}.img"))
    assert moved.count(bytes(64 * KIB)) > 32


@pytest.mark.needs_tools("sfdisk", "mke2fs", "dumpe2fs", "e2fsck")
@pytest.mark.parametrize("given", [False, True], ids=["default", "--used-only"])
def test_a_saved_plan_keeps_the_option(sparse: Sparse, tmp_path: Path, given: bool) -> None:
    image, plan = sparse(40 * MIB), tmp_path / "plan.json"
    make_disk(image, "size=4096")
    put(image, b"\x5a", BEHIND * SECTOR)
    before = cut_out(image, OLD * SECTOR, LENGTH).read_bytes()
    aligntool("plan", "realign", image, "-o", plan, *(["--used-only"] if given else []))
    goal = json.loads(plan.read_text())["asked"]["goal"]
    assert goal.get("used_only", False) is given and ("used_only" in goal) is given
    said = aligntool("apply", plan, "--yes")
    assert ("according to dumpe2fs, by --used-only" in said) is given
    moved = cut_out(image, entries(image)[1]["start"] * SECTOR, LENGTH).read_bytes()
    assert (moved == before) is not given


@pytest.mark.needs_tools("sfdisk", "mke2fs", "dumpe2fs", "e2fsck")
@pytest.mark.parametrize("given", [False, True], ids=["default", "--used-only"])
def test_a_copy_with_another_table_has_the_free_blocks_as_well(sparse: Sparse, tmp_path: Path, given: bool) -> None:
    image, copy = sparse(40 * MIB), tmp_path / "copy.img"
    make_table(image, "start=2048, size=32768", f"start=40960, size=4096, type={TREE_TYPES['verity']}")
    put(image, RUBBISH[:LENGTH], MIB)
    for start, size in ((MIB, "16m"), (BEHIND * SECTOR, "2m")):
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-E", f"nodiscard,offset={start}", image, size)
    said = aligntool("convert", image, "-o", copy, "--yes", *(["--used-only"] if given else []))
    part = cut_out(copy, MIB, LENGTH).read_bytes()
    assert (part == cut_out(image, MIB, LENGTH).read_bytes()) is not given
    assert ("partition 1 is copied whole: partition 2 has the type Linux root verity" in said) is not given
    aligntool("convert", image, "--used-only", code=2)


@pytest.mark.needs_tools("sfdisk", "mke2fs", "dumpe2fs", "e2fsck")
def test_a_file_system_is_not_shrunk_over_blocks_that_may_be_needed(sparse: Sparse) -> None:
    """The refusal names the reason. With --used-only it is shrunk."""
    image = sparse(34 * MIB + 17 * KIB)
    first = 34
    make_table(image, f"start={first}, size=65536", f"start={first + 65536}")
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-E", f"offset={first * SECTOR}", image, "32m")
    put(image, RUBBISH[:MIB], (first + 65536) * SECTOR)
    said = aligntool("plan", "realign", image, "-p", "1", "--shrink", code=3)
    assert "the content of partition 2 is unknown" in said and "--used-only" in said
    assert "shrink" in aligntool("plan", "realign", image, "-p", "1", "--shrink", "--used-only")


# Shadow copies of Windows.

STORE = "{93e65852-5562-11e1-b115-f1cce1a3c492}{3808876b-c176-4e48-b7ae-04046e6cc752}"
FOLDER = "System Volume Information"


def make_ntfs(image: Path, fill: Callable[[Path], None]) -> None:
    """Make a disk with an NTFS off the grid, with these files."""
    make_table(image, f"start={OLD}, size={LENGTH // SECTOR}, type={part_types.BASIC_DATA}")
    volume = image.with_name("ntfs.img")
    with volume.open("wb") as file:
        file.truncate(LENGTH)
    run("mkntfs", "-q", "-F", "-f", "-H", "255", "-S", "63", "-p", str(OLD), volume)
    with mounted(volume, "ntfs-3g") as folder:
        fill(folder)
    put(image, volume.read_bytes(), OLD * SECTOR)


def files_in(folder: str, *names: str) -> Callable[[Path], None]:
    def fill(root: Path) -> None:
        (root / folder).mkdir()
        for name in names:
            (root / folder / name).write_bytes(b"")

    return fill


NAMES = [f"{{{at:08x}-0000-0000-0000-000000000000}}" for at in range(400)]  # in several blocks of the index
NTFS = ("sfdisk", "mkntfs", "ntfs-3g", "partclone.ntfs", "ntfsresize")


def found_in(image: Path) -> str:
    with image.open("rb") as file:
        reader = FileReader(file.fileno(), image.stat().st_size)
        return shadow_copies(reader, Extent(OLD * SECTOR, LENGTH))


@pytest.mark.needs_root
@pytest.mark.needs_tools(*NTFS)
@pytest.mark.parametrize(
    ("folder", "names", "is_found"),
    [
        (FOLDER, [STORE], True),
        (FOLDER, [STORE.upper()], True),
        (FOLDER.upper(), ["{3808876b-c176-4e48-b7ae-04046e6cc752}"], True),
        (FOLDER, [*NAMES, STORE], True),
        (FOLDER, ["tracking.log", "IndexerVolumeGuid"], False),
        (FOLDER, NAMES, False),
        ("Other", [STORE], False),
    ],
)
def test_files_of_shadow_copies_are_found(sparse: Sparse, folder: str, names: list[str], is_found: bool) -> None:
    """Then the whole NTFS is copied, because the shadow copies also need clusters that it calls free."""
    image = sparse(40 * MIB)
    make_ntfs(image, files_in(folder, *names))
    assert (found_in(image) == "has shadow copies (files in System Volume Information)") is is_found
    used = used_of(image)
    assert (used.bytes > LENGTH - MIB) is is_found and ("shadow copies" in used.by) is is_found
    assert used_of(image, used_only=True).bytes < LENGTH


@pytest.mark.needs_root
@pytest.mark.needs_tools(*NTFS)
def test_the_header_of_shadow_copies_on_another_volume_is_found(sparse: Sparse) -> None:
    """Layout: struct vshadow_volume_header of libvshadow, at byte 7680 of the volume."""
    image = sparse(40 * MIB)
    make_ntfs(image, lambda _: None)
    assert found_in(image) == ""
    identifier = uuid.UUID("3808876b-c176-4e48-b7ae-04046e6cc752").bytes_le
    put(image, identifier + (1).to_bytes(4, "little") + (1).to_bytes(4, "little"), OLD * SECTOR + 7680)
    assert HEADER == 7680 and found_in(image) == "has shadow copies (header of the volume)"
    put(image, RUBBISH[:MIB], OLD * SECTOR + LENGTH - 2 * MIB)  # in free clusters
    content = cut_out(image, OLD * SECTOR, LENGTH).read_bytes()
    realign(image)
    moved = cut_out(image, entries(image)[1]["start"] * SECTOR, LENGTH).read_bytes()
    assert moved[SECTOR : LENGTH - SECTOR] == content[SECTOR : LENGTH - SECTOR]  # all but the two boot sectors


@pytest.mark.needs_root
@pytest.mark.needs_tools(*NTFS)
def test_a_folder_that_cannot_be_followed_may_have_shadow_copies(sparse: Sparse) -> None:
    image = sparse(40 * MIB)
    make_ntfs(image, files_in(FOLDER, *NAMES))
    content = cut_out(image, OLD * SECTOR, LENGTH).read_bytes()
    block = content.rindex(b"INDX")  # of the folder: that of the root directory was made first
    put(image, b"\xff" * 2, OLD * SECTOR + block + 24)  # the offset of its first entry
    assert "cannot be followed" in found_in(image)
