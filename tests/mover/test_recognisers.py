"""The list of recognisers that can be removed one by one is that of the program, and a removal takes effect."""

import os
import subprocess
import sys

from tests.mover.recognisers import TUPLES, describe, names

COUNT = """
import importlib, sys
import tests.mover.recognisers
print(len(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])))
"""
# Of md 0.90 and 1.1, for test_md.py; it has no DRBD.
NEEDED = ("aligntool.contents.catalogue:OWNER_READERS:0", "aligntool.contents.catalogue:OWNER_READERS:2")
NOT_TESTED = "aligntool.contents.other:DRBD_MARKS:1"


def count(module: str, name: str, without: str) -> int:
    command = (sys.executable, "-c", COUNT, module, name)
    done = subprocess.run(command, env=os.environ | {"ALIGNTOOL_WITHOUT": without}, capture_output=True, check=True)
    return int(done.stdout)


def test_every_recogniser_has_a_name_and_a_description() -> None:
    every = list(names())
    assert len(every) == len(set(every)) > 200
    assert any("read_ntfs" in describe(name) for name in every)
    assert {name.split(":")[0] for name in every} == set(TUPLES)


def test_a_recogniser_is_removed_from_its_list_and_from_the_list_inside_it() -> None:
    module = "aligntool.contents.catalogue"
    without = f"{module}:SIGNATURES:3"
    for name in ("CONTENT_SIGNATURES", "SIGNATURES"):
        assert count(module, name, without) == count(module, name, "") - 1


PROGRAM = """
import sys
from tests.mover.recognisers import run_without_each
print("left:", *run_without_each(sys.argv[2:], (sys.argv[1],)))
"""


def test_the_tests_miss_the_recognisers_of_what_they_test() -> None:
    command = (sys.executable, "-c", PROGRAM, "tests/contents/test_md.py", *NEEDED, NOT_TESTED)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"left: {NOT_TESTED}", done.stdout
