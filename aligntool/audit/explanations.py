"""The meaning of each finding code, read from findings.md in this package, which is also the page docs/findings.md."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data  # importlib.resources takes 20 ms to import

from aligntool.audit.report import Code

QUESTIONS = ("What it means", "How it is judged", "What it costs", "What to do")

_SECTION = re.compile(
    r"^### (AT\d+): (.+)\n\nSeverity: (error|warning|info)\.\n\n"
    + r"\n\n".join(rf"\*\*{question}\.\*\* (.+(?:\n.+)*)" for question in QUESTIONS),
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """`severity` is the usual one. `answers` are to QUESTIONS, in their order."""

    severity: str
    title: str
    answers: tuple[str, ...]


@cache
def findings_markdown() -> str:
    """Return the page docs/findings.md."""
    return (get_data("aligntool.audit", "findings.md") or b"").decode()


@cache
def explanations() -> Mapping[Code, Explanation]:
    """Return the explanation of every code."""
    return {
        Code(code): Explanation(severity, title, tuple(answer.replace("\n", " ") for answer in answers))
        for code, title, severity, *answers in _SECTION.findall(findings_markdown())
    }


def explanation(code: Code) -> Explanation:
    return explanations()[code]
