"""Files that the user names: regular ones, or a pipe that the program was given. Nothing else may make it wait."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.run_aligntool import program, run_aligntool

LONGEST_S = 300
READERS = [
    ("apply", "--yes"), ("bench", "show"), ("recipes", "check"), ("trace",), ("fleet",), ("audit", "--sysroot"),
    ("audit", "--measured"), ("raid", "plan", "--level", "1", "/dev/null", "--tuned"), ("layout", "x.img", "--recipe"),
]  # fmt: skip


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_fifo_that_nothing_writes_to_is_refused_at_once(words: tuple[str, ...], tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)
    ended = subprocess.run(
        program(*words, str(fifo)), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=LONGEST_S,
    )  # fmt: skip
    assert ended.returncode in (2, 3), ended.stderr
    assert "Traceback" not in ended.stderr and "fifo.toml" in ended.stderr + ended.stdout


def test_a_pipe_that_was_given_is_read() -> None:
    for name in ("/dev/stdin", "/dev/fd/0"):
        done = run_aligntool("recipes", "check", name, stdin='format = 1\nkind = "nothing"\n')
        assert done.returncode == 3 and "nothing" in done.stderr, done.stderr
