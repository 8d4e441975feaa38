"""The machine stays awake while a disk is being changed, and says so when it may not.

In: the reason. Out: sentences for the user. Alone because it is courtesy, not safety: a move survives a power cut, so
nothing here is ever an error.
"""

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ANSWER_S = 5.0
_POWER = Path("/sys/class/power_supply")


@contextmanager
def awake(why: str, *, program: str = "systemd-inhibit") -> Iterator[str]:
    """Sleep and shutdown are inhibited inside. Yields a sentence when they are not, else an empty one.

    The child lives as long as its standard input: it goes when this program goes, however that is. It is in a session
    of its own, so that a Ctrl-C on the terminal does not reach it and no password is asked for there.
    """
    try:
        child = subprocess.Popen(
            [
                program,
                "--what=sleep:shutdown:idle",
                "--mode=block",
                "--who=aligntool",
                f"--why={why}",
                "sh",
                "-c",
                "echo; exec cat",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
    except OSError:
        yield f"sleep and shutdown are not inhibited: {program} is not there"
        return
    try:
        held = _echoes(child)
        yield (
            ""
            if held
            else f"sleep and shutdown are not inhibited: {program} was refused or found nobody to ask"
        )
    finally:
        _end(child)


def battery_note(power: Path = _POWER) -> str:
    """A sentence when a battery of the machine is discharging and no mains are there, else an empty one.

    Documentation/ABI/testing/sysfs-class-power. Batteries of mice and pens have the scope "Device".
    """
    supplies = [folder for folder in sorted(power.glob("*")) if _text(folder / "scope") != "Device"]
    mains = any(_text(one / "type") != "Battery" and _text(one / "online") == "1" for one in supplies)
    empties = any(
        _text(one / "type") == "Battery" and _text(one / "status") == "Discharging" for one in supplies
    )
    return "the machine runs on its battery; plug it in" if empties and not mains else ""


def _echoes(child: "subprocess.Popen[bytes]") -> bool:
    """The shell runs only once the inhibition holds, and then it speaks. Nothing is written to a child that may be
    gone: a broken pipe would end this program.
    """
    if child.stdout is None:
        return False
    ready, _, _ = select.select([child.stdout], [], [], _ANSWER_S)
    return bool(ready) and os.read(child.stdout.fileno(), 1) == b"\n"


def _end(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(_ANSWER_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
