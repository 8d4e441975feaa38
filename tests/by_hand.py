"""Type commands of docs/by-hand.md, as a user who follows a hint to its section does."""

import re
from pathlib import Path

from aligntool.commands import PAGE
from tests.conftest import run

_PAGE = (Path(__file__).parent.parent / PAGE).read_text()


def section_of(hint: str) -> str:
    """Return the text of the section that a hint names."""
    anchor = re.search(rf"{re.escape(PAGE)}#([\w-]+)", hint)
    assert anchor, f"no section is named: {hint}"
    for section in re.split(r"^## ", _PAGE, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") == anchor[1]:
            return text
    raise AssertionError(f"there is no section {anchor[1]}")


def command_of(hint: str, begin: str, **names: str | int | Path) -> str:
    """Return the command of the named section that begins so, without sudo, with these names in place of its words."""
    found = [span.removeprefix("sudo ") for span in re.findall(r"`([^`]+)`", section_of(hint))]
    command: str = next(span for span in found if span.startswith(begin) or f"| sudo {begin}" in span)
    for name, value in names.items():
        assert re.search(rf"\b{name}\b", command), f"{name} is not in {command}"
        command = re.sub(rf"\b{name}\b", str(value), command)
    return command.replace("sudo ", "")


def type_by_hand(hint: str, begin: str, **names: str | int | Path) -> str:
    """Run the command that `command_of` returns."""
    printed: str = run("sh", "-c", command_of(hint, begin, **names))
    return printed
