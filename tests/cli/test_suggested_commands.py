"""Every aligntool command in a message exists, with every option that it has there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.commands import whole_program
from tests.conftest import run
from tests.linux.trees import MadeDisk, MadePartition, make_tree
from tests.run_aligntool import run_aligntool

SOURCES = Path(__file__).parents[2] / "aligntool"
GAP = "\0"  # what an f-string fills in
COMMAND = re.compile(r"(?<![\w/.-])aligntool (?=[a-z])([^`\n;)&|<>—]*)")
OPTION = re.compile(r"(?<!\S)--?[a-z][\w-]*")
BUILDERS = {"command": 0, "next_command": 1}  # which of its arguments is the command name


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr():
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
            case ast.Constant(value=str(text)):
                yield text
            case ast.Call(func=ast.Name(id=name), args=args) if name in BUILDERS:
                words = [arg.value if isinstance(arg, ast.Constant) else GAP for arg in args]
                words.insert(0, words.pop(BUILDERS[name]) if len(words) > BUILDERS[name] else GAP)
                yield "aligntool " + " ".join(str(word) for word in words)


def named_commands() -> list[tuple[str, str]]:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for text in texts(ast.parse(path.read_text())):
            found += [(path.name, match[1]) for match in COMMAND.finditer(text)]
    return found


@cache
def _program() -> Any:
    return whole_program()


def resolve(line: str) -> tuple[Any, list[str]]:
    """Return the command that a line begins with, and the options in the rest; None if it is prose."""
    here = _program()
    words = re.split(r"\. | -- ", line)[0].split()
    while words and hasattr(here, "commands"):
        found = here.commands.get(words[0].rstrip(".,:'\""))
        if found is None:
            return None, words
        here = found
        words.pop(0)
    return here, [option for word in words for option in OPTION.findall(word)]


def test_every_option_in_a_suggested_command_exists() -> None:
    wrong, checked = [], 0
    for name, line in named_commands():
        command, options = resolve(line)
        if command is None or hasattr(command, "commands"):
            continue
        known = {word for one in command.params for word in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
        checked += 1
        wrong += [f"{name}: aligntool {line}: {option}" for option in options if option not in known]
    assert not wrong
    assert checked > 60


def test_the_refusal_of_a_folder_names_a_command_that_exists(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    hint = run_aligntool("audit", tmp_path).stderr.splitlines()[-1].removeprefix("  → ")
    assert hint == f"aligntool audit --sysroot {tmp_path}"
    (tmp_path / "sys").rmdir()
    assert "--sysroot" not in run_aligntool("plan", "realign", tmp_path).stderr


@pytest.mark.needs_tools("qemu-img")
def test_a_container_is_not_treated_as_an_empty_disk_or_one_without_a_move(tmp_path: Path) -> None:
    run("qemu-img", "create", "-q", "-f", "vmdk", tmp_path / "a.vmdk", "64M")
    layout = run_aligntool("layout", "--yes", tmp_path / "a.vmdk", "--part", "rest:linux", code=3)
    assert f"qemu-img convert -f vmdk -O qcow2 {tmp_path}/a.vmdk new.qcow2" in layout.stderr
    (tmp_path / "a.qcow2").write_bytes(b"QFI\xfb\0\0\0\3".ljust(4 << 20, b"\0"))  # its header is damaged
    for words in (("plan", "layout", "--part", "rest:linux"), ("status",), ("resume",), ("rollback",)):
        done = run_aligntool(*words, tmp_path / "a.qcow2")
        assert (done.returncode, done.stdout) == (3, "") and "qemu-img cannot open" in done.stderr


def test_a_hyphen_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk = tmp_path / "disk.img"
    disk.write_bytes(bytes(4 << 20))
    assert run_aligntool("plan", "layout", "-o", "-", "--part", "rest:linux", disk, code=0).stdout.startswith("{")
    listed = run("sh", "-c", f"{SOURCES.parent}/.venv/bin/aligntool snapshot -o - | tar -tJ")
    assert any(line.startswith("sys/") for line in listed.splitlines())
    page = run("sh", "-c", f"{SOURCES.parent}/.venv/bin/aligntool report -o - {disk}")
    assert page.startswith("<!DOCTYPE html>")
    assert not (tmp_path / "-").exists()


def test_commands_for_a_captured_machine_are_marked_as_commands_for_that_machine(tmp_path: Path) -> None:
    disks = [MadeDisk("vda", 1 << 30, [MadePartition(1, 63 * 512, 1 << 28), MadePartition(2, 1 << 29, 1 << 20)])]
    root = make_tree(tmp_path / "tree", disks)
    import json

    document = json.loads(run_aligntool("audit", "--json", "--sysroot", root).stdout)
    typed = [one["next"] for one in document["findings"]]
    typed += [part["mend"]["next"] for part in document["disks"][0]["partitions"] if part["mend"]]
    commands = [one for one in typed if "/dev/" in one]
    assert commands and all(one.startswith("on the captured machine: ") for one in commands)
    text = run_aligntool("audit", "--sysroot", root).stdout
    assert not [line for line in text.splitlines() if "/dev/vda" in line and "captured machine" not in line]
