"""The benchmark of `raid create` on figures whose answer is known."""

from tests.bench.manual_steps import table


def test_rounds_are_compared_pair_by_pair() -> None:
    said = table({"aligntool": [30.0, 44.0, 20.0], "hand": [20.0, 40.0, 20.0]})
    assert "| 1.10 (1.00–1.50) | 20 s | 4 s |" in said
    assert "3 interleaved rounds" in said
