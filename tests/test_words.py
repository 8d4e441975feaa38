"""Words of messages, names and docs: plain technical English with the terms of the field, one idea one word."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "aligntool").rglob("*.py"))
PAGES = sorted(
    [
        *(ROOT / "aligntool").rglob("*.md"), *(ROOT / "aligntool" / "schemas").glob("*.json"),
        *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog.d").glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md",
    ]
)  # fmt: skip

THINGS = ("block device", "disk", "drive", "partition", "folder", "result", "plan", "number", "text", "regular file")
# The phrase, and what to write instead.
BANNED = {
    r"reckon\w*": "compute, estimate",
    r"mends|mended|mending": "repair, fix",
    r"nobody|somebody|whoever": "name who or what it is",
    r"unless said": "[default: ...]",
    r"(is|are|was|were) told": "reported, stated",
    r"(it|that) tells": "reports, shows",
    r"take[ns]? away|took away": "remove",
    r"gives? up|given up|gave up": "overwrite, stop",
    r"thinks? out|thought out": "plan",
    r"which \w+ is it to be": "state what is missing",
    r"says? how large": "size unknown",
    rf"(?<!there )(is|was) no ({'|'.join(THINGS)})": "is not a ...",
}
# In names of tests, with the words above.
BANNED_IN_TESTS = (
    r"telling", r"saying", r"said", r"wish(es)?", r"alike", r"but for", r"left alone", r"all the same", r"as it stands",
    r"comes? out", r"has a say", r"knows? of", r"leave to", r"ma[dk]es? whole", r"g(o|oes|one|oing) on",
    r"tak(e|es|en|ing) (away|back)", r"(?<!there )(is|are|was|were) no(?! longer)", r"(is|are) asked", r"way back",
)  # fmt: skip
LONGEST_TEST = 80  # characters of the name of a test
# Riddling file names, banned by the style guide.
BANNED_FILES = {
    "coming_back", "numbered", "incomplete", "excuses", "wishes", "telling", "beginnings", "unmakeable", "meaning",
    "chance", "asked", "beforehand", "given_up", "follow", "moving", "workshop", "carrying", "whereabouts", "untouched",
    "site", "lasting", "row", "lattice",
}  # fmt: skip


@cache
def _texts(path: Path) -> tuple[tuple[int, str], ...]:
    """Return (line, text) of every string of a module that is not a docstring."""
    tree = ast.parse(path.read_text())
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return tuple(
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    )


@cache
def _lines(path: Path) -> tuple[tuple[int, str], ...]:
    return tuple(enumerate(path.read_text().splitlines(), 1))


def _found(banned: str) -> Iterator[str]:
    rule = re.compile(rf"\b(?:{banned})\b", re.IGNORECASE)
    for path in SOURCES:
        for line, text in _texts(path):
            if match := rule.search(text):
                yield f"{path.relative_to(ROOT)}:{line}: {match[0]!r} in {text[:80]!r}"
    for path in PAGES:
        for number, text in _lines(path):
            if match := rule.search(text):
                yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}"


@pytest.mark.parametrize("banned", BANNED)
def test_no_message_has_a_banned_word(banned: str) -> None:
    found = list(_found(banned))
    assert not found, f"write: {BANNED[banned]}"


def test_no_module_has_a_banned_name() -> None:
    assert len(SOURCES) > 50
    assert not [str(path.relative_to(ROOT)) for path in SOURCES if path.stem in BANNED_FILES]


def test_names_of_tests_are_short_and_have_no_banned_word() -> None:
    banned = re.compile(rf"\b(?:{'|'.join((*BANNED, *BANNED_IN_TESTS))})\b")
    texts = [path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    names = [name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)]
    assert len(names) > 2500
    assert not [name for name in names if len(name) > LONGEST_TEST or banned.search(name.replace("_", " "))]
