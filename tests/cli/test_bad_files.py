"""A file of another kind gives every command that takes one a clear error: one sentence, without Python's own words."""

import gzip
import json
import lzma
import re
from pathlib import Path

import pytest

from tests.cli.old_disks import make_old_disk
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs")

CONTENTS = {
    "empty": b"",
    "text": b"hello\n",
    "half JSON": b'{"schema": "aligntool.plan", ',
    "a list": b"[]",
    "a string": b'"x"',
    "NaN": b'{"schema": NaN}',
    "BOM": b"\xef\xbb\xbf{}",
    "deep": b"[" * 100_000,
    "a newer plan": json.dumps({"schema": "aligntool.plan", "version": 99}).encode(),
    "a plan of the wrong kind": json.dumps({"schema": "aligntool.plan", "version": 1, "plan": {"goal": 3}}).encode(),
    "TOML": b"format = 1\nx = [\n",
    "Latin-1": b"caf\xe9 = 1\n",
    "zeros": bytes(700),
    "binary": bytes(range(256)) * 9,
    "gzip": gzip.compress(b"hello" * 99)[:-6] + b"hidden",
    "xz": lzma.compress(b"hello" * 99)[:40],
}
COMMANDS = (
    "apply FILE --yes", "bench show FILE", "bench compare FILE FILE", "recipes check FILE", "trace read FILE",
    "audit DISK --measured FILE", "report -o page.html --bench FILE DISK", "audit --sysroot FILE",
    "raid show --sysroot FILE", "realign DISK --recipe FILE", "layout DISK --recipe FILE", "bench DISK --profile FILE",
    "estimate boot FILE", "estimate boot --rate-a 1 --trace FILE", "status DISK --journal FILE",
    "resume DISK --journal FILE", "raid plan --level 1 --tuned FILE /dev/null /dev/null", "status FILE",
)  # fmt: skip
INTERNALS = re.compile(
    r"b['\"]|Expecting|Traceback|\(char \d|Errno|codec|\bNone\b|<class|\bls -l|0x[0-9a-f]+ !=|\\x[0-9a-f]{2}|header$"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    make_old_disk(folder / "disk.img")
    return folder


@sample(8)
@pytest.mark.parametrize("kind", CONTENTS)
def test_a_file_of_another_kind_is_refused_in_words(folder: Path, kind: str) -> None:
    for name in ("given", "given.toml"):
        (folder / name).write_bytes(CONTENTS[kind])
    for command in COMMANDS:
        name = "./given.toml" if "--recipe" in command or "--profile" in command else "given"
        done = run_aligntool(*command.replace("FILE", name).replace("DISK", "disk.img").split(), cwd=folder)
        if command == "status FILE" and len(CONTENTS[kind]) > 1 << 16:
            assert done.returncode == 0, "it might be a disk, on which nothing is in flight"
            continue
        said = done.stderr
        assert (done.returncode, done.stdout) == (3, ""), (command, said)
        assert said.startswith("aligntool: ") and not INTERNALS.search(said), (command, said)
        assert name in said.splitlines()[0], (command, said)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each != "status FILE"])
def test_a_missing_file_and_a_folder_are_refused_by_name(folder: Path, command: str) -> None:
    (folder / "folder.toml").mkdir(exist_ok=True)
    for name in ("missing.toml", "folder.toml"):
        done = run_aligntool(*command.replace("FILE", f"./{name}").replace("DISK", "disk.img").split(), cwd=folder)
        assert (done.returncode, done.stdout) == (3, ""), (command, done.stderr)
        assert name in done.stderr.splitlines()[0] and not INTERNALS.search(done.stderr), (command, done.stderr)
