"""No command that changes anything is printed to be pasted, and each section that is named instead exists."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool import commands
from aligntool.commands import PAGE, ByHand, Command, Effect, Hint, by_hand, command, split_step, typed, typed_on_loop
from tests.suggested import GAP, changing_commands

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "aligntool").rglob("*.py"))
SECTIONS = re.findall(r"^## (.*)$", (ROOT / PAGE).read_text(), re.MULTILINE)

LOOKING = (
    "blkid -p /dev/sda", "cryptsetup luksDump /dev/sda1", "e2fsck -f -n a.img?offset=32256", "lsblk", "lsblk /dev/sda",
    "mdadm --detail /dev/md0", "sfdisk --dump /dev/sda", "sgdisk -v /dev/sda", "wipefs --no-act /dev/sda",
    "losetup -r -f --show -o 32256 --sizelimit 512 a.img",
)  # fmt: skip
RELEASING = (
    "umount /srv", "swapoff /dev/sda2", "cryptsetup close x", "vgchange -an vg", "mdadm --stop /dev/md0",
    "losetup -d /dev/loop0", "dmsetup remove /dev/dm-1", "zpool export tank",
)  # fmt: skip
CHANGING = (
    "wipefs --all /dev/sda", "wipefs --no-act --all /dev/sda", "sgdisk -e /dev/sda", "sgdisk -v -e /dev/sda",
    "sfdisk --delete /dev/sda 1", "sfdisk /dev/sda", "e2fsck -f /dev/sda1", "e2fsck -fn /dev/sda1 -y",
    "dd if=/dev/zero of=/dev/sda", "dd if=/dev/sda of=FILE bs=1M", "mkswap /dev/sda1", "vgchange -ay vg",
    "losetup -f --show a.img", "mdadm --stop --scan", "cryptsetup repair /dev/sda1", "nvme format /dev/nvme0n1",
    "mount /dev/sda1 /mnt", "partprobe /dev/sda", "blockdev --setrw /dev/sda", "rm file", "an-unknown-program",
    "umount", "tee /dev/sda", "btrfs check --repair /dev/sda1", "apt-get install fio", "blkid -p --probe=x",
    "umount -l /srv",
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        *((line, Effect.LOOKS) for line in LOOKING),
        *((line, Effect.RELEASES) for line in RELEASING),
        *((line, Effect.CHANGES) for line in CHANGING),
    ],
)
def test_a_command_that_is_not_known_to_be_harmless_is_a_change(line: str, effect: Effect) -> None:
    program, *arguments = line.split()
    command = Command(program, tuple(arguments))
    assert command.effect is effect
    printed = line if program == "lsblk" else f"sudo {line}"
    assert (str(command) == printed) == (effect is not Effect.CHANGES) or "?" in line


@pytest.mark.parametrize("line", CHANGING)
def test_of_a_change_only_the_program_and_a_section_are_printed(line: str) -> None:
    program, *arguments = line.split()
    said = str(Command(program, tuple(arguments)))
    assert said.startswith(f"by hand, with {program}: {PAGE}#")
    assert not any(argument in said.split() for argument in arguments)
    looped = typed_on_loop(line, "a.img", "-o", "5", "--sizelimit", "7")
    assert looped.startswith(f"by hand, with {program} on a.img: {PAGE}#")


def test_an_own_command_is_printed_and_output_goes_to_no_device() -> None:
    assert str(Command("aligntool", ("audit", "a b.img"), sudo=False)) == "aligntool audit 'a b.img'"
    assert str(Command("xz", ("-dc", "a.xz"), output="disk.img")) == "xz -dc a.xz > disk.img"
    assert Command("xz", ("-dc", "a.xz"), output="/dev/sda").effect is Effect.CHANGES


def test_another_command_has_the_same_arguments_and_no_other_word_is_replaced() -> None:
    path = "/srv/aligntool resume /disk.img"
    hint = Hint("on the captured machine: ", command("resume", path, "--journal FILE"))
    assert hint == f"on the captured machine: fill in FILE: aligntool resume '{path}' --journal FILE"
    back = f"on the captured machine: fill in FILE: aligntool rollback '{path}' --journal FILE"
    assert hint.renamed("resume", "rollback") == back
    assert split_step(back) == ("on the captured machine: fill in FILE: ", back.split(": ")[2], "")
    assert Hint(f"by hand: aligntool resume {path}").renamed("resume", "rollback").endswith(f"resume {path}")


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_bash_reads_every_value_as_it_was(values: list[str]) -> None:
    values = [f"x{value}" for value in values]  # with a hyphen in front it would be refused
    line = typed("cat", *values)
    assert line.startswith("sudo cat ")
    script = f"sudo() {{ printf '%s\\0' \"$@\"; }}\n{line}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode().split("\0")[:-1] == ["cat", *values]


@given(st.text(min_size=1))
def test_no_value_becomes_an_option(value: str) -> None:
    assert Command("umount", (f"-{value}",)).effect is Effect.CHANGES


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _texts(path: Path) -> Iterator[str]:
    """Yield every string of a module except docstrings, with a gap for each value."""
    tree = _tree(path)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    inner = {id(body[0].value) for body in bodies if isinstance(body[0], ast.Expr)}
    inner |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr():
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
            case ast.Constant(value=str(text)) if id(node) not in inner:
                yield text


SHOW_WHAT_RUNS = ("cli/plan.py", "raid/commands.py", "realign/shrink.py")  # what aligntool itself runs
REPORTS = (  # what a program did, or does, in a sentence
    "mdadm --incremental does not start it", "mdadm --incremental starts no array that two lines match", f"lvm {GAP}",
    f"cryptsetup {GAP}", f"cryptsetup repair {GAP}",
)  # fmt: skip


def test_no_text_of_the_program_has_a_command_that_changes_anything() -> None:
    paths = [path for path in SOURCES if not str(path).endswith(SHOW_WHAT_RUNS)]
    texts = [(path.name, text) for path in paths for text in _texts(path)]
    found = {(name, words) for name, text in texts for words in changing_commands(text, begun=True)}
    assert sorted((name, words) for name, words in found if words not in REPORTS) == []
    assert {words for _, words in found} == set(REPORTS)


@pytest.mark.parametrize("page", ["aligntool/audit/findings.md"])
def test_no_page_that_the_program_prints_has_a_command_that_changes_anything(page: str) -> None:
    assert [*changing_commands((ROOT / page).read_text(), begun=True)] == []


EXPLAINING = ("by-hand.md", "contributing.md", "benchmarks.md")
PAGES = [path for path in sorted((ROOT / "docs").glob("**/*.md")) if not str(path).endswith(EXPLAINING)]
OWN_FILES = (  # that the same line made
    r"rm -f \$f", "dnf install ./dist/aligntool-", "zypper install --allow-unsigned-rpm ./dist/aligntool-",
)  # fmt: skip


def _to_paste(page: str) -> Iterator[str]:
    """Yield each change among the commands of a page that name what they change: in blocks, and within sentences."""
    for number, part in enumerate(re.split(r"^```.*\n", page, flags=re.MULTILINE)):
        if number % 2:
            yield from changing_commands(part)
            continue
        for span in re.findall(r"`([^`]+)`", part):
            on_something = "sudo " in span or re.search(r"(?<![\w.])/[a-z]|\b[A-Z]{3,}\b", span)
            yield from (words for words in changing_commands(span) if on_something)


@pytest.mark.parametrize("page", [page for page in PAGES if "decisions" not in page.parts], ids=lambda page: page.name)
def test_no_page_but_that_of_changes_by_hand_has_one_to_paste(page: Path) -> None:
    assert [words for words in _to_paste(page.read_text()) if not words.startswith(OWN_FILES)] == []


@pytest.mark.parametrize("readme", ["README.md", "README.ja.md", "SECURITY.md"])
def test_no_first_page_has_a_change_to_paste(readme: str) -> None:
    assert [*_to_paste((ROOT / readme).read_text())] == []


def test_the_search_finds_a_change_to_paste_in_a_page() -> None:
    assert [*_to_paste("`cryptsetup reencrypt` encrypts, and `sudo dd if=a of=/dev/sdb1` writes.")]
    assert [*_to_paste("\n```\nsfdisk -d /dev/sda | sfdisk /dev/sdb\n```\n")]
    assert not [*_to_paste("`cryptsetup reencrypt` encrypts, after `sudo umount /srv`.")]


def test_the_search_finds_commands_that_change_something() -> None:
    for line in (*CHANGING, "sudo wipefs --all", "as root: partprobe /dev/sda, or restart", f"sgdisk -e {GAP}"):
        known = line not in ("an-unknown-program", "umount", "rm file", "blkid -p --probe=x")
        assert bool([*changing_commands(line)]) == known, line
    for line in (*LOOKING, *RELEASING):
        assert [*changing_commands(line)] == [], line


PROGRAMS = {"sudo", "aligntool", *(pattern[0] for patterns in commands._PATTERNS.values() for pattern in patterns)}


def _hints(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is given as a hint, or as the next command."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="hint" | "next" | "next_" | "denied", value=hint):
                yield hint
            case ast.Assign(targets=[ast.Name(id="hint")], value=hint):
                yield hint
            case ast.Call(func=ast.Name(id="Refusal"), args=[_, _, _, hint, *_]):
                yield hint
            case ast.Call(func=ast.Name(id="Unseen"), args=[_, _, hint, *_]):
                yield hint


def _commands_with_values(node: ast.AST) -> Iterator[str]:
    for text in ast.walk(node):
        match text:
            case ast.JoinedStr(values=[ast.Constant(value=str(begin)), ast.FormattedValue(), *_]):
                yield from [ast.unparse(text)] if begin.split()[:1] and begin.split()[0] in PROGRAMS else []


def test_a_hint_with_a_value_is_a_command_and_not_text() -> None:
    """Quotation marks, sudo and the name of the disk are decided in commands.py alone."""
    trees = {path: _tree(path) for path in SOURCES}
    found = {text for tree in trees.values() for hint in _hints(tree) for text in _commands_with_values(hint)}
    paths = [path for path in SOURCES if not str(path).endswith(SHOW_WHAT_RUNS)]
    found |= {text for path in paths for text in _commands_with_values(trees[path]) if "shell_word" in text}
    about_codes = {text for text in found if text.startswith("f'aligntool explain {")}
    refused = {text for text in found if text.startswith("f'fsck.fat found errors")}  # a sentence
    assert found - about_codes - refused == set()
    assert about_codes


@pytest.mark.parametrize(
    "code",
    [
        'Refused(text, hint=f"lsblk {x}")',
        'hint = f"sudo umount {x}"',
        'Refusal(a, b, c, f"aligntool audit {x}", False)',
    ],
)
def test_the_search_finds_a_hint_with_a_value(code: str) -> None:
    assert [text for hint in _hints(ast.parse(code)) for text in _commands_with_values(hint)]


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")  # as GitHub and Sphinx make them


def test_every_section_that_a_message_names_exists() -> None:
    assert {_anchor(heading) for heading in SECTIONS} == {section.value for section in ByHand}
    texts = [path.read_text() for path in (*SOURCES, *(ROOT / "docs").rglob("*.md"), *ROOT.glob("aligntool/**/*.md"))]
    named = {anchor for text in texts for anchor in re.findall(rf"{PAGE}#([\w-]+)|\(by-hand\.md#([\w-]+)", text)}
    anchors = {one or other for one, other in named}
    assert len(anchors) > 8 and anchors <= {section.value for section in ByHand}
    said = by_hand(ByHand.SIGNATURES, "wipefs", "/dev/sda")
    assert said == f"by hand, with wipefs on /dev/sda: {PAGE}#a-remnant-of-another-content"


def test_every_section_is_named_by_a_message() -> None:
    code = "\n".join(path.read_text() for path in SOURCES)
    assert [section.name for section in ByHand if f"ByHand.{section.name}" not in code] == []


@pytest.mark.parametrize("heading", [heading for heading in SECTIONS if heading != "Save first"])
def test_every_section_states_what_to_save_before_it_states_what_to_type(heading: str) -> None:
    page = (ROOT / PAGE).read_text()
    text = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    saving = r"\b[Ss]aved?\b|cp -a|cp --no-clobber|vgcfgbackup|[Cc]opy the files|dmsetup info"
    save = re.search(saving, text)
    lines = re.sub("[`|]", "\n", text)  # each command on a line of its own
    changes = [words for words in changing_commands(lines, begun=True) if not re.search(saving, words)]
    assert save and changes
    assert save.start() < text.index(changes[0])
    assert re.search(r"[Cc]heck|[Cc]ompare", text)
