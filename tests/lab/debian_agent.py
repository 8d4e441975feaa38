"""A client of QEMU's guest agent, which runs commands in the emulated PC and returns their output.

It uses the socket of the PC's virtio port. The protocol is lines of JSON (qemu-ga(8), qga/qapi-schema.json).
"""

import base64
import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER_S = 60  # for the agent itself; commands have their own limits
WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended in the emulated PC."""

    code: int
    out: str
    err: str


class Silent(Exception):
    """The agent does not answer: not yet, or the PC is off."""


class Agent:
    """One connection to one started PC."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._rest = b""

    def close(self) -> None:
        self._socket.close()

    def ping(self, limit_s: float = 2) -> bool:
        """Return whether the agent answers; discard earlier output."""
        token = time.monotonic_ns() % 10**9
        words = {"execute": "guest-sync-delimited", "arguments": {"id": token}}
        try:
            self._socket.sendall(b"\xff" + json.dumps(words).encode() + b"\n")
            while True:
                said = self._line(limit_s).rpartition(b"\xff")[2]
                if said and json.loads(said).get("return") == token:
                    return True
        except (Silent, OSError, ValueError):
            return False

    def ask(self, command: str, **arguments: object) -> Any:
        self._socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        said = json.loads(self._line(ANSWER_S).lstrip(b"\xff"))
        if "error" in said:
            raise AssertionError(f"{command}: {said['error']}")
        return said["return"]

    def start(self, script: str) -> int:
        """Start a shell in the PC with this script; return its process ID."""
        words = {
            "path": "/bin/sh",
            "input-data": base64.b64encode(script.encode()).decode(),
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/root"],
            "capture-output": True,
        }
        return int(self.ask("guest-exec", **words)["pid"])

    def ended(self, pid: int) -> Done | None:
        """Return the result, or None while it runs."""
        said = self.ask("guest-exec-status", pid=pid)
        if not said["exited"]:
            return None
        out, err = (base64.b64decode(said.get(name, "")).decode(errors="replace") for name in ("out-data", "err-data"))
        return Done(int(said.get("exitcode", 128 + said.get("signal", 0))), out, err)

    def wait(self, pid: int, limit_s: float) -> Done:
        """Wait for the end and return the result; TimeoutError after `limit_s`."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if done := self.ended(pid):
                return done
            time.sleep(WAIT_S)
        raise TimeoutError(f"still not done after {limit_s:.0f} s")

    def _line(self, limit_s: float) -> bytes:
        self._socket.settimeout(limit_s)
        while b"\n" not in self._rest:
            try:
                more = self._socket.recv(65536)
            except TimeoutError:
                raise Silent(f"no answer in {limit_s} s") from None
            if not more:
                raise Silent("the PC is off")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line
