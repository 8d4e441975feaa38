"""The entries that a change writes to the systemd journal; a socket replaces journald's own."""

import json
import os
import re
import shutil
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from aligntool.change import ChangeState, RealignGoal
from aligntool.errors import Refused
from aligntool.linux.applying import ChangeInProgress, apply_events
from aligntool.linux.systemd_journal import KINDS, record
from aligntool.realign.found_plan import find_plan
from aligntool.realign.operation import locked_realign
from aligntool.realign.request import Request
from tests.conftest import run

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 300
pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs")

Entry = list[tuple[str, str]]
ASKED = Request()


def fields(datagram: bytes) -> Entry:
    """Decode an entry as systemd.io/JOURNAL_NATIVE_PROTOCOL describes: NAME=value, or NAME, a length and the value."""
    found = []
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
        else:
            (length,) = struct.unpack_from("<Q", rest)
            name, value, rest = line, rest[8 : 8 + length], rest[9 + length :]
        assert re.fullmatch(rb"[A-Z][A-Z0-9_]{0,63}", name), name
        found.append((name.decode(), value.decode(errors="surrogateescape")))
        datagram = rest
    return found


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.setblocking(False)
        yield server


def entries(server: socket.socket) -> list[dict[str, str]]:
    """Return the entries received so far."""
    found = []
    while True:
        try:
            found.append(dict(fields(server.recv(1 << 20))))
        except BlockingIOError:
            return found


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "old disk.img"
    path.touch()
    os.truncate(path, 64 << 20)
    run("sfdisk", "-q", path, stdin="label: dos\nstart=63,size=60000,type=83\n")
    run("mke2fs", "-q", "-t", "ext4", "-E", "offset=32256", path, "29000k")
    return path


def apply(image: Path, to: Path, request: Request = ASKED) -> None:
    plan = find_plan(str(image), request).plan
    with locked_realign(plan, request, rate=None, on_note=lambda _: None) as applying:
        apply_events(plan, applying, nullcontext(lambda _: None), partial(record, to=str(to)))


def test_a_move_sends_an_entry_when_it_begins_and_when_it_is_complete(image: Path, tmp_path: Path) -> None:
    with listening(tmp_path / "socket") as server:
        apply(image, tmp_path / "socket")
        found = entries(server)
    assert [entry["ALIGNTOOL_RESULT"] for entry in found] == ["begun", "done"]
    for entry, moment in zip(found, (ChangeState.BEGUN, ChangeState.DONE), strict=True):
        assert entry.pop("MESSAGE").startswith(f"realign of {image} ")
        assert entry.pop("MESSAGE_ID") == KINDS[moment][0]
        assert entry == {
            "SYSLOG_IDENTIFIER": "aligntool", "PRIORITY": "5", "ALIGNTOOL_OPERATION": "realign",
            "ALIGNTOOL_DISK": str(image), "ALIGNTOOL_RESULT": moment.name.lower(),
        }  # fmt: skip


def test_the_entry_of_a_move_with_a_journal_file_has_its_path(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing on the disk has it, so that after a power cut nobody may know it."""
    monkeypatch.setattr("aligntool.mover.journal.volatile_kind", lambda _: "")
    file = tmp_path / "a journal"
    with listening(tmp_path / "socket") as server:
        apply(image, tmp_path / "socket", Request(RealignGoal(journal_file=str(file), journal_room=64 << 20)))
        begun, done = (entry["MESSAGE"] for entry in entries(server))
    assert begun.endswith(f": its journal is {file}") and str(file) not in done


@pytest.mark.parametrize("kind", ["no journal", "a file", "a long path"])
def test_a_change_neither_fails_nor_waits_where_no_journal_listens(image: Path, tmp_path: Path, kind: str) -> None:
    place = tmp_path / ("x" * 200 if kind == "a long path" else "socket")
    if kind == "a file":
        place.touch()
    apply(image, place)
    assert json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"][0]["start"] == 2048


def test_a_journal_that_does_not_read_delays_nothing(tmp_path: Path) -> None:
    """The kernel keeps a few datagrams for it (net.unix.max_dgram_qlen); a blocking send would hang this test."""
    with listening(tmp_path / "socket") as server:
        for _ in range(5000):
            record("realign", ["/dev/sda"], ChangeState.DONE, to=str(tmp_path / "socket"))
        assert 0 < len(entries(server)) < 5000


def test_a_field_may_contain_anything(tmp_path: Path) -> None:
    with listening(tmp_path / "socket") as server:
        disks = ["a\nMESSAGE_ID=forged\n", "\udcff=", ""]
        record("realign", disks, ChangeState.STOPPED, "why\n\nnot", to=str(tmp_path / "socket"))
        found = fields(server.recv(1 << 20))
    assert [value for name, value in found if name == "ALIGNTOOL_DISK"] == disks
    assert [value for name, value in found if name == "MESSAGE_ID"] == [KINDS[ChangeState.STOPPED][0]]
    assert dict(found)["PRIORITY"] == "3"


def test_a_refusal_before_the_first_write_leaves_no_entry(image: Path, tmp_path: Path) -> None:
    plan = find_plan(str(image), Request()).plan

    def refusing() -> Iterator[None]:
        raise Refused("not now")
        yield

    with listening(tmp_path / "socket") as server:
        to = partial(record, to=str(tmp_path / "socket"))
        with pytest.raises(Refused):
            apply_events(plan, ChangeInProgress(refusing(), ""), nullcontext(lambda _: None), to)  # type: ignore[arg-type]
        assert entries(server) == []


# The commands themselves, with a journal socket where a running system has it.

COMMANDS = """
import json, pathlib, signal, socket, subprocess, sys
from tests.mover.test_systemd_journal import entries, listening
from tests.run_aligntool import program
subprocess.run(["mount", "-t", "tmpfs", "none", "/run/systemd"], check=True)
folder = pathlib.Path("/run/systemd/journal")
folder.mkdir()
image = sys.argv[1]

def aligntool(*words):
    return subprocess.run(program(*words), capture_output=True, text=True).returncode

def cut(by):
    words = program("realign", "--yes", "--json", "--rate", "64KiB", image)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "step-begun" and event["step"] == "CopyContent":
                process.send_signal(by)
    return process.returncode

with listening(folder / "socket") as server:
    told = {}
    told["dry run"] = aligntool("realign", "--dry-run", image), entries(server)
    told["interrupted"] = cut(signal.SIGINT), entries(server)
    told["rollback"] = aligntool("rollback", image, "--yes"), entries(server)
    told["killed"] = cut(signal.SIGKILL), entries(server)
    told["resume"] = aligntool("resume", image, "--yes"), entries(server)
    told["nothing"] = aligntool("realign", image, "--yes"), entries(server)
    told["layout"] = aligntool("layout", image, "--part", "rest:linux", "--wipe", image, "--yes"), entries(server)
print(json.dumps(told))
"""


@pytest.mark.needs_root
@pytest.mark.needs_tools("unshare", "mount")
def test_every_command_that_changes_a_disk_leaves_its_entries(image: Path) -> None:
    if not Path("/run/systemd").is_dir():
        pytest.skip("no folder /run/systemd here to mount over")
    told = json.loads(run("unshare", "--mount", sys.executable, "-c", COMMANDS, image))
    results = {
        name: (code, [(entry["ALIGNTOOL_OPERATION"], entry["ALIGNTOOL_RESULT"]) for entry in found])
        for name, (code, found) in told.items()
    }
    assert results == {
        "dry run": (0, []),
        "interrupted": (4, [("realign", "begun"), ("realign", "stopped")]),
        "rollback": (0, [("realign", "undoing"), ("realign", "undone")]),
        "killed": (-9, [("realign", "begun")]),
        "resume": (0, [("realign", "resumed"), ("realign", "done")]),
        "nothing": (0, []),
        "layout": (0, [("layout", "begun"), ("layout", "done")]),
    }
    everything = [entry for _, found in told.values() for entry in found]
    assert {entry["ALIGNTOOL_DISK"] for entry in everything} == {str(image)}
    assert "interrupted in step" in told["interrupted"][1][1]["MESSAGE"]


# The catalogue


@pytest.mark.needs_tools("journalctl")
def test_journalctl_explains_every_kind_of_entry(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/systemd/catalog"
    folder.mkdir(parents=True)
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    shutil.copy(ROOT / "packaging/systemd/aligntool.catalog", folder)
    run("journalctl", "--root", tmp_path, "--update-catalog")
    listed = dict(
        re.findall(r"^([0-9a-f]{32}) aligntool: (.+)$", run("journalctl", "--root", tmp_path, "--list-catalog"), re.M)
    )
    assert set(listed) == {message_id for message_id, _ in KINDS.values()}
    pages = re.findall(r"man:([\w-]+)\(1\)", run("journalctl", "--root", tmp_path, "--dump-catalog"))
    assert pages and all((ROOT / "docs/man/man1" / f"{page}.1").exists() for page in pages)
