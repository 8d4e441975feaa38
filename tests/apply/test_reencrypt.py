"""LUKS2 converted in place to larger sectors: killed, resumed, and read back by cryptsetup's own decryption."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.change import Plan, from_json, to_json
from aligntool.errors import Refused
from aligntool.inventory import Layer
from aligntool.raid import make
from aligntool.raid.encrypted import plan_layers
from aligntool.raid.steps_luks import content_problems
from aligntool.steps import ReencryptSectors
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.array_builders import machine
from tests.audit.builders import judge, made_disk, with_content
from tests.conftest import detach, run
from tests.in_memory import BytesReader
from tests.run_aligntool import run_aligntool
from tests.thorough import when_thorough

START, LENGTH, PLAIN = MIB, 144 * MIB, 112 * MIB
QUICK = ("-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--force-offline-reencrypt")
pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("cryptsetup", "sfdisk", "setpriv")]


@dataclass(frozen=True)
class Encrypted:
    """An image with one LUKS2 partition; `plain`: the hash of what was encrypted."""

    image: Path
    key: Path
    state: Path
    plain: str

    def process(self, word: str) -> "subprocess.Popen[str]":
        """Start it with a low priority: on a busy machine a test that watches it must not be the slower one."""
        python = ("nice", "-n", "10", sys.executable)
        words = (*python, "-m", "tests.apply.reencrypting", word, self.image, self.state, self.key)
        return subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, text=True, start_new_session=True)

    def header(self) -> dict[str, dict[str, dict[str, str]]]:
        head = self.image.with_name("head")
        with self.image.open("rb") as image:
            image.seek(START)
            head.write_bytes(image.read(16 * MIB))
        found: dict[str, dict[str, dict[str, str]]] = json.loads(
            run("cryptsetup", "luksDump", "--disable-locks", "--dump-json-metadata", head)
        )
        return found

    def sectors(self) -> set[int]:
        return {int(one["sector_size"]) for one in self.header()["segments"].values() if not one.get("flags")}

    def done(self) -> int:
        """Return the bytes that the header reports as converted; 0 when it is read while being written and is torn."""
        with self.image.open("rb", buffering=0) as image:
            image.seek(START + 4096)
            text = image.read(12 * KIB).partition(b"\0")[0]
        try:
            segments = json.loads(text)["segments"].values()
        except ValueError:
            return 0
        return sum(int(one["size"]) for one in segments if one.get("sector_size") == 4096 and one["size"].isdigit())

    def around(self) -> bytes:
        """Return the bytes of the disk before and after the partition."""
        content = self.image.read_bytes()
        return content[:START] + content[START + LENGTH :]

    def decrypted(self) -> str:
        """Decrypt a copy with cryptsetup and return the hash of its content."""
        copy, header = self.image.with_name("copy"), self.image.with_name("exported")
        header.unlink(missing_ok=True)
        with self.image.open("rb") as image:
            image.seek(START)
            copy.write_bytes(image.read(LENGTH))
        words = (
            "reencrypt",
            "--decrypt",
            "--header",
            header,
            "-q",
            "--force-offline-reencrypt",
            "--key-file",
            self.key,
        )
        run("cryptsetup", *words, copy)
        with copy.open("rb") as file:
            return hashlib.sha256(file.read(PLAIN)).hexdigest()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Encrypted:
    folder = tmp_path_factory.mktemp("encrypted")
    content, image, key = folder / "content", folder / "disk.img", folder / "key"
    key.write_bytes(b"a passphrase")
    plain = b"".join(hashlib.shake_256(bytes([at])).digest(MIB) for at in range(PLAIN // MIB))
    with content.open("wb") as file:
        file.write(plain)
        file.truncate(LENGTH)
    words = ("--encrypt", "--type", "luks2", "--reduce-device-size", "32M", "--sector-size", "512", "--key-file", key)
    run("cryptsetup", "reencrypt", *QUICK, *words, content)
    with image.open("wb") as file:
        file.truncate(START)
        file.seek(START)
        file.write(content.read_bytes())
        file.truncate(START + LENGTH + MIB)
    run("sfdisk", "-q", image, stdin=f"label: gpt\nstart={START // 512},size={LENGTH // 512}\n")
    content.unlink()
    return Encrypted(image, key, folder, hashlib.sha256(plain).hexdigest())


@pytest.fixture
def encrypted(made: Encrypted, tmp_path: Path) -> Encrypted:
    image = tmp_path / "disk.img"
    shutil.copy(made.image, image)
    return replace(made, image=image, state=tmp_path / "state")


def test_a_kill_of_both_at_any_moment_is_gone_on_with_and_every_byte_is_read_back(
    made: Encrypted, encrypted: Encrypted
) -> None:
    """Three kills: before the header records anything, in the middle, and in the middle of resuming."""
    for attempt, enough in enumerate((None, 20 * MIB, 60 * MIB)):
        process = encrypted.process("resume" if attempt else "begin")
        _wait_for(process, encrypted, enough)
        _kill_all(process)
        (record,) = make.find_records(encrypted.state)
        assert (record.position, record.begun) == (0, True)
    assert "online-reencrypt" in json.dumps(encrypted.header()["config"])
    process = encrypted.process("resume")
    assert process.wait(300) == 0
    assert encrypted.sectors() == {4096}
    assert "online-reencrypt" not in json.dumps(encrypted.header()["config"])
    assert make.find_records(encrypted.state) == ()
    assert encrypted.decrypted() == encrypted.plain
    assert encrypted.around() == made.around()


@when_thorough("takes 10 s for each signal; the test above kills both")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_cryptsetup_stops_when_aligntool_does_and_the_same_is_gone_on_with(number: int, encrypted: Encrypted) -> None:
    process = encrypted.process("begin")
    _wait_for(process, encrypted, 1)
    children = _children(process.pid)
    process.send_signal(number)
    process.wait()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() and not _is_zombie(pid) for pid in children):
        assert time.monotonic() < deadline, "cryptsetup goes on alone"
        time.sleep(0.05)
    assert encrypted.process("resume").wait(120) == 0
    assert encrypted.sectors() == {4096}
    assert encrypted.decrypted() == encrypted.plain


def test_a_rollback_is_refused_once_anything_is_encrypted_anew_and_before_ends_the_matter(encrypted: Encrypted) -> None:
    before = encrypted.image.read_bytes()
    for enough, code in ((None, 0), (1, 3)):
        process = encrypted.process("begin")
        _wait_for(process, encrypted, enough)
        _kill_all(process)
        assert encrypted.process("back").wait(60) == code
        assert len(make.find_records(encrypted.state)) == (code != 0)
        assert (encrypted.image.read_bytes() == before) == (code == 0)


def test_without_its_record_the_same_command_goes_on_once_both_headers_are_whole(encrypted: Encrypted) -> None:
    process = encrypted.process("begin")
    _wait_for(process, encrypted, 1)
    _kill_all(process)
    _repair(encrypted)
    shutil.rmtree(encrypted.state)
    assert encrypted.process("begin").wait(120) == 0
    assert encrypted.sectors() == {4096}
    assert encrypted.decrypted() == encrypted.plain


def test_the_command_refuses_before_anything_is_written_where_it_cannot_look_inside(encrypted: Encrypted) -> None:
    """With the device mapper because of a wrong key, without it because it is missing; tests/lab has the rest."""
    wrong = encrypted.image.with_name("wrong")
    wrong.write_bytes(b"another")
    before = hashlib.sha256(encrypted.image.read_bytes()).digest()
    ended = run_aligntool("realign", "--layers", "--yes", "--key-file", wrong, encrypted.image)
    assert (ended.returncode, "cannot be opened to examine it" in ended.stderr) == (3, True), ended.stderr
    assert hashlib.sha256(encrypted.image.read_bytes()).digest() == before


def test_nothing_is_begun_without_a_key(encrypted: Encrypted) -> None:
    ended = run_aligntool("realign", "--layers", "--yes", encrypted.image)
    assert ended.returncode == 3
    assert "--key-file FILE" in ended.stderr


def _repair(encrypted: Encrypted) -> None:
    """Repair as docs/layers.md describes: a kill while the headers are written leaves one of them damaged."""
    loop = run("losetup", "-f", "--show", "-o", str(START), "--sizelimit", str(LENGTH), encrypted.image).strip()
    try:
        run("cryptsetup", "repair", "-q", "--key-file", encrypted.key, loop)
    finally:
        detach(loop)


def _wait_for(process: "subprocess.Popen[str]", encrypted: Encrypted, enough: int | None) -> None:
    """Return once this many bytes are re-encrypted; None: once the step began."""
    if enough is None:
        assert process.stdout
        assert any(line.startswith("StepBegun") for line in process.stdout)
    deadline = time.monotonic() + 300
    while enough is not None and encrypted.done() < enough:
        assert process.poll() is None, "it came to its end, too fast for this test"
        assert time.monotonic() < deadline


def _kill_all(process: "subprocess.Popen[str]") -> None:
    """Kill both, like a power cut: neither of the two can clean up."""
    process.send_signal(signal.SIGSTOP)
    for pid in (*_children(process.pid), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def _children(pid: int) -> tuple[int, ...]:
    return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# The plan


def planned(layer: Layer, *, length: int = 64 * MIB) -> Plan:
    disk = made_disk(f"2048+{length // 512}", physical=4096)
    return plan_layers(judge(with_content(replace(disk, size=GIB), layer)).judged[0], ())


def luks2(data_start: int = 17 * MIB, unit: int = 512, version: str = "LUKS2") -> Layer:
    extent = Extent(MIB, 64 * MIB)
    return Layer("crypto_LUKS", extent, version, uuid="b", data_start=data_start, data_unit=unit)


def test_a_plan_survives_its_document() -> None:
    plan = planned(luks2())
    assert from_json(to_json(plan)) == plan
    assert plan.steps == (ReencryptSectors(1, Extent(MIB, 64 * MIB), "b", 512, 4096),)
    assert planned(luks2(unit=4096)).steps == ()


def test_the_layers_of_an_array_leave_its_chunk_and_its_data_where_they_are_and_say_why() -> None:
    report = audit(machine("raid5", None, chunk=4 * KIB), {})
    plan = plan_layers(report.judged[-1], ())
    assert plan.steps == ()
    assert any("a power cut while they change would lose data" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("layer", "length", "why"),
    [
        (luks2(version="LUKS1"), 64 * MIB, "LUKS1 supports only sectors of 512 bytes"),
        (luks2(17 * MIB + 512), 64 * MIB, "begin 512 bytes past a boundary of 4KiB"),
        (luks2(), 64 * MIB + 1024, "end 1024 bytes past a whole sector of 4KiB"),
    ],
)
def test_what_cannot_have_larger_sectors_is_refused(layer: Layer, length: int, why: str) -> None:
    with pytest.raises(Refused, match=why):
        planned(layer, length=length)


# The content of the volume


@pytest.mark.needs_tools("mkfs.xfs", "mke2fs", "mkfs.btrfs", "mkswap", "mkfs.fat", "mkfs.f2fs")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096"), ""),
        (("mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024"), "ext4 inside uses blocks of 1024 bytes"),
        (("mkfs.xfs", "-q", "-s", "size=4096"), ""),
        (("mkfs.xfs", "-q", "-s", "size=512"), "xfs inside uses blocks of 512 bytes"),
        (("mkfs.btrfs", "-q"), ""),
        (("mkswap",), ""),
        (("mkfs.fat",), "FAT16 inside uses blocks of 512 bytes"),
        (("mkfs.fat", "-S", "4096"), ""),
        (("mkfs.f2fs", "-q"), "is not known to work on sectors of another size"),
        (("true",), "nothing is recognised inside"),
    ],
)
def test_only_what_works_on_larger_sectors_is_let_through(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    content = tmp_path / "content"
    with content.open("wb") as file:
        file.truncate(320 * MIB)
    run(*words, content)
    with content.open("rb") as file:
        head = file.read(320 * MIB)
    reasons = list(content_problems(BytesReader(head), len(head), 4 * KIB))
    assert (not why and not reasons) or any(why in reason for reason in reasons if why), reasons
