"""What two records differ in, by class and by place, and which of it was intended.

In: two records and a TOML file of explanations. Out: lines on standard output and an exit code.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

MACHINE = ("command", "exit code", "image", "JSON", "metrics", "kept file")  # each has to be explained
TEXT = ("text", "help text", "kept text")
MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    command: str
    path: str
    before: object
    after: object
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Patterns as of fnmatch; `replace` makes the old value of the new one."""

    reason: str
    kind: str
    command: str
    path: str
    before: str | None  # a regular expression that the whole value must match
    after: str | None
    replace: tuple[tuple[str, str], ...]

    def fits(self, found: Difference) -> bool:
        if not (fnmatchcase(found.kind, self.kind) and fnmatchcase(found.path, self.path)):
            return False
        if not fnmatchcase(found.command, self.command):
            return False
        for pattern, value in ((self.before, found.before), (self.after, found.after)):
            if pattern is not None and not re.fullmatch(pattern, str(value), re.DOTALL):
                return False
        if not self.replace:
            return True
        made = str(found.before)
        for pattern, by in self.replace:
            made = re.sub(pattern, by, made)
        return made == str(found.after)


def read_explanations(path: Path | None) -> list[Explanation]:
    """Read `[[explained]]` tables with `reason`, and `kind`, `command`, `path`, `before`, `after`, `replace`."""
    if path is None:
        return []
    known = {"reason", "kind", "command", "path", "before", "after", "replace"}
    found = []
    for number, each in enumerate(tomllib.loads(path.read_text()).get("explained", []), 1):
        if not each.get("reason") or set(each) - known:
            raise SystemExit(f"{path}: entry {number} needs a reason, and has no key but {', '.join(sorted(known))}")
        pairs = tuple((str(pattern), str(by)) for pattern, by in each.get("replace", []))
        found.append(
            Explanation(
                each["reason"], each.get("kind", "*"), each.get("command", "*"), each.get("path", "*"),
                each.get("before"), each.get("after"), pairs,
            )
        )  # fmt: skip
    return found


def compare_records(
    before: dict[str, dict[str, dict[str, object]]],
    after: dict[str, dict[str, dict[str, object]]],
    explanations: list[Explanation],
) -> list[Difference]:
    """Return every difference, those that are explained with their reason."""
    for name in ("root", "tables"):
        if before[name] != after[name]:
            raise SystemExit(f"the records are not made alike: {name} {before[name]} and {after[name]}")
    found: list[Difference] = []
    left, right = before["entries"], after["entries"]
    for command in sorted(left.keys() | right.keys()):
        if command not in left or command not in right:
            here = command in left
            found.append(Difference("command", command, "", here or MISSING, not here or MISSING))
            continue
        found += _entry(command, left[command], right[command])
    return [replace(each, reason=_reason(each, explanations)) for each in found]


def _reason(found: Difference, explanations: list[Explanation]) -> str:
    return next((each.reason for each in explanations if each.fits(found)), "")


def _entry(command: str, before: dict[str, object], after: dict[str, object]) -> Iterator[Difference]:
    if before["exit"] != after["exit"]:
        yield Difference("exit code", command, "exit", before["exit"], after["exit"])
    for stream in ("stdout", "stderr"):
        yield from _output(command, stream, before[stream], after[stream])
    left, right = before.get("files", {}), after.get("files", {})
    assert isinstance(left, dict) and isinstance(right, dict)
    for name in sorted(left.keys() | right.keys()):
        if name not in left or name not in right:
            yield Difference("kept file", command, name, name in left, name in right)
        elif name.endswith((".img", ".bin", ".journal")) and left[name] != right[name]:
            yield Difference("image", command, name, left[name], right[name])
        else:
            yield from _output(command, name, left[name], right[name])


def _output(command: str, name: str, before: object, after: object) -> Iterator[Difference]:
    assert isinstance(before, dict) and isinstance(after, dict)
    if before == after:
        return
    if "json" in before and "json" in after:
        for path, left, right in _paths(before["json"], after["json"], name):
            yield Difference("JSON", command, path, left, right)
        return
    kind = "text" if name in ("stdout", "stderr") else "kept text"
    if "json" in before or "json" in after:
        kind = "JSON"
    elif name == "stdout" and "--format prometheus" in command:
        kind = "metrics"
    elif command.startswith("help "):
        kind = "help text"
    left, right = (_without_times(each.get("text", [])) for each in (before, after))
    if left != right or kind != "metrics":
        yield Difference(kind, command, name, *_first(left, right))


def _without_times(lines: list[str]) -> list[str]:
    """Leave out when a run was and how long it took, of metrics."""
    return [line for line in lines if not line.startswith("aligntool_last_run_")]


def _first(before: list[str], after: list[str]) -> tuple[str, str]:
    """The first lines that differ."""
    for left, right in zip(before, after, strict=False):
        if left != right:
            return left, right
    short = min(len(before), len(after))
    return "".join(before[short : short + 1]) or MISSING, "".join(after[short : short + 1]) or MISSING


def _paths(before: object, after: object, path: str) -> Iterator[tuple[str, object, object]]:
    if type(before) is type(after):
        if isinstance(before, dict) and isinstance(after, dict):
            for key in [*before, *(key for key in after if key not in before)]:
                yield from _paths(before.get(key, MISSING), after.get(key, MISSING), f"{path}.{key}")
            return
        if isinstance(before, list) and isinstance(after, list):
            if len(before) != len(after):
                yield f"{path}.length", len(before), len(after)
            for number, (left, right) in enumerate(zip(before, after, strict=False)):
                yield from _paths(left, right, f"{path}.{number}")
            return
    if before != after:
        yield path, before, after


def report(found: list[Difference], *, text: bool, every: bool) -> int:
    """Print them by class and place; return 1 when any that has to be explained is not."""
    open_ = [each for each in found if not each.reason and each.kind in MACHINE]
    shown = open_ + [each for each in found if text and not each.reason and each.kind in TEXT]
    groups: dict[tuple[str, str], list[Difference]] = {}
    for each in shown:
        groups.setdefault((each.kind, re.sub(r"\.[0-9]+(?=\.|$)", ".*", each.path)), []).append(each)
    for (kind, path), members in groups.items():
        print(f"\n{kind} {path}: {len(members)}")
        for each in members if every else members[:1]:
            print(f"  {each.command}\n    {each.path}\n    - {_short(each.before)}\n    + {_short(each.after)}")
    print()
    for kind in (*MACHINE, *TEXT):
        of_kind = [each for each in found if each.kind == kind]
        explained = sum(bool(each.reason) for each in of_kind)
        print(f"{kind:10} {len(of_kind):6} differ, {explained} explained")
    reasons: dict[str, int] = {}
    for each in found:
        if each.reason:
            reasons[each.reason] = reasons.get(each.reason, 0) + 1
    for reason, count in reasons.items():
        print(f"  {count:6} × {reason}")
    return 1 if open_ else 0


def _short(value: object) -> str:
    words = str(value)
    return words if len(words) <= 300 else f"{words[:300]} ..."
