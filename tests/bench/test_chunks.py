"""The benchmark of chunks on figures whose answer is known."""

import pytest

from aligntool.raid.levels import WORKLOADS
from aligntool.raid.measured import Sample, Tuning, choose, loads_of
from aligntool.render.lines import text_of
from aligntool.render.tuning import tuning_lines
from aligntool.units import KIB
from tests.bench.chunks import rows

RECOMMENDED = dict.fromkeys(WORKLOADS, 512 * KIB) | {"database": 64 * KIB, "vm": 128 * KIB}


def figures(factor: float) -> Tuning:
    """Return figures in which the `database` loads are `factor` times as fast with 64 KiB; all else is equal."""
    names = {workload: [shape.name for shape in loads_of(workload, 16 * KIB)] for workload in WORKLOADS}
    samples = [
        Sample(number, chunk, name, int(1e9 * (factor if chunk == 64 * KIB and name in names["database"] else 1)), 0)
        for number in range(5)
        for chunk in (64 * KIB, 128 * KIB, 512 * KIB)
        for name in dict.fromkeys(name for each in names.values() for name in each)
    ]
    return Tuning("raid5", "", "general", 16 * KIB, "internal", (), 1, 1.0, True, (), tuple(samples))


@pytest.mark.parametrize(("factor", "words"), [(1.5, "1.50 (1.50–1.50) | faster"), (0.5, "0.50 (0.50–0.50) | slower"),
                                               (1.0, "1.00 (1.00–1.00) | within the noise")])  # fmt: skip
def test_each_workload_is_judged_by_its_own_loads(factor: float, words: str) -> None:
    said = dict(zip(WORKLOADS, rows("raid5", figures(factor), RECOMMENDED), strict=True))
    assert words in said["database"] and "64KiB" in said["database"]
    assert "within the noise" in said["vm"]
    assert "the same chunk" in said["general"]


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_of_a_tuning_fits_the_terminal_and_keeps_every_figure(width: int) -> None:
    tuning = figures(1.5)
    lines = text_of(tuning_lines(tuning, choose(tuning.samples, 512 * KIB), 512 * KIB, width=width))
    shown = [line.rstrip("\n") for line in lines]
    assert [line for line in shown if len(line.rstrip()) > width] == []
    shapes = {sample.load for sample in tuning.samples}
    figure = sum(line.count("1,000 (1,000–1,000)") + line.count("1,500 (1,500–1,500)") for line in shown)
    assert figure == 3 * len(shapes)
