"""The recording of the demo in the README matches the current output of the demo."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from aligntool.demo_disk import PROGRAMS
from tests.conftest import run
from tests.thorough import when_thorough

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLOR = re.compile(r"\x1b\[[\d;]*m")
# How much is copied, and which program reports it, depend on the versions of these programs.
USED = re.compile(r"(?m)(?:\d\S*B \(\d+B\)|, says .*)$")


def _played(cast: Path) -> tuple[dict[str, object], str]:
    """Return the head of a recording for asciinema, and its whole output, without colours."""
    head, *events = (json.loads(line) for line in cast.read_text().splitlines())
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    assert {kind for _, kind, _ in events} == {"o"}
    return head, COLOR.sub("", "".join(text for _, _, text in events)).replace("\r\n", "\n")


@when_thorough("the recording is made for a release")
@pytest.mark.needs_root  # an ordinary user has no map of an NTFS
@pytest.mark.needs_tools(*PROGRAMS)
def test_the_recording_in_the_readme_is_the_current_output_of_the_demo(tmp_path: Path) -> None:
    run(sys.executable, ROOT / ".ci" / "transcript.py", tmp_path)
    head, today = _played(tmp_path / "demo.cast")
    kept_head, kept = _played(PICTURES / "demo.cast")
    assert USED.sub("", kept) == USED.sub("", today), "run: make transcript"
    assert kept_head == head
    assert (head["version"], head["width"], head["height"]) == (2, 80, 24)
    # Both ends of the demo are in it.
    assert "3 of 4 partitions misaligned" in kept
    assert "OK: every partition of 1 disk starts on its boundaries" in kept


def test_the_picture_begins_with_the_verdict_and_respects_reduced_motion() -> None:
    text = (PICTURES / "demo.svg").read_text()
    shown = ["".join(each.itertext()) for each in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    _, printed = _played(PICTURES / "demo.cast")
    # A terminal of 80 columns breaks longer lines.
    commands = printed[printed.index("$ ") :].split("\n")
    rows = [line[at : at + 80] for line in commands for at in range(0, len(line), 80)]
    assert shown == rows
    assert "3 of 4 partitions misaligned" in rows[:3]
    still, moving = text.split("@media (prefers-reduced-motion: no-preference)")
    assert "animation" not in still and "transform" not in still  # the first screen
    assert "animation" in moving
    assert "//" not in text.replace("http://www.w3.org/2000/svg", "")
