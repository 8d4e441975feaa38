"""Record what one checkout of aligntool does on many command lines, and compare two records.

    python -m tests.compare_versions record --checkout DIR --output OUT [--tables FOLDER]
    python -m tests.compare_versions compare BEFORE AFTER [--explained FILE] [--text]

What differs in an exit code, in JSON, in metrics or in the bytes of an image has to stand in FILE with its reason;
texts are counted only. Images, logs, results and captured machines are the same for every record: tests/versions.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.versions.commands import Inputs, scenarios  # noqa: E402
from tests.versions.differences import compare_records, read_explanations, report  # noqa: E402
from tests.versions.inputs import FIXED, empty, make_inputs, run  # noqa: E402

ENVIRONMENT = {
    "COLUMNS": "100", "TERM": "dumb", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
}  # fmt: skip
# Names that the kernel or tempfile choose, and times that are measured.
RULES = (
    (r"\baligntool-(demo|fio|planned)?-?[a-z0-9_]{8}\b", "aligntool-<temporary>"),
    (r"\bloop[0-9]+(?!\d)", "loop<n>"),
    (r"(?m)^( *[0-9]+ %.*?), .*$", r"\1, <rate and time>"),
    (r"(\d+:)?\d+:\d\d\b(?= left|$)", "<time>"),
    (r"(?m)^.*\(load [0-9.]+ on [0-9]+ cores\)\n", ""),  # a warning only while the machine is busy
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run every command line and keep what it did")
    recording.add_argument("--checkout", type=Path, required=True)
    recording.add_argument("--python", type=Path, help="of the checkout's .venv unless given")
    recording.add_argument("--output", type=Path, required=True)
    recording.add_argument("--tables", type=Path, help="a folder of partition tables: layouts, images, sysroots")
    recording.add_argument("--only", default="", help="only command lines that match this regular expression")
    recording.add_argument("--slowest", type=int, default=0, help="list so many command lines that took longest")
    recording.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    recording.add_argument("--scratch", type=Path, help="the folder for images; 2 GiB of room")
    comparing = commands.add_parser("compare", help="compare two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--explained", type=Path, help="TOML of differences that are intended, with reasons")
    comparing.add_argument(
        "--part", action="store_true", help="compare the command lines that both have: one was recorded with --only"
    )
    comparing.add_argument("--text", action="store_true", help="also show what differs in texts only")
    comparing.add_argument("--all", action="store_true", help="show every difference, not one example of each kind")
    asked = parser.parse_args()
    if asked.command == "compare":
        before, after = (json.loads(path.read_text()) for path in (asked.before, asked.after))
        if asked.part:
            both = before["entries"].keys() & after["entries"].keys()
            for each in (before, after):
                each["entries"] = {key: it for key, it in each["entries"].items() if key in both}
        found = compare_records(before, after, read_explanations(asked.explained))
        return report(found, text=asked.text, every=asked.all)
    record(asked)
    return 0


def record(asked: argparse.Namespace) -> None:
    """Make the inputs, run the driver in the checkout's Python, and keep one document."""
    began, checkout = time.monotonic(), asked.checkout.resolve()
    python = asked.python or checkout / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="compare-", dir=asked.scratch) as name, devices(Path(name)) as found:
        scratch = Path(name).resolve()
        inputs = scratch / "inputs"
        inputs.mkdir()
        images, machines = make_inputs(inputs, asked.tables, ROOT / "tests" / "machines")
        made_s = time.monotonic() - began
        everything = scenarios(
            Inputs(images, machines, codes_of(checkout), recipes_of(checkout), found, inputs, root=os.geteuid() == 0)
        )
        lines = [each for each in everything if re.search(asked.only, line_of(each))]
        jobs = {"checkout": str(checkout), "inputs": str(inputs), "runs": str(scratch / "runs"),
                "workers": asked.workers, "scenarios": lines}  # fmt: skip
        (scratch / "jobs").write_text(json.dumps(jobs))
        environment = FIXED | ENVIRONMENT | {
            "PYTHONPATH": str(checkout), "XDG_STATE_HOME": str(inputs / "state"), "HOME": str(scratch),
        }  # fmt: skip
        driver = ROOT / "tests" / "versions" / "driver.py"
        subprocess.run([python, driver, scratch / "jobs"], env=environment, check=True)
        clean = cleaner(scratch, checkout, found)
        parts = sorted(scratch.glob("results-*"))
        raw = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
        entries = dict(read_result(each, clean) for each in raw)
    document = {"entries": entries, "root": os.geteuid() == 0, "tables": asked.tables is not None}
    asked.output.write_text(json.dumps(document, indent=0, sort_keys=True))
    print(f"{len(entries)} command lines in {time.monotonic() - began:.0f} s, of which {made_s:.0f} s for the inputs")


def line_of(scenario: dict[str, Any]) -> str:
    """The name of a scenario and its command lines, for --only."""
    return "; ".join([scenario["name"], *(" ".join(each["words"]) for each in scenario["steps"])])


def codes_of(checkout: Path) -> list[str]:
    return sorted(set(re.findall(r"AT[0-9]{3}", (checkout / "docs" / "findings.md").read_text())))


def recipes_of(checkout: Path) -> list[str]:
    found = {path.stem for path in (checkout / "recipes").glob("*/*.toml") if path.parent.name != "drives"}
    return sorted(found)


@contextmanager
def devices(scratch: Path) -> Iterator[list[str]]:
    """Loop devices over new images, where root may: four empty, one of 4096 bytes a sector, one with a table."""
    found: list[str] = []
    if os.geteuid() == 0 and shutil.which("losetup", path=FIXED["PATH"]):
        try:
            for number in range(6):
                image = empty(scratch / f"member-{number}.img", 1 << 30)
                if number == 5:
                    run(
                        "sfdisk",
                        "-q",
                        image,
                        stdin="label: dos\nlabel-id: 0x2005c0de\nstart=63, size=409600, type=83\n",
                    )
                size = "4096" if number == 4 else "512"
                done = subprocess.run(["losetup", "-f", "--show", "-b", size, image], capture_output=True, text=True,
                                      check=True, env=os.environ | FIXED)  # fmt: skip
                found.append(done.stdout.strip())
        except subprocess.CalledProcessError as error:
            print(f"without block devices: {error.stderr}", file=sys.stderr)
    try:
        yield found if len(found) == 6 else []
    finally:
        for device in found:
            run("losetup", "-d", device)


def cleaner(scratch: Path, checkout: Path, members: list[str]) -> Callable[[str, str], str]:
    """Return what takes out of a text the names of folders, and what RULES name."""
    rules = [(re.compile(rf"\b{Path(each).name}(?!\d)"), f"member{number}") for number, each in enumerate(members)]
    rules += [(re.compile(pattern), by) for pattern, by in RULES]

    def clean(text: str, folder: str) -> str:
        for place, name in ((folder, "<folder>"), (str(scratch), "<scratch>"), (str(checkout), "<checkout>")):
            text = text.replace(place, name)
        for pattern, by in rules:
            text = pattern.sub(by, text)
        return text

    return clean


def read_result(found: dict[str, Any], clean: Callable[[str, str], str]) -> tuple[str, dict[str, object]]:
    """The key of a command line and what it did; JSON is parsed, texts are lists of lines."""
    folder = found["folder"]
    entry: dict[str, object] = {"exit": found["exit"]}
    for stream in ("stdout", "stderr"):
        entry[stream] = parsed(clean(found[stream], folder))
    if "files" in found:
        kept = {clean(name, folder): it for name, it in found["files"].items()}
        entry["files"] = {
            name: parsed(clean(it, folder)) if isinstance(it, str) else {"json": it} for name, it in kept.items()
        }
    return clean(found["key"], folder), entry


def parsed(text: str) -> object:
    """JSON, JSON lines, or the lines of a text."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return {"json": json.loads(text)}
        except ValueError:
            try:
                return {"json": [json.loads(line) for line in text.splitlines()]}
            except ValueError:
                pass
    return {"text": text.splitlines()}


if __name__ == "__main__":
    sys.exit(main())
