"""The reader of Windows' partition references, compared with hivex, and given volumes and hives with bytes changed."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aligntool.contents.windows_names import StartNames, read_names
from aligntool.formats.reader import Area, open_area
from aligntool.units import MIB, Extent
from tests.in_memory import BytesReader
from tests.mover import windows
from tests.thorough import examples

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("hivexml", "hivexsh", "mkntfs", "ntfs-3g")]

START, SECTORS = 63, 6000
SIGNATURE = windows.SIGNATURE.to_bytes(4, "little")


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("names")
    start = START * windows.SECTOR
    store = windows.make_hive(folder / "BCD", windows.boot_store(start, start))
    system = windows.make_hive(folder / "SYSTEM", {**windows.mounted_devices(start, start), **windows.elsewhere(start)})

    def fill(mounted: Path) -> None:
        (mounted / "Boot").mkdir()
        (mounted / "Boot" / "BCD").write_bytes(store.read_bytes())
        config = mounted / "Windows" / "System32" / "config"
        config.mkdir(parents=True)
        for number in range(200):  # more than one block of an index
            (config.parent / f"file{number}.dll").touch()
        (config / "SYSTEM").write_bytes(system.read_bytes())

    return windows.make_ntfs(folder / "volume", SECTORS, fill, start=START)


def area_of(content: bytes) -> Area:
    return open_area(BytesReader(content), Extent(0, len(content)), 512, lambda *_: ())


def test_every_start_is_found_at_the_place_of_its_bytes(volume: bytes) -> None:
    found = read_names(area_of(volume), SIGNATURE)
    assert found.files == ("\\Boot\\BCD", "\\Windows\\System32\\config\\SYSTEM")
    assert (found.dirty, found.unclear) == ((), "")
    assert sorted(one.what.split()[0] for one in found.starts) == ["BCD"] * 6 + ["MountedDevices"] * 4
    for one in found.starts:
        assert b"".join(volume[place.start : place.end] for place in one.places) == one.start.to_bytes(8, "little")


def test_for_another_signature_no_starts_are_found(volume: bytes) -> None:
    found = read_names(area_of(volume), b"none")
    assert (len(found.files), found.starts) == (2, ())


@settings(max_examples=examples(1500), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(min_value=0), many=st.sampled_from((1, 2, 8, 60)))
def test_changed_bytes_neither_raise_an_error_nor_exceed_the_limits(volume: bytes, seed: int, many: int) -> None:
    """Bytes of records, indexes and hives; NTFS itself detects a change to the last two bytes of a sector."""
    luck = random.Random(seed)
    places = [at for at in range(0, len(volume), 512) if volume[at : at + 4] in (b"FILE", b"INDX", b"regf", b"hbin")]
    content = bytearray(volume)
    for _ in range(many):
        at = luck.choice(places) + luck.randrange(8 * luck.choice((8, 64, 500)))
        content[at : at + 4] = luck.choice((luck.randbytes(4), b"\xff" * 4, bytes(4), b"\x00\x00\x00\x80"))
    found = read_names(area_of(bytes(content)), SIGNATURE)
    assert isinstance(found, StartNames)
    assert len(found.starts) <= 2000
    assert all(place.end <= len(content) <= 4 * MIB for one in found.starts for place in one.places)
