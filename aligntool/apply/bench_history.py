"""Keeping the results of benchmarks.

In: a result's text, and where it goes. Out: a file that is whole or not there. Alone because a benchmark that took an
hour must not be lost to a folder that cannot be written.
"""

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from aligntool.errors import Refused, refuse_folder_name


def keep_in_history(folder: Path, when: str, profile: str, text: str) -> str:
    """The file's name; sorted by it, results stand in the order of their time. Raises Refused."""
    stem = re.sub(r"[^A-Za-z0-9-]", "", when.replace(":", "")) + "-" + re.sub(r"[^A-Za-z0-9_-]", "_", profile)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error.strerror}") from error
    for number in range(1, 1000):
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        if not path.exists():
            return keep_result(str(path), text)
    raise Refused(f"{folder} has too many results of {when}")


def keep_result(file: str, text: str) -> str:
    """Whole or not at all: written beside it, then renamed. Raises Refused."""
    refuse_folder_name(file)
    path = Path(file)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".", delete=False, encoding="utf-8"
        ) as made:
            temporary = made.name
            made.write(text)
            made.flush()
            os.fsync(made.fileno())
            os.fchmod(made.fileno(), 0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
        raise Refused(f"{file} cannot be written: {error.strerror}") from error
    return file
