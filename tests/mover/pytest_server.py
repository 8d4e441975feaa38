"""A process that has loaded pytest and the imports of the package, and forks for each run of it.

A program: a request is a line of JSON, a folder and pytest's arguments; the answer is the exit code and the output. It
imports nothing from this checkout: a fork imports what is in its folder.
"""

import importlib
import json
import os
import signal
import sys
import tempfile

LOADED = ("pytest", "hypothesis.strategies", "_pytest.assertion.rewrite", "parted")
LIMIT_S = 600


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        folder, words = json.loads(line)
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if child == 0:
                run_pytest(folder, words, output.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            print(json.dumps((code, output.read().decode(errors="replace"))), flush=True)


def run_pytest(folder: str, words: list[str], output: int) -> None:
    """Run like `python -m pytest` in that folder."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.alarm(LIMIT_S)
    os.chdir(folder)
    sys.path[0] = folder
    code = importlib.import_module("pytest").main(words)
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
