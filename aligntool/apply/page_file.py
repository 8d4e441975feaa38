"""A page or a picture into a file of the user's choosing, and a picture from SVG into PNG.

In: text or bytes, and a name. Out: the file, whole or not at all. Alone because these are the only files that are made
to be looked at; PNG comes from librsvg, which draws what is in the text and loads nothing from elsewhere.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aligntool.apply.programs import find_program
from aligntool.errors import Refused, refuse_folder_name

SCALE = "2"  # for screens with small pixels
LIMIT_S = 120


def write_pages(pages: Sequence[tuple[str, bytes]], *, overwrite: bool = False) -> None:
    """Each under its name. Raises Refused for a file that is there and may not be replaced, before any is written, and
    for a place that cannot be written.
    """
    for name, _ in pages:
        refuse_folder_name(name)
        _refuse_taken(name, overwrite=overwrite)
    for name, content in pages:
        _write(name, content, overwrite=overwrite)


def _refuse_taken(name: str, *, overwrite: bool) -> None:
    target = Path(name)
    try:
        taken = target.is_symlink() or target.exists()
    except (OSError, ValueError) as error:
        raise Refused(f"{name} cannot be written: {_reason(error)}") from error
    if taken and not overwrite:
        raise Refused(
            f"{name} is there already; nothing was written", hint="give another name, or --overwrite"
        )
    if taken and not target.is_file():
        raise Refused(f"{name} is no regular file; nothing was written", hint="give another name")


def _write(name: str, content: bytes, *, overwrite: bool) -> None:
    """What is there is replaced in one step, so that nobody ever reads half a page."""
    target = Path(name).resolve() if overwrite else Path(name)
    fresh = target.with_name(f".{os.getpid()}-{target.name[:100]}") if overwrite else target
    try:
        with fresh.open("xb") as file:
            try:
                file.write(content)
                file.flush()
                if overwrite:
                    fresh.replace(target)
            except BaseException:
                fresh.unlink()
                raise
    except (OSError, ValueError) as error:
        raise Refused(f"{name} cannot be written: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def png_of(svg: str) -> bytes:
    """Raises Refused where rsvg-convert is missing or fails."""
    program = find_program("rsvg-convert")
    if program is None:
        raise Refused(
            "a PNG needs rsvg-convert, which is not installed (Debian package librsvg2-bin, Fedora librsvg2-tools, "
            "openSUSE rsvg-convert, Arch librsvg); nothing was written",
            hint="apt-get install librsvg2-bin, or --svg FILE",
        )
    try:
        done = subprocess.run(
            [program, "--zoom", SCALE, "--format", "png"],
            input=svg.encode(),
            capture_output=True,
            check=False,
            env=os.environ | {"LC_ALL": "C"},
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"rsvg-convert could not be used: {error}") from error
    if done.returncode or not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise Refused(f"rsvg-convert drew nothing: {said}")
    return done.stdout
