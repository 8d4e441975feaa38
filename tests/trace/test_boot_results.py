"""`aligntool estimate boot` of results of `aligntool bench`: which it takes, and what it says of them."""

import json
from pathlib import Path

from aligntool.bench.document import to_json
from tests.bench_runs.made import result, series
from tests.cli.old_disks import aligntool


def test_passes_over_the_same_data_are_refused(tmp_path: Path) -> None:
    """A hybrid drive: 0.4 MB/s, and 30 from its cache. The 2022 article's boot takes it minutes, not seconds."""
    sides = series(0.4e6, 30e6, 30e6, 30e6, 30e6), series(2e6, 2e6, 2e6, 2e6, 2e6, write=True)
    passes, repeats = tmp_path / "passes.json", tmp_path / "repeats.json"
    passes.write_text(to_json(result(*sides, passes=(1, 5))))
    repeats.write_text(to_json(result(*sides)))
    refused = aligntool("estimate", "boot", passes)
    assert refused.returncode == 3 and refused.stdout == "" and "Traceback" not in refused.stderr
    assert f"{passes} has passes over the same data" in refused.stderr and "--profile boot" in refused.stderr
    (told,) = json.loads(aligntool("estimate", "boot", repeats, "--json").stdout)["drives"]
    assert (told["read_mb_s"], told["write_mb_s"]) == (30, 2)
