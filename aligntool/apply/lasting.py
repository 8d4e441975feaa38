"""Whether what is written to a folder is still there after the power was cut.

In: a folder. Out: the kind of its file system where that forgets, such as a live system's. Alone because journals and
records must both outlive the machine that writes them.
"""

import re
import subprocess
from pathlib import Path

_FORGETFUL = ("tmpfs", "ramfs")
"""Kinds of file systems, as stat(1) calls them, that a power cut empties."""


def forgetful_kind(folder: Path) -> str:
    """ "tmpfs", "ramfs"; "": it keeps what it is given, as far as anybody can tell."""
    kind = _ask("stat", "-f", "-c", "%T", str(folder))
    if kind == "overlayfs":  # a live system writes into a tmpfs below it, a container onto a disk
        upper = re.search(r"upperdir=([^,]+)", _ask("findmnt", "-n", "-o", "OPTIONS", "-T", str(folder)))
        kind = _ask("stat", "-f", "-c", "%T", upper[1]) if upper else kind
    return kind if kind in _FORGETFUL else ""


def _ask(*words: str) -> str:
    """What a program said; empty where it could not tell."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout.strip()
