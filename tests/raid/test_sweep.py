"""The plan of a sweep over chunks: the arrays, their members, what is written where, and what is refused."""

import json
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.change import RaidGoal
from aligntool.cli.arrays import look_at_members
from aligntool.errors import Refused, Stopped
from aligntool.inventory import Layer
from aligntool.measure.arrays import Sweep, SweepRun, job_of, plan_sweep
from aligntool.measure.fio import fio_options
from aligntool.raid.commands import command_of, tuning_command
from aligntool.raid.levels import WORKLOADS
from aligntool.raid.measured import TEST_UUID, Load, has_test_array, loads_of
from aligntool.render.tuning import plan_command
from aligntool.steps import MakeArray
from aligntool.units import GIB, KIB, MIB, Extent
from tests.conftest import is_blank, run
from tests.contents.test_md import SIZE, member, superblock_1
from tests.raid.builders import drive, drives, goal, judged, planned
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

UUID = f"{TEST_UUID}:01234567:89abcdef"


def sweep(wanted: RaidGoal, count: int = 4, **words: object) -> Sweep:
    asked = {"repeats": 5, "runtime_s": 5.0} | words
    return plan_sweep(judged(*drives(count, size=20 * GIB)), replace(wanted, array_uuid=UUID), **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(("level", "count"), [("raid0", 2), ("raid10", 4), ("raid5", 3), ("raid6", 5)])
def test_a_test_array_differs_from_the_real_one_only_in_name_chunk_and_resync(level: str, count: int) -> None:
    """Compared with `raid plan --whole-drives --chunk` on the same drives."""
    made = sweep(goal(level), count)
    for chunk, array in made.arrays.items():
        plan = planned(goal(level, chunk=chunk, members="whole-drives", name="aligntool-tune", array_uuid=UUID),
                       *drives(count, size=20 * GIB))  # fmt: skip
        (real,) = [step for step in plan.steps if isinstance(step, MakeArray)]
        extra = () if level == "raid0" else ("--assume-clean",)
        assert set(tuning_command(array)) == {*command_of(real), *extra}
        assert (
            tuning_command(array)[-count:] == array.members == tuple(f"/dev/nvme{number}n1" for number in range(count))
        )
        assert f"--chunk={chunk // KIB}K" in tuning_command(array)


def test_the_data_begin_at_the_same_byte_as_in_an_array_on_partitions() -> None:
    """So the same flash pages are measured. Both on 4 MiB; with large members the same byte."""
    size = 960_197_124_096
    tried = plan_sweep(judged(*drives(2, size=size)), goal("raid0", array_uuid=UUID), repeats=1, runtime_s=1.0)
    plan = planned(goal("raid0"), *drives(2, size=size))
    (real,) = [step for step in plan.steps if isinstance(step, MakeArray)]
    offset = next(word for word in command_of(real) if word.startswith("--data-offset="))
    assert tried.data_offset == MIB + int(offset.removeprefix("--data-offset=").removesuffix("K")) * KIB


def test_everything_written_is_within_the_ranges_shown_as_written() -> None:
    for level, layout in (("raid0", None), ("raid10", "n2"), ("raid10", "f2"), ("raid5", None)):
        made = sweep(goal(level, layout=layout), span=GIB)
        (first, *others) = made.written
        assert first.start == made.data_offset
        assert first.length >= made.each_span + max(made.chunks)
        assert len(others) == (1 if layout == "f2" else 0)
        assert all(extent.end <= 20 * GIB for extent in made.written)
        alone = Extent(made.data_offset, made.each_span)
        assert first.contains(alone)


@pytest.mark.parametrize("size", [20 * GIB, 20 * GIB + 256 * KIB, 20 * GIB + 512 * KIB, 20 * GIB + MIB])
@pytest.mark.parametrize("copies", [2, 3])
def test_the_far_copies_of_every_array_are_within_the_ranges_shown_as_written(size: int, copies: int) -> None:
    """Where they begin: raid10.c, calc_sectors divides whole chunks by the copies, and drops what remains."""
    wanted = goal("raid10", layout=f"f{copies}", array_uuid=UUID)
    made = plan_sweep(judged(*drives(4, size=size)), wanted, repeats=1, runtime_s=1.0, span=GIB)
    assert len(made.written) == copies
    for chunk, array in made.arrays.items():
        stride = (array.data.length or 0) // chunk // copies * chunk
        for copy, extent in enumerate(made.written):
            start = made.data_offset + copy * stride
            assert extent.contains(Extent(start, made.each_span)), chunk
            assert extent.end <= made.data_offset + (array.data.length or 0) + max(made.chunks)


@pytest.mark.parametrize("layout", ["n2", "o2", "f2", "n3", "o3", "f3"])
@pytest.mark.parametrize("count", [3, 4, 5])
def test_every_copy_of_every_chunk_of_a_raid10_is_within_the_shown_ranges(layout: str, count: int) -> None:
    """Where md puts them: raid10.c, __raid10_find_phys."""
    made = sweep(goal("raid10", layout=layout), count, span=100 * MIB + 512 * KIB)
    kind, copies = layout[0], int(layout[1])
    near, far = (copies, 1) if kind == "n" else (1, copies)
    for chunk, array in made.arrays.items():
        stride = chunk if kind == "o" else (array.data.length or 0) // chunk // far * chunk
        for index in range(made.span // chunk):
            for copy in range(near):
                row = (index * near + copy) // count * (far if kind == "o" else 1)
                for number in range(far):
                    start = made.data_offset + row * chunk + number * stride
                    assert any(extent.contains(Extent(start, chunk)) for extent in made.written), (chunk, index, number)


def test_rounds_chunks_and_time_are_planned() -> None:
    made = sweep(goal("raid0"), chunks=(64 * KIB,), repeats=3, runtime_s=10.0)
    assert made.chunks == (64 * KIB, 512 * KIB) and made.recommended == 512 * KIB
    assert [number for number, _ in made.order] == [0, 0, 1, 1, 2, 2]
    loads = 6 * 3 + 4 * 2
    assert loads * 10 < made.seconds < 2 * loads * 10 + 120


def test_a_sweep_offers_no_option_to_overwrite_data() -> None:
    full = (drive(0, parts="2048+1000 ext4"), drive(1))
    with pytest.raises(Refused, match="nvme0n1 is not empty") as refused:
        plan_sweep(judged(*full), goal("raid0", wipe=("nvme0n1",)), repeats=5, runtime_s=5.0)
    assert "--wipe" not in refused.value.hint and "only empty drives" in refused.value.hint


def test_a_mirror_is_refused_because_it_has_no_chunk() -> None:
    with pytest.raises(Refused, match="RAID1 has no chunk"):
        sweep(goal("raid1"))


@pytest.mark.parametrize(
    ("label", "uuid", "ours"),
    [
        ("any:aligntool-tune", "616c6967-6e74-756e-0123-456789abcdef", True),
        ("aligntool-tune", "616c6967-6e74-756e-0123-456789abcdef", True),
        ("any:data", "616c6967-6e74-756e-0123-456789abcdef", False),
        ("any:aligntool-tune", "00000000-6e74-756e-0123-456789abcdef", False),
    ],
)
def test_a_leftover_test_array_is_recognised_by_both_its_name_and_its_uuid(label: str, uuid: str, ours: bool) -> None:
    layer = Layer("linux_raid_member", Extent(0, 4096), label=label, uuid=uuid)
    assert has_test_array(replace(drive(0), content=(layer,))) is ours


def test_a_plan_of_an_array_offers_to_clear_a_test_array_instead_of_wiping_it() -> None:
    layer = Layer("linux_raid_member", Extent(0, 4096), label="any:aligntool-tune",
                  uuid="616c6967-6e74-756e-0123-456789abcdef")  # fmt: skip
    with pytest.raises(Refused, match="nvme1n1 holds a test array") as refused:
        planned(goal("raid0"), drive(0), replace(drive(1), content=(layer,)))
    assert refused.value.hint == "sudo aligntool raid tune --clear /dev/nvme1n1"


@sample(2)
@pytest.mark.needs_tools("fio")
@pytest.mark.parametrize("workload", WORKLOADS)
def test_fio_reports_every_load_as_intended(workload: str, sparse: Callable[..., Path], tmp_path: Path) -> None:
    """fio's own "job options", and what it did."""
    image = sparse(16 * MIB)
    for number, shape in enumerate(loads_of(workload, 16 * KIB)):
        made = sweep(goal("raid0", workload=workload), runtime_s=0.1)
        job = replace(job_of(shape, str(image), 16 * MIB, made.runtime_s), direct=False)
        output = tmp_path / f"{number}.json"
        # A number of requests instead of tenths of a second, in which a busy machine completes too few of one kind.
        words = [word for word in fio_options(job) if not word.startswith(("--time_based", "--runtime", "--ramp_time"))]
        run("fio", "--output-format=json", f"--output={output}", *words, "--number_ios=400")
        document = json.loads(output.read_text())
        told = document["jobs"][0]
        options = told["job options"] | document.get("global options", {})
        assert (options["rw"], options["bs"]) == (shape.pattern, str(shape.block))
        assert (options["iodepth"], options["numjobs"]) == (str(shape.depth), str(shape.threads))
        assert (told["read"]["total_ios"] > 0) is ("read" in shape.pattern or shape.pattern == "randrw")
        assert (told["write"]["total_ios"] > 0) is ("write" in shape.pattern or shape.pattern == "randrw")
        assert (told["sync"]["total_ios"] > 0) is bool(shape.sync_every)


def test_the_command_that_uses_the_result_requests_the_measured_array() -> None:
    """A missing option would give another array, and the plan would report that the measurement does not apply."""
    asked = goal("raid10", layout="f2", bitmap="none", workload="database", database_page=8 * KIB)
    assert plan_command(sweep(asked), asked, "my chunks.json") == (
        "sudo aligntool raid plan --level 10 --workload database --layout f2 --bitmap none --database-page 8KiB "
        "--tuned 'my chunks.json' /dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1"
    )
    plain = goal("raid5")
    assert plan_command(sweep(plain, 3), plain, "chunks.json") == (
        "sudo aligntool raid plan --level 5 --workload general --tuned chunks.json "
        "/dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1"
    )


def test_the_help_states_the_purpose_of_the_result_file() -> None:
    said = " ".join(run_aligntool("raid", "tune", "--help").stdout.replace("│", " ").split())
    assert "Save the result, for `raid plan` or `raid persist --tuned FILE`; - is standard output." in said


def test_the_name_of_a_load_describes_it() -> None:
    assert Load("randrw", 16 * KIB, 16, read_share=70).name == "randrw 16KiB QD16, 70 % reads"
    assert Load("randwrite", 8 * KIB, 1, threads=4, sync_every=1).name == "randwrite 8KiB QD1 x4, synced"


# As a user types it


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["/dev/null"], 2, "no RAID level given"),
        (["--level", "1", "-o", "x", "/dev/null"], 3, "character device"),
        (["--level", "0", "--workload", "web", "x"], 2, "is not one of general"),
        (["--level", "0", "--chunks", "64K", "-o", "y", "x"], 2, "binary units"),
        (["--level", "0", "--repeats", "0", "x"], 2, "repeats"),
        (["--clear", "/nowhere/a"], 3, "/nowhere/a: No such file"),
    ],
)
def test_an_impossible_sweep_is_refused_with_the_reason(words: list[str], code: int, said: str) -> None:
    done = run_aligntool("raid", "tune", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


@pytest.mark.parametrize(("text", "said"), [(None, "cannot be read"), ("{}", "is not a result of raid tune")])
def test_an_invalid_measurement_is_refused_before_any_drive_is_read(
    text: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "chunks.json"
    if text is not None:
        file.write_text(text)
    done = run_aligntool("raid", "plan", "--level", "0", "--tuned", file, "/nowhere/a", "/nowhere/b")
    assert done.returncode == 3 and said in done.stderr and "/nowhere" not in done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mkfs.ext4", "blkid", "wipefs", "mdadm")
def test_a_dry_or_refused_run_does_not_change_the_drives(
    sparse: Callable[..., Path], loop: Callable[..., Path], tmp_path: Path
) -> None:
    one, two = loop(sparse(GIB, "a.img")), loop(sparse(GIB, "b.img"))
    told = run_aligntool("raid", "tune", "--level", "0", "--dry-run", one, two)
    assert told.returncode == 0 and "mdadm --create /dev/md/aligntool-tune" in told.stdout, told.stderr
    nowhere = run_aligntool("raid", "tune", "--level", "0", "--yes", one, two)
    assert nowhere.returncode == 2 and "no file given for the result" in nowhere.stderr
    there = tmp_path / "there.json"
    there.write_text("")
    kept = run_aligntool("raid", "tune", "--level", "0", "--yes", "-o", there, one, two)
    assert kept.returncode == 3 and "already exists" in kept.stderr
    asked = run_aligntool("raid", "tune", "--level", "0", "-o", tmp_path / "new.json", one, two)
    assert asked.returncode == 3 and "there is no terminal for the confirmation" in asked.stderr
    clean = run_aligntool("raid", "tune", "--clear", "--yes", one, two)
    assert clean.returncode == 3 and "no test array" in clean.stderr
    for device in (one, two):
        assert run("wipefs", "-n", device) == ""
    run("mkfs.ext4", "-q", two)
    full = run_aligntool("raid", "tune", "--level", "0", "--yes", "-o", tmp_path / "new.json", one, two)
    assert full.returncode == 3 and f"{two.name} is not empty: ext4" in full.stderr
    assert run("blkid", "-p", "-o", "value", "-s", "TYPE", two).split() == ["ext4"]
    assert not (tmp_path / "new.json").exists()


@pytest.mark.needs_tools("mdadm", "blkid")
def test_rollback_of_a_leftover_test_array_is_refused_with_the_clear_command(sparse: Callable[..., Path]) -> None:
    image = member(sparse(SIZE), _named("any:aligntool-tune", UUID))
    told = run("mdadm", "--examine", image)
    assert "any:aligntool-tune" in told and UUID in told and "- correct" in told
    done = run_aligntool("rollback", image)
    assert done.returncode == 3 and f"aligntool raid tune --clear {image}" in done.stderr
    other = run_aligntool("rollback", member(sparse(SIZE, "other.img"), superblock_1("1.2", "raid0", chunk=512 * KIB)))
    assert other.returncode == 3 and "raid tune" not in other.stderr


def _named(name: str, uuid: str) -> tuple[int, bytes]:
    """Return a superblock with this name and UUID, with its checksum (super1.c, calc_sb_1_csum)."""
    at, made = superblock_1("1.2", "raid0", chunk=512 * KIB)
    block = bytearray(made)
    block[16:32], block[32:64] = bytes.fromhex(uuid.replace(":", "")), name.encode().ljust(32, b"\0")
    struct.pack_into("<I", block, 216, 0)
    total = sum(struct.unpack("<128I", block))
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32))
    return at, bytes(block)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mdadm", "fio")
def test_a_member_that_another_program_has_opened_meanwhile_is_not_written(
    sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    """Opened exclusively, as by a mount or a volume group: open(2), O_EXCL."""
    names = [str(loop(sparse(GIB, name))) for name in ("a.img", "b.img")]
    members, numbers, _, _ = look_at_members(names)
    wanted = replace(goal("raid0"), partitions=numbers, array_uuid=UUID)
    found = plan_sweep(members, wanted, repeats=1, runtime_s=0.1, span=64 * MIB)
    taken = os.open(names[1], os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(Refused, match="opened exclusively"):
            SweepRun(found).run(lambda *told: None, lambda: None)
    finally:
        os.close(taken)
    for name in names:
        assert is_blank(name)


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "mdadm", "fio", "blkdiscard")
def test_members_are_blank_again_including_the_bitmap_of_md(
    sparse: Callable[..., Path], loop: Callable[..., Path]
) -> None:
    """`mdadm --zero-superblock` leaves a bitmap where it is, and `raid create` would take it for data of the user."""
    names = [str(loop(sparse(GIB, name))) for name in ("a.img", "b.img")]
    members, numbers, _, _ = look_at_members(names)
    wanted = replace(goal("raid0"), partitions=numbers, array_uuid=UUID)
    found = plan_sweep(members, wanted, chunks=(64 * KIB,), repeats=1, runtime_s=0.1, span=64 * MIB)
    with Path(names[0]).open("r+b") as file:
        file.seek(8 * KIB)
        file.write(b"bitm")
    with suppress(Stopped):  # a kernel without md gets as far as the drives themselves, which are filled
        SweepRun(found).run(lambda *told: None, lambda: None)
    for name in names:
        assert is_blank(name)


def test_drives_of_unequal_length_are_measured_although_whole_ones_make_no_raid0() -> None:
    """The plan after it gives them partitions of the same length."""
    unequal = judged(*drives(1, size=20 * GIB), *drives(2, size=30 * GIB)[1:])
    made = plan_sweep(unequal, goal("raid0", array_uuid=UUID), chunks=(256 * KIB,), repeats=1, runtime_s=5.0)
    assert made.span < 2 * 20 * GIB and made.members == ("/dev/nvme0n1", "/dev/nvme1n1")
