"""One rule in words: what `aligntool explain CODE` and docs/findings.md say of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """Four questions. `severity` is the usual one; where it depends, `judged` says on what."""

    severity: str
    title: str
    means: str
    judged: str
    costs: str
    do: str
