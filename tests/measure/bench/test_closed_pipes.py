"""A reader that closes the pipe ends a measurement, and no file is left behind."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.measure.bench.test_runs import environment
from tests.run_aligntool import program
from tests.thorough import sample


@sample(1)
@pytest.mark.needs_tools("fio")
@pytest.mark.parametrize(
    "words",
    [
        ("bench", "run", "--profile", "boot", "--runtime", "0.5", "--repeats", "1", "--span", "1MiB"),
        ("bench", "alignment", "--runtime", "0.5", "--size", "8MiB"),
        ("bench", "span", "--runtime", "0.5", "--size", "8MiB", "--from", "1MiB"),
        ("probe", "--size", "64MiB", "--limit", "2"),
    ],
    ids=" ".join,
)
def test_no_file_remains_when_the_reader_closes_the_pipe(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As with `2>&1 | head`. It ends as `cat` does."""
    folder = tmp_path / "drive"
    folder.mkdir()
    with subprocess.Popen(
        program(*words, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as child:
        assert child.stderr
        for line in child.stderr:
            if line.startswith("  filling"):
                break
        made = list(folder.iterdir())
        child.stderr.close()
    named = words[0] != "probe"  # its file has no name, so none remains if the disk hangs
    assert len(made) == named and list(folder.iterdir()) == []
    assert child.returncode == -signal.SIGPIPE
