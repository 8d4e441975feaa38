"""A short, bounded run of the fuzzers, and a test that they find a planted bug. `make fuzz` runs them for longer."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.contents.layers import read_layers
from aligntool.formats.gpt import MOST_ENTRY_BYTES
from aligntool.formats.tables import read_table
from aligntool.units import MIB, Extent
from tests.fuzz import handmade_seeds, run
from tests.fuzz.campaign import Failure, Record, fuzz_blindly, try_input
from tests.fuzz.checksums import fix_checksums
from tests.fuzz.conftest import Count
from tests.fuzz.handmade_layers import le
from tests.fuzz.handmade_seeds import mbr
from tests.fuzz.mutation import Mutator
from tests.fuzz.properties import Broken, check
from tests.fuzz.sparse import IS_CUT_SHORT, Piece, SparseDisk, TooMuchRead, decode, of_pieces
from tests.fuzz.targets import MOST_READ_BY_TABLES, TARGETS, Target, target_named
from tests.in_memory import BytesReader
from tests.thorough import sample, when_thorough

INPUTS = 160
INPUTS_OF_SLOW_TARGETS = 40
SLOW = ("machine", "bombs", "journal", "toml", "json")
SEED = 20240  # the same inputs each time; `make fuzz ARGS="--seed N"` tries others
TABLES = ("gpt", "mbr", "old-labels")
FAMILIES_ON_DISK = tuple(name for name in handmade_seeds.FAMILIES if name not in ("contents", "nvme", "ata"))
GUIDED = ("contents", "lvm")


@sample(8)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_damaged_input_breaks_a_parser_or_its_output(target: Target, tmp_path: Path, count: Count) -> None:
    record = Record(tmp_path / "found")
    runs = INPUTS_OF_SLOW_TARGETS if target.name in SLOW else INPUTS
    fuzz_blindly(target, record, runs=runs, seconds=600, seed=SEED)  # on a busy machine, too
    count(target.name, record.tried, len(record.failures))
    assert record.tried >= runs
    assert record.shapes - {"none", "refused", "unreadable"}, "nothing was recognised: the seeds are wrong"
    assert not record.failures, [failure.told for failure in record.failures.values()]


@sample(3)
@pytest.mark.parametrize("family", FAMILIES_ON_DISK)
def test_an_image_truncated_anywhere_in_a_structure_breaks_nothing(family: str, count: Count) -> None:
    tried = 0
    for disk in handmade_seeds.FAMILIES[family]():
        for piece in disk.pieces:
            for left in range(1, min(len(piece.content), 520) + 1):
                cut = replace(disk, size=piece.at + left, choices=disk.choices | IS_CUT_SHORT)
                if family in TABLES:
                    read_table(cut.reader(), sector_size=cut.sector_size)
                else:
                    read_layers(cut.reader(), cut.container)
                tried += 1
    count(family, tried, 0)
    assert tried


BROKE_SOMETHING_ONCE = {
    "XFS of which 121 bytes are left": of_pieces(121, [(0, b"XFSB")], choices=IS_CUT_SHORT),
    "NTFS of which 13 bytes are left": of_pieces(13, [(0, b"\xeb\x52\x90NTFS    ")], choices=IS_CUT_SHORT),
    "BitLocker of which 11 bytes are left": of_pieces(11, [(0, b"\xeb\x52\x90-FVE-FS-")], choices=IS_CUT_SHORT),
    "HFS of which 36 bytes are left": of_pieces(1060, [(1024, b"BD"), (1046, b"\x02")], choices=IS_CUT_SHORT),
}


@pytest.mark.parametrize("name", BROKE_SOMETHING_ONCE)
def test_inputs_that_once_caused_a_failure_cause_none(name: str) -> None:
    disk = BROKE_SOMETHING_ONCE[name]
    assert target_named("other-layers").run(disk.encoded()) == "none"


def test_the_longest_gpt_with_a_backup_at_every_place_is_read_once_for_each() -> None:
    places = (1, 40_000, 49_999, 64 * MIB // 512 - 1)
    header = b"EFI PART".ljust(32, b"\0") + le(40_000, 8) + bytes(32) + le(2, 8) + le(MOST_ENTRY_BYTES // 128) + le(128)
    pieces = [(0, mbr((0xEE, 1, 49_999))), *((lba * 512, header) for lba in places)]
    disk = of_pieces(64 * MIB, pieces)
    reader = disk.reader()
    read_table(reader, sector_size=512)
    assert 4 * MOST_ENTRY_BYTES < reader.bytes_read < MOST_READ_BY_TABLES
    assert "gpt" in target_named("gpt").run(disk.encoded())


@when_thorough("takes 5 s for each")
@pytest.mark.parametrize("name", GUIDED)
def test_coverage_guided_inputs_break_nothing(name: str, count: Count) -> None:
    pytest.importorskip("atheris", reason="atheris has no build for this machine or Python")
    outcome = run.fuzz(name, engine="guided", seconds=20, runs=400, seed=SEED)
    count(name, outcome.tried, outcome.failed)
    assert outcome.tried > 0
    assert outcome.reached.endswith("branches")
    assert not outcome.failed, outcome.told


def test_the_gpt_seeds_are_read_as_valid_tables() -> None:
    """Otherwise no mutation of them would pass the checksum."""
    for disk in handmade_seeds.gpt_disks():
        reading = read_table(disk.reader(), sector_size=disk.sector_size)
        assert reading.table is not None
        assert [copy.state.value for copy in reading.table.copies] == ["good", "good"]


def test_a_mutation_with_a_corrected_checksum_passes_the_check() -> None:
    disk = handmade_seeds.gpt_disks()[0]
    broken = disk.with_bytes(2 * 512 + 56, b"\xff")
    assert "entries-crc-bad" in target_named("gpt").run(broken.encoded())
    assert target_named("gpt").run(fix_checksums(broken).encoded()) == "gpt 512 gpt-copies-differ primary good good"


def _planted(data: bytes) -> str:
    """A parser with a bug: it trusts an index that it has read."""
    try:
        sector = decode(data).reader().read(0, 512)
    except OSError:
        return "unreadable"
    table = (0,) * 200
    return str(table[sector[446]]) if len(sector) == 512 else "short"


PLANTED = Target("planted", _planted, Mutator.disk, lambda _folder: [handmade_seeds.mbr_disks()[0].encoded()])


def test_a_parser_that_trusts_an_index_is_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = Record(tmp_path)
    fuzz_blindly(PLANTED, record, runs=5000, seconds=30, seed=SEED)
    (failure,) = record.failures.values()
    assert "IndexError" in failure.told
    kept = next(tmp_path.glob("planted-*.bin"))
    assert kept.read_bytes() == failure.data
    assert str(kept) in capsys.readouterr().out
    with pytest.raises(IndexError):
        _planted(kept.read_bytes())


def test_the_same_failure_is_reported_once(tmp_path: Path) -> None:
    record = Record(tmp_path)
    for size in range(512, 520):
        bad = of_pieces(size, [(446, b"\xff")]).encoded()
        record.add(try_input("planted", _planted, bad))
    assert (record.tried, len(record.failures)) == (8, 1)


def test_a_parser_that_does_not_end_is_detected() -> None:
    def hang(_data: bytes) -> str:
        while True:
            pass

    outcome = try_input("hang", hang, b"", seconds=0.2)
    assert isinstance(outcome, Failure)
    assert "TooSlow" in outcome.told


def test_a_parser_that_reads_too_much_is_detected() -> None:
    reader = SparseDisk(64 * MIB, ()).reader()
    reader.most_bytes = MIB
    with pytest.raises(TooMuchRead):
        for at in range(0, 64 * MIB, 65536):
            reader.read(at, 65536)


def test_a_negative_offset_or_a_value_of_the_wrong_type_is_detected() -> None:
    with pytest.raises(Broken, match="negative"):
        check(Extent(-1, 512))
    from aligntool.inventory import Fault, TableFault

    with pytest.raises(Broken, match=r"TableFault\.detail"):
        check(TableFault(Fault.OVERLAP, 7))  # type: ignore[arg-type]


def test_any_bytes_decode_to_a_disk_and_a_disk_is_encoded_without_loss() -> None:
    disk = SparseDisk(64 * MIB, (Piece(512, b"abc"), Piece(64 * MIB - 1, b"z")), start=512, choices=2)
    assert decode(disk.encoded()) == disk
    whole = bytearray(64 * MIB)
    whole[512:515], whole[-1:] = b"abc", b"z"
    expected = BytesReader(bytes(whole))
    for at, length in ((0, 512), (500, 100), (513, 1), (64 * MIB - 2, 10), (64 * MIB, 1), (-1, 5), (512, 0)):
        assert disk.reader().read(at, length) == expected.read(at, length)
    for data in (b"", b"\xff" * 17, b"\xff" * 40, bytes(100)):
        assert decode(data).reader().read(0, 100) is not None


@when_thorough("inputs for every parser")
def test_the_command_prints_the_number_of_inputs_tried(count: Count) -> None:
    words = [sys.executable, str(Path(run.__file__)), "--seconds", "1", "lvm-text"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    tried = int(last.split()[0])
    count("lvm-text", tried, 0)
    assert last == f"{tried} inputs tried, 0 failures"
    assert tried > 100
