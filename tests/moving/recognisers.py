"""All recognisers, each of which can be removed: `pytest -p tests.moving.recognisers`, its name in ALIGNTOOL_WITHOUT.

A recogniser that no test misses, and without which no byte is lost, need not exist. As a program, this prints those:
`python -m tests.moving.recognisers [FROM [TO]]`, a line for each as soon as it is known.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator

TUPLES = {
    "aligntool.formats.layers": ("OWNER_READERS", "FILE_SYSTEM_READERS", "ON_FLOPPIES", "LAST_RESORT"),
    "aligntool.formats.other_layers": ("DRBD_MARKS", "OWNER_MARKS", "OTHERS"),
    "aligntool.formats.signatures": ("OWNER_SIGNATURES", "FILE_SYSTEM_SIGNATURES", "PARTITION_TABLES"),
    "aligntool.formats.other_tables": ("_BOOT_SECTOR_MAGICS", "_MAGICS"),
    "aligntool.formats.tables": ("_MAGICS", "_ENCRYPTION"),  # boot programs before the first partition; in sector 0
}
DERIVED = {"aligntool.formats.signatures": "SIGNATURES"}  # the sum of the others
# Without root and quick; those of moves come last.
TESTS = (
    "tests/probe/layers", "tests/probe/tables", "tests/realign", "tests/verdicts", "tests/audit",
    "tests/moving/test_recognition.py",
)  # fmt: skip


def names() -> Iterator[str]:
    """Yield the module, tuple and index of each recogniser."""
    for module, tuples in TUPLES.items():
        loaded = importlib.import_module(module)
        for each in tuples:
            yield from (f"{module}:{each}:{index}" for index in range(len(getattr(loaded, each))))


def describe(name: str) -> str:
    """Return what a recogniser looks for."""
    module, each, index = name.split(":")
    found = getattr(importlib.import_module(module), each)[int(index)]
    text = getattr(found, "__name__", None) or str(getattr(found, "func", found))
    return f"{module.removeprefix('aligntool.formats.')}.{each}: {text[:90]}"


def remove(name: str) -> None:
    module, each, index = name.split(":")
    loaded = importlib.import_module(module)
    gone = getattr(loaded, each)[int(index)]
    for attribute in (each, DERIVED.get(module, each)):
        setattr(loaded, attribute, tuple(one for one in getattr(loaded, attribute) if one is not gone))


def is_missed(name: str, tests: tuple[str, ...] = TESTS) -> bool:
    """Return whether a test fails without this recogniser."""
    command = (sys.executable, "-m", "pytest", "-p", "tests.moving.recognisers", "-p", "no:cacheprovider", "-q", "-x")
    done = subprocess.run(
        (*command, *tests), env=os.environ | {"ALIGNTOOL_WITHOUT": name}, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise AssertionError(f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 1


def main(words: list[str]) -> None:
    every = list(names())
    first, last = (*map(int, words), *(0, len(every))[len(words) :])
    for name in every[first:last]:
        print("needed   " if is_missed(name) else "NOT NEEDED", name, describe(name), flush=True)


if without := os.environ.get("ALIGNTOOL_WITHOUT"):
    remove(without)

if __name__ == "__main__":
    main(sys.argv[1:])
