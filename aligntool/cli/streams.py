"""Standard output that reports its own errors: a full disk or a closed output becomes a refusal."""

import io
import os
import sys

from aligntool.errors import Refused


class Output(io.TextIOWrapper):
    """Drops what cannot be written, once that is reported; Python would try again at exit."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._stuck(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._stuck(error) from error

    def _stuck(self, error: OSError) -> Refused:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        return Refused(f"standard output cannot be written: {error.strerror}")


def prepare_streams() -> None:
    """Both can be closed (`>&-`), and then Python has None in their place."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        raise Refused("standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        coding, by_line = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = Output(sys.stdout.detach(), coding, "backslashreplace", line_buffering=by_line)
