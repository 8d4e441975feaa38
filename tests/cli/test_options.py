"""Each option means one thing, each help text names its values, and each usage error exits with 2, for
every command.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from aligntool.cli.app import COMMANDS
from tests.commands import whole_program
from tests.conftest import run
from tests.mover.loop_mounts import looped
from tests.run_aligntool import run_aligntool
from tests.thorough import sample


def _walk(group: Any, before: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        below = _walk(command, (*before, name)) if hasattr(command, "commands") else {(*before, name): command}
        found.update(below)
    return found


ALL = _walk(whole_program())
OPTIONS = [
    (words, option) for words, command in ALL.items() for option in command.params if option.param_type_name == "option"
]
COLOURED = re.compile(r"\x1b\[[0-9;]*m")


def test_the_list_of_tested_commands_is_complete() -> None:
    assert {" ".join(words) for words in ALL} == set(COMMANDS)


def test_an_option_has_one_kind_of_value_and_the_same_aliases_everywhere() -> None:
    """A flag of one command takes no value in another, a size is not a file, and -p is --partition everywhere."""
    kinds: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    names: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for _, option in OPTIONS:
        for name in option.opts:
            kinds[name].add((bool(option.is_flag), (option.metavar or "").replace("N[,N]", "N")))
            names[name].add(tuple(option.opts))
    assert {name: found for name, found in names.items() if len(found) > 1} == {}
    several = {name: found for name, found in kinds.items() if len(found) > 1}
    assert several == {"--level": several["--level"], "-l": several["-l"]}  # an array of one chunk has no level 1


def test_every_result_file_can_be_standard_output_and_can_be_overwritten() -> None:
    for words, command in ALL.items():
        names = {name: option for option in command.params for name in option.opts}
        if words == ("convert",):
            continue  # it writes to a disk
        assert ("--output" in names) == ("--overwrite" in names), words
        if "--output" in names:
            assert "- is standard output" in names["--output"].help, words


@pytest.mark.parametrize("words", [(), *ALL], ids=" ".join)
def test_help_texts_name_values_and_not_types(words: tuple[str, ...]) -> None:
    text = run_aligntool(*words, "--help", code=0, env={"COLUMNS": "100"}).stdout
    assert not re.search(r"list\[|\bTEXT\b|<(?!path>|text>)[a-z|]+>|\bINTEGER\b|\bFLOAT\b", text), text
    options = [option for of, option in OPTIONS if of == words and not option.is_flag and not option.hidden]
    assert all(option.metavar for option in options)


def _words_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return as many arguments as the command requires."""
    return tuple("/nowhere/x" for each in ALL[words].params if each.param_type_name == "argument" and each.required)


@sample(10)
@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_an_unknown_option_a_missing_argument_and_a_bad_choice_are_usage_errors(words: tuple[str, ...]) -> None:
    given = _words_of(words)
    wrong = [(*given, "--no-such-option"), (*given, "--color", "sometimes")]
    wrong += [()] if given else []
    for option in (option for of, option in OPTIONS if of == words):
        if not option.is_flag:
            wrong.append((*given, option.opts[0]))
        if "|" in (option.metavar or "") or option.metavar in ("SIZE", "SECONDS", "N", "N[,N]"):
            wrong.append((*given, option.opts[0], "no such value"))
    for each in wrong:
        done = run_aligntool(*words, *each)
        assert (done.returncode, done.stdout) == (2, ""), (each, done.stderr)
        first, hint = done.stderr.splitlines()
        assert first.startswith("aligntool: ") and not first.endswith("."), each
        assert hint.startswith("  → aligntool") and hint.endswith(" --help"), each


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "nonsense", "x"), ("nonsense",),
        ("raid", "create", "/nowhere/x"), ("raid", "tune", "/nowhere/x"),
        ("raid", "tune", "/nowhere/x", "--level", "0"),
        ("raid", "plan", "--level", "1", "--fs", "fat", "/nowhere/x"),
        ("raid", "plan", "--level", "1", "--workload", "games", "/nowhere/x"),
        ("raid", "plan", "--level", "1", "--system", "dos", "/nowhere/x"),
        ("raid", "plan", "--level", "1", "--database-page", "8KiB", "/nowhere/x"),
        ("layout", "/nowhere/x", "--wipe", "/nowhere/y", "--part", "rest:linux"),
        ("report",), ("report", "-o", "a", "--chart", "x"),
        ("report", "--svg", "a"), ("report", "-o", "a", "--svg", "a", "--chart", "x"),
        ("explain", "AT999"), ("schema", "nonsense"),
        ("audit", "--format", "prometheus", "--sysroot", "a", "--sysroot", "b"),
        ("audit", "--root", "/mnt", "--sysroot", "a"),
        ("audit", "--format", "prometheus", "--json"), ("audit", "--json", "--format", "text"),
        ("audit", "--host"), ("audit", "--serials"), ("audit", "--serials", "--json"), ("audit", "-q", "-v"),
        ("realign", "--key-file", "k", "/nowhere/x"), ("realign", "--layers", "--rate", "1MiB", "/nowhere/x"),
        ("partition", "--undo", "--shrink", "/nowhere/x"), ("partition", "--undo", "--grain", "4KiB", "/nowhere/x"),
        ("partition", "--undo", "--table", "gpt", "/nowhere/x"),
        ("partition", "--undo", "--key-file", "k", "/nowhere/x"),
        ("raid", "persist", "--yes", "-o", "plan.json", "md0"),
        ("raid", "persist", "--yes", "--sysroot", "/nowhere", "md0"),
        ("raid", "reformat", "--yes", "-o", "plan.json", "--lba-size", "4096", "md0"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_contradictory_arguments_are_usage_errors(words: tuple[str, ...]) -> None:
    done = run_aligntool(*words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr


@pytest.mark.parametrize("words", [("explain",), ("drives",), ("recipes", "show"), ("schema",)], ids=" ".join)
def test_a_name_that_begins_with_a_hyphen_is_printed_as_it_was_typed(words: tuple[str, ...]) -> None:
    said = run_aligntool(*words, "--", "-x").stderr
    assert "'-x'" in said and "./-x" not in said


PLAIN = {name: "" for name in ("NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR")}


@sample(10)
@pytest.mark.parametrize(
    ("words", "environment", "coloured"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"CLICOLOR_FORCE": "1"}, True),
        ((), {"CLICOLOR_FORCE": "0"}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        (("--color", "always"), {"NO_COLOR": "1", "TERM": "dumb"}, True),
        (("--color=never",), {"FORCE_COLOR": "1"}, False),
        (("--color", "auto"), {"FORCE_COLOR": "1"}, False),
    ],
)
@pytest.mark.parametrize("command", [("explain",), ("explain", "AT101"), ("drives", "WD20EARS"), ("recipes", "list")])
def test_an_option_overrides_the_environment(
    command: tuple[str, ...], words: tuple[str, ...], environment: dict[str, str], *, coloured: bool
) -> None:
    """In a pipe, where there is no colour by default. The option may be before the command or after it."""
    for line in ((*words, *command), (*command, *words)):
        said = run_aligntool(*line, code=0, env=PLAIN | environment).stdout
        assert (said != COLOURED.sub("", said)) is coloured


def test_json_is_never_coloured(tmp_path: Path) -> None:
    image = tmp_path / "d.img"
    image.write_bytes(bytes(4 << 20))
    for words in (("audit", image, "--json"), ("recipes", "list", "--json"), ("audit", image, "--format=prometheus")):
        assert "\x1b" not in run_aligntool(*words, "--color", "always").stdout


def test_a_captured_machine_that_is_given_twice_is_audited_twice(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent / "audit/machines"
    snapshot = next(path for path in sorted(root.iterdir()) if path.suffix in (".xz", ".gz"))
    one = run_aligntool("audit", "--sysroot", snapshot)
    two = run_aligntool("audit", "--sysroot", snapshot, "--sysroot", snapshot)
    assert two.returncode == one.returncode
    assert two.stdout.count(one.stdout) == 2 and two.stdout.startswith(f"{snapshot}:")
    single = run_aligntool("audit", "--json", "--sysroot", snapshot).stdout
    assert run_aligntool("audit", "--json", "--sysroot", snapshot, "--sysroot", snapshot).stdout == 2 * single


def test_a_quiet_audit_of_several_machines_without_findings_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "sys" / "block").mkdir(parents=True)
    done = run_aligntool("audit", "-q", "--sysroot", tmp_path, "--sysroot", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_hyphen_writes_only_the_plan_to_standard_output(tmp_path: Path) -> None:
    image = tmp_path / "d.img"
    image.write_bytes(bytes(16 << 20))
    words = ("plan", "layout", image, "--part", "rest:linux")
    assert run_aligntool(*words, "-o", "-", code=0).stdout == run_aligntool(*words, "--json", code=0).stdout
    kept = tmp_path / "plan.json"
    old = '{"schema": "aligntool.plan", "version": 1}'
    kept.write_text(old)
    assert run_aligntool(*words, "-o", kept).returncode == 3 and kept.read_text() == old
    assert "aligntool apply" in run_aligntool(*words, "-o", kept, "--overwrite", code=0).stdout
    assert kept.read_text() == run_aligntool(*words, "--json", code=0).stdout


@pytest.mark.parametrize(
    ("words", "undone"),
    [(("audit",), "written"), (("fleet",), "written"), (("bench",), "measured"), (("trace", "record"), "recorded")],
)
def test_a_result_that_cannot_be_saved_is_refused_before_anything_is_read(
    tmp_path: Path, words: tuple[str, ...], undone: str
) -> None:
    command = ("--", "true") if words[0] == "trace" else ()
    refused = run_aligntool(*words, tmp_path / "no.img", "-o", tmp_path / "gone" / "x", *command, code=3)
    assert f"gone/x cannot be written; nothing was {undone}" in refused.stderr
    assert "gone is not a folder" in refused.stderr and "no.img" not in refused.stderr


ROOT = Path(__file__).parents[2]
LAYOUT = ("plan", "layout", "disk.img", "--part", "rest:linux")
READ_FILES = {
    "a recipe of a layout": ("recipes/layouts/data-disk.toml", ("plan", "layout", "disk.img", "--recipe")),
    "a recipe of a realign": ("recipes/realign/sector-63.toml", ("plan", "realign", "disk.img", "--recipe")),
    "a profile": ("recipes/bench/peak.toml", ("bench", "run", "disk.img", "--profile")),
    "a key": (None, ("plan", "partition", "disk.img", "--key-file")),
    "a file that a command reads": (None, ("trace", "record", "/dev/null", "-o", "./FILE.toml", "--", "cat")),
    "a disk": (None, LAYOUT),
}


@pytest.mark.needs_tools("mkfs.ext4", "sfdisk", "fio")
@pytest.mark.parametrize("story", READ_FILES)
def test_no_result_file_replaces_a_file_that_is_read(
    story: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disk.img").write_bytes(bytes(16 << 20))
    if story == "a key":
        run("mkfs.ext4", "-q", "disk.img", "8M")
    elif story == "a recipe of a realign":
        run("sfdisk", "-q", "disk.img", stdin="label: dos\nstart=63, size=9000\n")
    source, words = READ_FILES[story]
    file = Path("disk.img" if story == "a disk" else "FILE.toml")
    if story != "a disk":
        file.write_bytes((ROOT / source).read_bytes() if source else b"secret")
        words = (*words, f"./{file}")
    before = file.read_bytes()
    given = () if story == "a file that a command reads" else ("-o", tmp_path / file)
    done = run_aligntool(*words[:2], "--overwrite", *words[2:], *given, code=3)
    assert f"{file} is what is read; nothing was " in done.stderr and file.read_bytes() == before


@pytest.mark.needs_root
def test_no_result_file_replaces_the_backing_file_of_a_loop_device(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(16 << 20))
    with looped(image) as device:
        for target in ((device,), ()):
            done = run_aligntool("audit", *target, "-o", image, "--overwrite", code=3)
            assert f"{image} is attached to {device}; nothing was written" in done.stderr
    assert image.read_bytes() == bytes(16 << 20)


def test_a_disk_is_wiped_only_if_wipe_names_it(tmp_path: Path) -> None:
    image, link = tmp_path / "d.img", tmp_path / "link"
    image.write_bytes(bytes(16 << 20))
    link.symlink_to(image)
    words = ("plan", "layout", image, "--part", "rest:linux")
    for named, code in ((tmp_path / "e.img", 2), (image, 0), (link, 0)):
        assert run_aligntool(*words, "--wipe", named).returncode == code, named


@pytest.mark.parametrize("name", ["md4711", "/dev/md4711", "/dev/md/nowhere"])
def test_a_name_that_only_an_array_has_is_not_taken_for_an_empty_drive(name: str) -> None:
    said = run_aligntool("raid", "tune", name, code=3).stderr
    assert f"{name}: no running md array has that name" in said and "level" not in said
