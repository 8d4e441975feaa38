"""A file is read as it is, its holes without being read."""

import random
from pathlib import Path

from aligntool.linux.file_reader import FileReader
from aligntool.units import MIB


def test_every_range_of_a_sparse_file_reads_as_by_another_reader(tmp_path: Path) -> None:
    path, luck = tmp_path / "sparse.img", random.Random(1)
    with path.open("wb") as file:
        file.truncate(8 * MIB)
        for at in (0, 3 * MIB + 512, 7 * MIB):
            file.seek(at)
            file.write(luck.randbytes(4096))
    whole = path.read_bytes()
    with path.open("rb") as file:
        reader = FileReader(file.fileno(), 8 * MIB)
        for _ in range(300):
            start, length = luck.randrange(9 * MIB), luck.choice((512, 100_000, MIB, 4 * MIB))
            assert reader.read(start, length) == whole[start : start + length]


def test_a_file_that_was_shortened_meanwhile_does_not_read_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "short.img"
    path.write_bytes(bytes(MIB))
    with path.open("rb") as file:
        reader = FileReader(file.fileno(), 4 * MIB)
        assert reader.read(2 * MIB, MIB) == b"" and len(reader.read(0, 4 * MIB)) == MIB
