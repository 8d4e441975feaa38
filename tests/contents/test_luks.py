"""LUKS headers made by cryptsetup and compared with `cryptsetup luksDump`."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.contents.luks import MAGIC, SECOND_MAGIC, UNFLUSHED
from aligntool.units import MIB
from tests.conftest import run
from tests.contents.placed_partitions import STARTS, agree, field, layers_of, number, place
from tests.mover.containers import rewrite_segment

Sparse = Callable[..., Path]
QUICK = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "-q", "--key-file", "-", "--disable-locks")

pytestmark = pytest.mark.needs_tools("cryptsetup", "blkid")


def luks(content: Path, version: str, *options: str) -> Path:
    run("cryptsetup", "luksFormat", "--type", version, *QUICK, *options, content, stdin="secret")
    return content


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("options", [(), ("--align-payload", "8192"), ("--align-payload", "63")], ids=" ".join)
def test_the_luks1_payload_is_where_luks_dump_reports_it(sparse: Sparse, start: int, options: tuple[str, ...]) -> None:
    content = luks(sparse(24 * MIB), "luks1", *options)
    placed = place(content, start)
    layer, report = placed.layer(), run("cryptsetup", "luksDump", content)
    agree(layer, placed.blkid())
    assert layer.version == f"LUKS{field(report, 'Version')}"
    assert layer.data_start == start + number(report, "Payload offset") * 512
    assert layer.data_unit == 512
    assert layer.inner == ()


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "options",
    [
        ("--sector-size", "512", "--label", "home disk"),
        ("--sector-size", "4096"),
        ("--offset", "16384", "--luks2-metadata-size", "64k"),
        ("--offset", "32776", "--sector-size", "512", "--subsystem", "ours"),
    ],
    ids=" ".join,
)
def test_the_luks2_payload_and_sector_size_are_those_of_the_json(
    sparse: Sparse, start: int, options: tuple[str, ...]
) -> None:
    content = luks(sparse(32 * MIB), "luks2", *options)
    placed = place(content, start)
    layer = placed.layer()
    agree(layer, placed.blkid())
    dump = json.loads(run("cryptsetup", "luksDump", "--dump-json-metadata", content))
    segment = dump["segments"]["0"]
    assert layer.version == "LUKS2"
    assert layer.data_start == start + int(segment["offset"])
    assert layer.data_unit == segment["sector_size"]


def test_a_damaged_first_header_is_reported_and_the_second_one_is_used(sparse: Sparse) -> None:
    content = luks(sparse(32 * MIB), "luks2", "--offset", "40000")
    with content.open("r+b") as file:
        first = file.read(16384)
        at = first.index(b'"20480000"')  # the payload's offset, so that the two copies disagree
        file.seek(at)
        file.write(b'"12345678"')
    (layer,) = layers_of(content)
    assert layer.data_start == 40000 * 512
    assert any("checksum of the LUKS2 header" in problem for problem in layer.problems)


def test_a_damaged_second_header_is_reported_and_the_first_one_is_used(sparse: Sparse) -> None:
    content = luks(sparse(32 * MIB), "luks2")
    with content.open("r+b") as file:
        file.seek(16384 + 5000)
        file.write(b"garbage in the JSON")
    (layer,) = layers_of(content)
    assert layer.data_start == 16 * MIB
    assert any("second copy" in problem for problem in layer.problems)


@pytest.mark.parametrize("size", ["16k", "64k", "128k", "4m"])
def test_with_the_first_header_overwritten_the_second_is_found_as_by_cryptsetup(sparse: Sparse, size: str) -> None:
    content = luks(sparse(32 * MIB), "luks2", "--label", "rescue", "--luks2-metadata-size", size)
    with content.open("r+b") as file:
        file.write(bytes(16384))
    (layer,) = layers_of(content)
    assert (layer.kind, layer.label, layer.data_start) == ("crypto_LUKS", "rescue", 16 * MIB)
    assert any("second" in problem for problem in layer.problems)
    run("cryptsetup", "repair", "-q", "--disable-locks", content)  # the tool finds one too
    assert "rescue" in run("cryptsetup", "luksDump", content)


@pytest.mark.parametrize(
    ("first", "second", "is_unflushed"),
    [
        ((8, "hot"), (7, "old"), True),  # the journal may be missing
        ((8, "old"), (7, "hot"), True),  # recovered data may be missing
        ((8, "finished"), (7, "hot"), False),  # its journal is wiped
        ((9, "hot"), (7, "old"), False),  # not the copy that was written with the one before
        ((7, "old"), (8, "hot"), False),
        ((8, "hot"), (8, "old"), False),
        ((8, "hot"), (7, "hot"), False),
    ],
)
def test_a_newer_first_header_is_not_trusted_where_its_flush_may_be_missing(
    sparse: Sparse, first: tuple[int, str], second: tuple[int, str], is_unflushed: bool
) -> None:
    content = sparse(32 * MIB)
    copies = (header_copy(MAGIC, 0, *first), header_copy(SECOND_MAGIC, 16384, *second))
    with content.open("r+b") as file:
        file.write(b"".join(copies))
    (layer,) = layers_of(content)
    assert (layer.unclean == UNFLUSHED) == is_unflushed


def header_copy(magic: bytes, at: int, update: int, state: str) -> bytes:
    """Return a LUKS2 header copy during or after a re-encryption; "hot": a segment is being written."""
    segment = {"type": "crypt", "offset": "16777216", "size": "dynamic", "sector_size": 512, "encryption": "x"}
    flags = {"flags": ["in-reencryption"]} if state == "hot" else {}
    backup = {} if state == "finished" else {"1": segment | {"flags": ["backup-previous"]}}
    tree = {"keyslots": {}, "segments": {"0": segment | flags, **backup}, "config": {"json_size": "12288"}}
    head = magic + b"\0\2" + (16384).to_bytes(8) + update.to_bytes(8)
    head = head.ljust(72, b"\0") + b"sha256".ljust(184, b"\0") + at.to_bytes(8)
    whole = (head.ljust(4096, b"\0") + json.dumps(tree).encode()).ljust(16384, b"\0")
    return whole[:448] + hashlib.sha256(whole).digest() + whole[480:]


@pytest.mark.needs_tools("mkfs.xfs")
def test_a_second_header_left_under_a_new_file_system_is_not_reported(sparse: Sparse) -> None:
    content = luks(sparse(600 * MIB), "luks2")
    with content.open("r+b") as file:
        file.write(bytes(4096))
    run("mkfs.xfs", "-q", "-f", "-K", content)
    placed = place(content, MIB)
    assert [layer.kind for layer in placed.layers()] == [placed.blkid()["TYPE"]] == ["xfs"]


@pytest.mark.parametrize("version", ["luks1", "luks2"])
@pytest.mark.parametrize("offset", ["0", "65536", "backup"])
def test_a_header_without_data_has_no_problem(sparse: Sparse, tmp_path: Path, version: str, offset: str) -> None:
    """The data begin at `offset` sectors of another device, or follow the header that was backed up."""
    content, header = sparse(48 * MIB), tmp_path / "header"
    if offset == "backup":
        run("cryptsetup", "luksHeaderBackup", luks(content, version), "--header-backup-file", header)
    else:
        header.write_bytes(bytes(16 * MIB))
        luks(content, version, "--header", str(header), "--offset", offset)
    (layer,) = layers_of(header)
    assert (layer.kind, layer.problems, layer.data_start) == ("crypto_LUKS", (), None)
    with header.open("r+b") as file:
        file.truncate(100 * 1024)
    assert layers_of(header)[0].problems


def test_a_payload_beyond_the_end_is_reported(sparse: Sparse) -> None:
    content = luks(sparse(32 * MIB), "luks2")
    with content.open("r+b") as file:
        file.truncate(8 * MIB)
    (layer,) = layers_of(content)
    assert any(f"at byte {16 * MIB}," in problem and f"{8 * MIB} bytes" in problem for problem in layer.problems)


INTEGRITY = {"type": "hmac(sha256)", "journal_encryption": "none", "journal_integrity": "none"}


@pytest.mark.parametrize(
    ("segment", "ends", "unclean"),
    [
        ({}, True, None),
        ({"integrity": INTEGRITY}, False, None),  # tags lie between the sectors
        ({"type": "hw-opal"}, False, "hw-opal"),
        ({"type": "hw-opal-crypt"}, False, "hw-opal"),
        ({"type": "linear"}, False, None),
    ],
    ids=["crypt", "integrity", "hw-opal", "hw-opal-crypt", "linear"],
)
def test_a_segment_of_fixed_size_ends_the_volume_only_if_it_is_plain_dm_crypt(
    sparse: Sparse, segment: dict[str, object], ends: bool, unclean: str | None
) -> None:
    content = luks(sparse(32 * MIB), "luks2")
    rewrite_segment(content, {"size": str(8 * MIB)} | segment)
    (layer,) = layers_of(content)
    assert layer.problems == () and layer.data_start == 16 * MIB
    assert layer.claims_size == (24 * MIB if ends else None)
    assert (unclean or "") in (layer.unclean or "") and bool(unclean) == bool(layer.unclean)
    assert layer.has_tags is ("integrity" in segment)
    if not segment:
        assert str(8 * MIB) in run("cryptsetup", "luksDump", content)  # cryptsetup accepts the rewritten header
