"""Data that no partition table lists: no change overwrites them, and what was zero is zero afterwards."""

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aligntool.claims import outside
from aligntool.commands import PAGE
from aligntool.formats.parked import find_parked
from aligntool.linux.block import open_read_only
from aligntool.units import KIB, MIB, Extent
from tests.by_hand import type_by_hand
from tests.conftest import run
from tests.mover.command_line import REFUSED, aligntool, begin, kill
from tests.mover.disks import content_of, data_of, entries
from tests.mover.loop_mounts import mounted

pytestmark = pytest.mark.needs_tools("sfdisk", "sgdisk", "mke2fs")

SECTOR = 512
GPT_HEAD, GPT_TAIL = 34 * SECTOR, 33 * SECTOR


def put(image: Path, at: int, content: bytes) -> None:
    with image.open("r+b") as file:
        file.seek(at)
        file.write(content)


def make(image: Path, size: int, table: str, *file_systems: Extent) -> None:
    """Make a disk with this table and an ext4 at each of these places."""
    with image.open("wb") as file:
        file.truncate(size)
    run("sfdisk", "-q", image, stdin=table)
    for extent in file_systems:
        where = ("-E", f"offset={extent.start}", image, f"{extent.length // 4096}")
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", *where)


def pieces(image: Path, place: Extent) -> Iterator[tuple[int, bytes]]:
    with image.open("rb") as file:
        yield from data_of(file.fileno(), place)


def unlisted(image: Path, *listed: Extent) -> dict[int, bytes]:
    """Return the sectors with a byte other than zero outside of the table, and of the places listed."""
    size = image.stat().st_size
    taken = (Extent(0, GPT_HEAD), Extent(size - GPT_TAIL, GPT_TAIL), *listed)
    found = {}
    for place in outside((Extent(0, size),), taken):
        for start, content in pieces(image, place):
            for at in range(0, len(content), SECTOR):
                if any(content[at : at + SECTOR]):
                    found[start + at] = content[at : at + SECTOR]
    return found


def is_parked(image: Path) -> bool:
    with open_read_only(str(image)) as device:
        return find_parked(device) is not None


def place_of(image: Path, number: int = 1) -> Extent:
    entry = entries(image)[number]
    return Extent(entry["start"] * SECTOR, entry["size"] * SECTOR)


def with_dirty_gaps(image: Path, luck: random.Random, label: str) -> Extent:
    """Make a disk with a misaligned ext4, and data behind it with islands of zeros. Return the place of the ext4."""
    start, length = 2047 * SECTOR, 40 * MIB
    make(image, 320 * MIB, f"label: {label}\nfirst-lba: 34\nstart=2047, size={length // SECTOR}\n".replace(
        "first-lba: 34\n", "" if label == "dos" else "first-lba: 34\n"), Extent(start, length))  # fmt: skip
    at = start + length + 2 * MIB
    while at < 318 * MIB:
        step = luck.choice((SECTOR, 64 * KIB, MIB, 7 * MIB, 55 * MIB))
        if luck.random() < 0.5:
            put(image, at, luck.randbytes(min(step, 2 * MIB)))
        at += step
    put(image, 8 * KIB + GPT_HEAD, luck.randbytes(3 * SECTOR))
    return Extent(start, length)


@pytest.mark.parametrize("label", ["gpt", "dos"])
@pytest.mark.parametrize("seed", range(3))
def test_a_realign_changes_no_byte_outside_of_its_places(tmp_path: Path, label: str, seed: int) -> None:
    image = tmp_path / "disk.img"
    old = with_dirty_gaps(image, random.Random(f"{label} {seed}"), label)
    before = unlisted(image, old, old.moved_to(MIB))
    assert len(before) > 100
    aligntool("realign", image, "--yes")
    assert place_of(image) == old.moved_to(MIB)
    assert unlisted(image, old, old.moved_to(MIB)) == before


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_after_a_kill_nothing_is_left_behind(tmp_path: Path, way: str) -> None:
    image = tmp_path / "disk.img"
    old = with_dirty_gaps(image, random.Random(way), "gpt")
    put(image, old.start + 20 * MIB, random.Random(1).randbytes(MIB))  # in free blocks
    before = unlisted(image, old, old.moved_to(MIB))
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = begin("realign", image, "--yes", "--rate", "2MiB", errors=errors)
        while b"copy partition" not in log.read_bytes() and process.poll() is None:
            time.sleep(0.05)  # without opening the image, which would end its lease
        kill(process)
    assert is_parked(image)
    aligntool(way, image, "--yes")
    assert place_of(image) == (old.moved_to(MIB) if way == "resume" else old)
    assert unlisted(image, old, old.moved_to(MIB)) == before
    if way == "rollback":
        assert not any(any(found) for _, found in pieces(image, Extent(old.end, MIB + old.start - old.start % MIB)))


def test_where_everything_is_taken_the_range_is_named(tmp_path: Path) -> None:
    image, luck = tmp_path / "disk.img", random.Random(5)
    old = Extent(2047 * SECTOR, 40 * MIB)
    make(image, 64 * MIB, f"label: dos\nstart=2047, size={old.length // SECTOR}\n", old)
    put(image, old.end, luck.randbytes(64 * MIB - old.end))
    before = image.read_bytes()
    said = " ".join(aligntool("realign", image, "--yes", code=REFUSED).split())
    named = f"{old.end}..{64 * MIB}"
    assert f"bytes {named} of {image} are in no partition and do not read as zero" in said
    assert f"od -A d -t x1z -N 512 -j {old.end} {image}" in said and f"--overwrite-bytes {named} --save FILE" in said
    assert image.read_bytes() == before
    saved = tmp_path / "saved.img"
    said = aligntool("realign", image, "--yes", "--overwrite-bytes", named, "--save", saved)
    assert f"lost: bytes {named} may be overwritten" in " ".join(said.split())
    assert said.index("Overwritten\n") < said.index("To copy:")
    assert f"{saved} has these bytes, at the same offsets" in " ".join(said.rpartition("Afterwards")[2].split())
    assert place_of(image) == old.moved_to(MIB)
    assert saved.read_bytes()[old.end :] == before[old.end :]
    image.write_bytes(before[: old.end] + bytes(64 * MIB - old.end))
    back: dict[str, str | int | Path] = {"FILE": saved, "DISK": image, "START": old.end, "LENGTH": 64 * MIB - old.end}
    type_by_hand(f"{PAGE}#save-first", "dd if=FILE of=DISK bs=1M iflag", **back)
    assert image.read_bytes() == before


@pytest.mark.parametrize(("name", "why"), [("no/x", "No such file or directory"), ("mine", "File exists")])
def test_a_plan_refuses_a_copy_that_cannot_be_made(tmp_path: Path, name: str, why: str) -> None:
    image = tmp_path / "disk.img"
    crowded(image, 1)
    (tmp_path / "mine").write_bytes(b"mine")
    hint = next(line for line in aligntool("plan", "realign", image, code=REFUSED).splitlines() if "--save" in line)
    words = hint.split("aligntool ")[1].split()[:-1]
    assert f"{tmp_path / name}: {why}" in aligntool(*words, tmp_path / name, code=REFUSED)


@pytest.mark.needs_root
def test_a_copy_of_named_ranges_that_fails_leaves_no_file(tmp_path: Path) -> None:
    """The next run would take a part of the copy for a file of the user."""
    image, old = tmp_path / "disk.img", Extent(2047 * SECTOR, 40 * MIB)
    make(image, 64 * MIB, f"label: dos\nstart=2047, size={old.length // SECTOR}\n", old)
    put(image, old.end, random.Random(6).randbytes(64 * MIB - old.end))
    before, named = image.read_bytes(), f"{old.end}..{64 * MIB}"
    with mounted(Path("none"), "mount", "-t", "tmpfs", "-o", "size=4m") as folder:
        saved = folder / "saved.img"
        words = ("realign", image, "--yes", "--overwrite-bytes", named, "--save", saved)
        assert f"{saved}: No space left on device" in aligntool(*words, code=REFUSED)
        assert not saved.exists() and image.read_bytes() == before
        saved.write_bytes(b"mine")
        assert f"{saved}: File exists" in aligntool(*words, code=REFUSED)
        assert saved.read_bytes() == b"mine"


SUPERBLOCK = 60 * MIB + 101 * KIB  # the first bytes of the file system that are not zero, which a refusal names


def test_if_data_are_in_the_way_of_some_the_others_are_named(tmp_path: Path) -> None:
    """One sector behind partition 5 keeps it where it is: in front of it is its EBR."""
    image = tmp_path / "a.img"
    starts = "".join(f"start={start}, size=38000\n" for start in (126, 40126, 80126))
    make(image, 80 * MIB, f"label: dos\nstart=63, size=120063, type=5\n\n\n\n{starts}")
    put(image, 38126 * SECTOR, b"data")
    said = " ".join(aligntool("realign", image, "--dry-run", code=REFUSED).split())
    assert "bytes 19520512..19521024" in said and "; partitions 6, 7 can be moved without that" in said
    hint = f"plan realign {image} -p 6 -p 7"
    assert hint in said
    aligntool(*hint.split())
    said = " ".join(aligntool("realign", image, "--sector-size", "512B", "--dry-run", code=REFUSED).split())
    assert f"plan realign {image} --sector-size 512B -p 6 -p 7" in said
    assert f"plan realign {image} --sector-size 512B --overwrite-bytes 19520512..19521024 --save FILE" in said
    before = image.read_bytes()
    aligntool("realign", image, "-p", "6", "-p", "7", "--yes")
    assert image.read_bytes()[126 * SECTOR : 38200 * SECTOR] == before[126 * SECTOR : 38200 * SECTOR]


def crowded(image: Path, runs: int) -> None:
    """Make a disk with an ext4 that would be moved by one sector, and data behind it, in so many runs."""
    place = Extent(2047 * SECTOR, 40 * MIB)
    make(image, 64 * MIB, f"label: gpt\nfirst-lba: 2047\nstart=2047, size={place.length // SECTOR}\n", place)
    behind = Extent(place.end, 64 * MIB - GPT_TAIL - place.end)
    noise = random.Random(runs).randbytes(behind.length // runs - 80 * KIB)
    for run_ in range(runs):
        put(image, behind.start + run_ * (behind.length // runs // SECTOR * SECTOR), noise)


@pytest.mark.parametrize("runs", [1, 40])
def test_a_command_that_plans_around_data_or_over_them_is_named(tmp_path: Path, runs: int) -> None:
    """Many runs of data are named as one: nobody types forty ranges."""
    image = tmp_path / "disk.img"
    crowded(image, runs)
    said = aligntool("plan", "realign", image, code=REFUSED)
    commands = [line.split("aligntool ")[1].split() for line in said.splitlines() if "aligntool plan" in line]
    options = [[word for word in words if word.startswith("--")] for words in commands]
    assert options == [["--shrink"], ["--overwrite-bytes", "--save"]]
    for words in commands:
        aligntool(*words[:-1], str(tmp_path / "saved") if "--save" in words else words[-1])


def cloned(image: Path) -> Extent:
    """Make a GPT whose partition fills its disk, copied to a disk of twice the size; return the backup."""
    place = Extent(34 * SECTOR, 100 * MIB - 67 * SECTOR)
    make(image, 100 * MIB, f"label: gpt\nfirst-lba: 34\nstart=34, size={place.length // SECTOR}\n", place)
    os.truncate(image, 200 * MIB)
    return Extent(place.end, GPT_TAIL)


def test_a_disk_copied_to_a_larger_one_has_room_once_its_gpt_ends_there(tmp_path: Path) -> None:
    """What is left of the backup is no data: nothing is planned around it."""
    image = tmp_path / "disk.img"
    old = cloned(image)
    said = " ".join(aligntool("plan", "realign", image, code=REFUSED).split())
    assert "ends 100MiB before the end of the disk" in said and "with sgdisk on" in said
    (disk,) = json.loads(aligntool("audit", "--json", image, code=1).partition("\n")[2])["disks"]
    (mend,) = (part["mend"] for part in disk["partitions"])
    assert mend["answer"] == "in-place" and "with sgdisk on" in mend["next"]
    run("sgdisk", "-e", image)
    assert any(content.strip(b"\0") for _, content in pieces(image, old))
    aligntool("realign", image, "--yes")
    assert place_of(image).start == MIB
    run("sgdisk", "-v", image)
    with content_of(image, place_of(image)) as content:
        run("e2fsck", "-f", "-n", content)


def test_a_plan_says_which_data_change_the_order_of_the_partitions(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    first, second = Extent(34 * SECTOR, 50 * MIB), Extent(50 * MIB + 35 * SECTOR, 50 * MIB)
    rows = "".join(f"start={part.start // SECTOR}, size={part.length // SECTOR}\n" for part in (first, second))
    make(image, 200 * MIB, f"label: gpt\nfirst-lba: 34\n{rows}", first, second)
    assert "order" not in aligntool("plan", "realign", image)
    put(image, second.end + 4 * SECTOR, b"data")
    said = " ".join(aligntool("plan", "realign", image).split())
    assert "order of the partitions on the disk changes" in said
    data = Extent(second.end + 4 * SECTOR, SECTOR)
    assert f"the order would stay without data that no table lists, the first at bytes {data.start}..{data.end}" in said


@pytest.mark.parametrize("change", ["other entries", "other disk", "damaged"])
def test_a_backup_that_has_what_the_gpt_in_use_has_not_is_data(tmp_path: Path, change: str) -> None:
    image = tmp_path / "disk.img"
    old = cloned(image)
    run("sgdisk", "-e", image)
    match change:
        case "other entries":
            run("sgdisk", "-a", "1", "-n", "2:300000:301000", image)
        case "other disk":
            run("sgdisk", "-G", image)
        case _:
            put(image, old.start + 9, b"damaged")
    before = list(pieces(image, old))
    aligntool("realign", image, "-p", "1", "--yes", code=None)
    assert list(pieces(image, old)) == before


@pytest.mark.parametrize("range_", ["0..1MiB", "1MiB..2MiB", "63MiB..65MiB", "60MiB..61MiB", f"{SUPERBLOCK}..61MiB"])
def test_a_range_with_a_partition_or_something_recognised_is_refused(tmp_path: Path, range_: str) -> None:
    image, old = tmp_path / "disk.img", Extent(2047 * SECTOR, 40 * MIB)
    make(image, 64 * MIB, f"label: dos\nstart=2047, size={old.length // SECTOR}\n", old)
    run("mke2fs", "-q", "-F", "-E", f"offset={60 * MIB + 100 * KIB}", image, "700k")
    aligntool("plan", "realign", image, "--overwrite-bytes", range_, code=REFUSED)
    aligntool("plan", "realign", image, "--overwrite-bytes", "50MiB..51MiB")


def test_a_conversion_does_not_put_its_journal_over_data_far_behind_the_table(tmp_path: Path) -> None:
    image, first = tmp_path / "disk.img", Extent(128 * MIB, 40 * MIB)
    make(image, 170 * MIB, f"label: gpt\nfirst-lba: 34\nstart={first.start // SECTOR}, size={first.length // SECTOR}\n",
         first)  # fmt: skip
    put(image, 72 * MIB, random.Random(1).randbytes(40 * MIB))
    before = unlisted(image, first)
    aligntool("convert", image, "--yes")
    tables = (Extent(0, 128 * KIB), Extent(170 * MIB - 128 * KIB, 128 * KIB))
    assert unlisted(image, first, *tables) == before


def test_a_copy_for_other_sectors_has_what_no_table_lists(tmp_path: Path) -> None:
    image, copy = tmp_path / "disk.img", tmp_path / "copy.img"
    first, second = Extent(MIB, 20 * MIB), Extent(40 * MIB, 20 * MIB)
    rows = "".join(f"start={part.start // SECTOR}, size={part.length // SECTOR}\n" for part in (first, second))
    make(image, 80 * MIB, f"label: gpt\n{rows}", first, second)
    noise = random.Random(1).randbytes(4 * MIB)
    put(image, 30 * MIB, noise)
    put(image, 70 * MIB, noise[:SECTOR])
    aligntool("convert", image, "-o", copy, "--yes")
    content = copy.read_bytes()
    assert content[30 * MIB : 34 * MIB] == noise and content[70 * MIB : 70 * MIB + SECTOR] == noise[:SECTOR]


def test_an_amiga_rdb_beside_an_mbr_keeps_its_files(tmp_path: Path) -> None:
    """AROS may put its table beside the MBR, and no reader here knows what it lists."""
    image, old = tmp_path / "disk.img", Extent(63 * SECTOR, 30 * MIB)
    make(image, 128 * MIB, f"label: dos\nstart=63, size={old.length // SECTOR}\n", old)
    put(image, 2 * SECTOR, b"RDSK" + bytes(508))
    put(image, 90 * MIB, random.Random(3).randbytes(28 * MIB))
    before = unlisted(image, old, old.moved_to(MIB))
    aligntool("realign", image, "--yes")
    assert unlisted(image, old, old.moved_to(MIB)) == before and place_of(image).start == MIB


@pytest.mark.needs_tools("cryptsetup")
def test_a_luks_whose_entry_was_deleted_still_opens(tmp_path: Path) -> None:
    image, old, luks = tmp_path / "disk.img", Extent(2047 * SECTOR, 30 * MIB), Extent(64 * MIB, 62 * MIB)
    make(image, 128 * MIB, f"label: gpt\nfirst-lba: 34\nstart=2047, size={old.length // SECTOR}\n", old)
    part = tmp_path / "luks"
    with part.open("wb") as file:
        file.truncate(luks.length)
    fast = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
    run("cryptsetup", "luksFormat", "-q", "--type", "luks2", *fast, part, "-", stdin="secret")
    put(image, luks.start, part.read_bytes())
    before = image.read_bytes()[luks.start : luks.end]
    aligntool("realign", image, "--yes")
    assert place_of(image).start == MIB
    after = image.read_bytes()[luks.start : luks.end]
    assert after == before
    part.write_bytes(after)
    run("cryptsetup", "open", "--test-passphrase", "--key-file", "-", part, stdin="secret")
