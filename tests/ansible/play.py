"""Run a playbook with only this checkout's collection, and parse the output of ansible-playbook.

It needs no pytest, because tests/lab/ansible_arrays.py runs it in an emulated PC.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

COLLECTION = Path(__file__).parents[2] / "packaging" / "ansible"
TASK = re.compile(r"^TASK \[(\w+)\] \*+\n(.*?)(?=^TASK |^PLAY RECAP)", re.MULTILINE | re.DOTALL)
RESULT = re.compile(r"^(ok|changed|fatal): \[localhost\].*? => (\{.*\})$", re.MULTILINE)
# With --check, for real, and again; tasks tagged "once" are played once.
Seen = TypeVar("Seen")
RUNS = (("--check", "--skip-tags", "once"), (), ("--skip-tags", "once"))


@dataclass(frozen=True, slots=True)
class Played:
    """One run of a playbook: the word before each task's result, its JSON, and the diff before it."""

    words: dict[str, str]
    results: dict[str, dict[str, Any]]
    diffs: dict[str, str]
    changed: int


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which Ansible finds only this collection and writes only to this folder."""
    place = folder / "ansible_collections" / "aligntool"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "aligntool").is_symlink():
        (place / "aligntool").symlink_to(COLLECTION)
    (folder / "ansible.cfg").touch()
    own = {
        "HOME": str(folder),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "remote"),
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "LC_ALL": "C.UTF-8",
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")} | own


def play(folder: Path, playbook: str, variables: Mapping[str, object], *options: str, limit_s: float = 3600) -> str:
    """Return what ansible-playbook printed; only tasks that are allowed to fail may have failed."""
    python = Path(sys.executable)
    always = {"aligntool": str(python.with_name("aligntool")), "ansible_python_interpreter": str(python)}
    words = (
        "-v",
        "--diff",
        *options,
        "-e",
        json.dumps({**variables, **always}),
        str(Path(__file__).with_name(playbook)),
    )
    command = ["ansible-playbook", "-i", "localhost,", *words]
    done = subprocess.run(
        command, env=environment(folder), capture_output=True, text=True, check=False, timeout=limit_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(said: str) -> Played:
    words, results, diffs = {}, {}, {}
    for name, of_task in TASK.findall(said):
        found = RESULT.search(of_task)
        assert found, of_task
        words[name], results[name], diffs[name] = found[1], json.loads(found[2]), of_task[: found.start()]
    recap = re.search(r"^localhost .*changed=(\d+)", said, re.MULTILINE)
    assert recap, said
    return Played(words, results, diffs, int(recap[1]))


def play_thrice(
    folder: Path, playbook: str, variables: Mapping[str, object], look: Callable[[], Seen]
) -> Iterator[tuple[str, Seen]]:
    """Return what was printed each time, and what `look` returned afterwards."""
    for options in RUNS:
        yield play(folder, playbook, variables, *options), look()
