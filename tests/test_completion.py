"""The completion files, in the shells themselves: each is started on a terminal, and TAB is pressed."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import find_tool, run
from tests.thorough import sample

ROOT = Path(__file__).parent.parent
FILES = ROOT / "aligntool" / "cli" / "completions"
STARTS = {
    "bash": (
        ("bash", "--norc", "--noprofile", "-i"),
        f"bind 'set show-all-if-ambiguous on'; bind 'set bell-style none'; bind 'set completion-query-items 0'; "
        f"bind 'set page-completions off'; PS1='$ '; source {FILES}/aligntool.bash",
    ),
    "zsh": (
        ("zsh", "-f", "-i"),
        "fpath=($HOME $fpath); autoload -U compinit; compinit -u -D; LISTMAX=9999; setopt no_beep no_auto_menu",
    ),
    "fish": (("fish", "--no-config", "-i"), f"source {FILES}/aligntool.fish"),
}
READY = "all-is-ready"
ESCAPES = re.compile(r"\x1b(\[[0-9;?<=>]*[a-zA-Z]|[=>]|\(B|\][^\x07]*\x07)")
MOST_S = 0.150  # processor time for a TAB


class Shell:
    """A shell on a terminal of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        words, first = STARTS[name]
        self.name = name
        self._process, self._terminal = pty.fork()
        if self._process == 0:
            os.chdir(folder)
            environment = {"HOME": str(folder), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "TERM": "xterm"}
            os.execve(find_tool(words[0]) or "", words, environment | {"LC_ALL": "C.UTF-8", "PS1": "$ "})
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 300, 250, 0, 0))
        self._type(f"{first}; echo {READY[:4]}''{READY[4:]}\r")
        assert READY in self._read((READY,), 60.0)

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _read(self, awaited: Sequence[str], quiet_s: float) -> str:
        """Return the output of the terminal until it contains all of this, or nothing more arrives."""
        shown = ""
        while not awaited or not all(word in shown for word in awaited):
            if not select.select([self._terminal], [], [], quiet_s)[0]:
                break
            shown += ESCAPES.sub("", os.read(self._terminal, 65536).decode(errors="replace"))
        return shown

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # its own and that of its children

    def complete(self, line: str, awaited: Sequence[str]) -> tuple[str, float]:
        """Return the output after TAB, and the processor time that it took."""
        self._empty_line()
        self._type(line)
        self._read((), 0.3)
        before = self._cpu_s()
        self._type("\t")
        shown = self._read(awaited, 10.0) + self._read((), 0.2)
        return shown, self._cpu_s() - before

    def _empty_line(self) -> None:
        """Delete the rest of the line before. A busy shell loses what is typed before it has seen Ctrl-C."""
        for attempt in range(30):
            self._type("\x15\x03")
            self._read((), 0.2)
            self._type(f"echo {READY[:4]}''{READY[4:]}{attempt}\r")
            if f"{READY}{attempt}" in self._read((f"{READY}{attempt}",), 2.0):
                return
        raise AssertionError("the shell does not answer")

    def close(self) -> None:
        os.kill(self._process, 9)
        os.waitpid(self._process, 0)
        os.close(self._terminal)


@pytest.fixture(params=STARTS, scope="module")
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    if find_tool(request.param) is None:
        pytest.skip(f"{request.param} is missing")
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "_aligntool").symlink_to(FILES / "aligntool.zsh")
    _make_image(folder / "old-disk.img")
    (folder / "snapshots").mkdir()
    started = Shell(request.param, folder)
    yield started
    started.close()


def _make_image(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(64 << 20)
    table = "label: dos\nstart=63, size=2000\nstart=4096, size=2000\nstart=8192, type=5\nstart=8255, size=2000\n"
    subprocess.run(["sfdisk", "--quiet", path], input=table, text=True, check=True)


@sample(20)
@pytest.mark.needs_tools("sfdisk", "partx")
@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("aligntool ", ("audit", "realign", "raid", "bench"), ("old-disk.img",)),
        ("aligntool au", ("audit",), ()),
        ("aligntool audit --", ("--json", "--sysroot", "--map"), ("--shrink",)),
        ("aligntool audit --format ", ("text", "json", "prometheus"), ("old-disk.img",)),
        ("aligntool audit --format=", ("text", "json", "prometheus"), ("old-disk.img",)),
        ("aligntool audit old", ("old-disk.img",), ("snapshots",)),
        ("aligntool audit ", ("old-disk.img", "snapshots"), ("--map",)),
        ("aligntool audit --sysroot sn", ("snapshots",), ()),
        ("aligntool explain AT10", ("AT101", "AT102", "AT109"), ("AT301",)),
        ("aligntool explain que", ("queue-depth",), ()),
        ("aligntool raid ", ("plan", "create", "persist", "reformat", "show", "tune"), ()),
        ("aligntool raid create --level ", ("0", "1", "10", "5", "6"), ("old-disk.img",)),
        ("aligntool raid create --chunk ", ("64KiB", "512KiB"), ("4096",)),
        ("aligntool raid create --recipe ", ("raid1-data", "raid10-database"), ("sector-63",)),
        ("aligntool raid create --fs ", ("xfs", "ext4", "btrfs"), ()),
        ("aligntool plan raid --workload ", ("database", "sequential"), ()),
        ("aligntool plan ", ("realign", "layout", "raid"), ()),
        ("aligntool layout --recipe ", ("desktop-uefi", "sd-card"), ("raid1-data",)),
        ("aligntool realign --recipe ", ("sector-63", "cloned-ssd"), ("desktop-uefi",)),
        ("aligntool recipes show ", ("sector-63", "raid1-data", "crystaldiskmark"), ()),
        ("aligntool bench ", ("run", "compare", "old-disk.img"), ()),
        ("aligntool bench --profile ", ("as-ssd", "atto", "steady"), ("sector-63",)),
        ("aligntool bench run --profile cr", ("crystaldiskmark",), ()),
        ("aligntool realign old-disk.img --partition ", ("1", "2", "3", "5"), ("4",)),
        ("aligntool plan realign old-disk.img --partition 2,", ("1", "3", "5"), ("4",)),
    ],
)
def test_a_tab_offers_values_and_is_quick(
    shell: Shell, line: str, offered: tuple[str, ...], not_offered: tuple[str, ...]
) -> None:
    shown, spent_s = shell.complete(line, [word.removeprefix(line.split()[-1]) for word in offered])
    for word in offered:
        assert word.removeprefix(line.split()[-1]) in shown
    assert [word for word in not_offered if word in shown] == []
    assert spent_s <= MOST_S


@pytest.mark.needs_tools("lsblk")
def test_a_tab_offers_the_disks_of_this_machine(shell: Shell) -> None:
    kinds = "sd", "vd", "nvme", "hd", "mmcblk"
    disks = [disk for disk in run("lsblk", "-dnpo", "NAME").split() if Path(disk).name.startswith(kinds)]
    if not disks:
        pytest.skip("no disk but loop devices here")
    shown, spent_s = shell.complete("aligntool audit /dev/", [disk.removeprefix("/dev/") for disk in disks])
    for disk in disks:
        assert disk.removeprefix("/dev/") in shown
    assert "tty" not in shown
    assert spent_s <= MOST_S


@pytest.mark.needs_root
@pytest.mark.needs_tools("sfdisk", "losetup", "lsblk", "partx")
def test_a_tab_offers_the_partitions_of_a_device(shell: Shell, loop: Callable[..., Path], tmp_path: Path) -> None:
    _make_image(tmp_path / "disk.img")
    device = loop(tmp_path / "disk.img")
    run("partx", "--update", device)
    numbers = re.findall(r"\dp(\d+)$", run("lsblk", "--noheadings", "--raw", "--output", "NAME", device), re.MULTILINE)
    shown, spent_s = shell.complete(f"aligntool realign {device} -p ", numbers)
    assert len(numbers) >= 3
    assert [number for number in numbers if number not in shown] == []
    assert spent_s <= MOST_S


@pytest.mark.needs_root
@pytest.mark.needs_tools("unshare", "mount")
def test_offered_array_names_are_those_below_dev_md() -> None:
    script = f"""
        mount -t tmpfs none /dev && mkdir /dev/md && touch /dev/md/data /dev/null
        . {FILES}/aligntool.bash; aligntool_arrays 2>/dev/md/errors
    """
    assert "data" in run("unshare", "--mount", "bash", "-c", script).split()
