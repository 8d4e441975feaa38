"""One finding code in words, for `aligntool explain` and for docs/findings.md."""

from collections.abc import Iterator

from aligntool.audit import Code
from aligntool.audit.explanations import EXPLANATIONS
from aligntool.render import queue_depth
from aligntool.render.lines import EMPTY, Line, Style, plain, wrapped

_QUESTIONS = (
    ("What it means", "means"),
    ("How it is judged", "judged"),
    ("What it costs", "costs"),
    ("What to do", "do"),
)

_CHAPTERS = {
    "1": "Where a partition starts",
    "2": "What a device says of itself",
    "3": "Partition tables",
    "4": "The layers above a partition",
    "5": "Drives and links",
    "6": "Arrays, and whether they come back",
    "9": "What could not be seen",
}


def explain_lines(code: Code, *, width: int) -> Iterator[Line]:
    explanation = EXPLANATIONS[code]
    yield (
        (code.value, Style.TITLE),
        (f"  {explanation.title}  ", Style.TITLE),
        (explanation.severity, Style.NOTE),
    )
    for question, name in _QUESTIONS:
        yield EMPTY
        yield ((question, Style.TITLE),)
        for line in wrapped("  " + getattr(explanation, name), width, "  "):
            yield plain(line)


def list_lines(*, width: int) -> Iterator[Line]:
    """Every code in a line, and what else is explained."""
    for code in Code:
        explanation = EXPLANATIONS[code]
        yield (
            (code.value, Style.TITLE),
            (f"  {explanation.severity:<8}", Style.NOTE),
            (explanation.title, Style.PLAIN),
        )
    yield ((queue_depth.TOPIC, Style.TITLE), (f"  {queue_depth.TITLE}", Style.PLAIN))


def findings_markdown() -> str:
    """docs/findings.md, whole."""
    parts = [_INTRODUCTION]
    chapter = ""
    for code in Code:
        if code.value[2] != chapter:
            chapter = code.value[2]
            parts.append(f"## {_CHAPTERS[chapter]}\n")
        explanation = EXPLANATIONS[code]
        parts.append(f"### {code.value}: {explanation.title}\n\nSeverity: {explanation.severity}.\n")
        parts += [f"**{question}.** {getattr(explanation, name)}\n" for question, name in _QUESTIONS]
    return "\n".join(parts)


_INTRODUCTION = """# Findings

Every rule of the audit has one code, which never changes its meaning.
`aligntool explain CODE` shows the same text as this page; `aligntool explain` lists all codes.

*Error*: off the physical grid, or data are in danger.
*Warning*: off a page, unit, allocation unit or chunk, or a table that wants attention.
*Info*: worth knowing, nothing to be done in a hurry.

This page is made from the program: `aligntool explain --markdown > docs/findings.md`.
"""
