"""The benchmark of `raid reformat` on figures whose answer is known."""

from tests.bench.reformat import table


def test_rounds_are_compared_pair_by_pair() -> None:
    said = table({"aligntool": [30.0, 44.0, 20.0], "one by one": [20.0, 40.0, 20.0], "restored": [60.0, 44.0, 80.0]})
    assert "| 30 s | 20 s | 1.10 (1.00–1.50) |" in said and "| 30 s | 60 s | 0.50 (0.25–1.00) |" in said
    assert "3 interleaved rounds" in said
