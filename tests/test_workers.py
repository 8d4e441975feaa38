"""When the process of a test ends, such as by the kernel that is out of memory, the other tests are run."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WAIT = """
import os, time
from pathlib import Path
def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)
"""
TESTS = {
    "conftest.py": """
from pathlib import Path
from tests import workers
workers.ROOT = Path(__file__).parent
pytest_xdist_make_scheduler = workers.pytest_xdist_make_scheduler
""",
    "test_a.py": """
def test_one(): pass
def test_two(): pass
def test_that_ends_its_process():
    Path("begun").touch()
    wait_for("done")
    time.sleep(1)  # until the other process has nothing to do
    with open("ended", "a") as file:
        file.write("once ")
    os.kill(os.getpid(), 9)
""",
    "test_b.py": """
def test_one(): wait_for("begun")
def test_two(): pass
""",
    "test_c.py": """
def test_one(): Path("done").touch()
""",
    "test_d.py": """
def test_one(): pass
def test_two(): pass
""",
}


def test_the_other_tests_of_a_process_that_crashed_are_run_and_the_last_one_is_not(tmp_path: Path) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(WAIT + text)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "-n", "2", ".")
    done = subprocess.run(
        [sys.executable, *words, "--dist", "loadscope", "--no-loadscope-reorder"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "1 failed, 7 passed" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "ended").read_text() == "once "
