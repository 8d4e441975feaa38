"""LUKS2 converted in place to larger sectors: killed, resumed, and read back by cryptsetup's own decryption."""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.change import ArrayPlan, from_json, to_json
from aligntool.cli.layers import Layers
from aligntool.errors import Refused
from aligntool.inventory import Layer
from aligntool.linux.block import open_read_only
from aligntool.raid.current_names import with_current_names
from aligntool.raid.encrypted import plan_layers
from aligntool.raid.record import find_records
from aligntool.raid.steps_luks import content_problems, finishing_command
from aligntool.realign.request import Request
from aligntool.steps import ReencryptSectors
from aligntool.units import GIB, KIB, MIB, Extent
from tests.audit.array_builders import machine
from tests.audit.builders import judge, made_disk, with_content
from tests.conftest import attached, digest, run
from tests.run_aligntool import run_aligntool
from tests.thorough import THOROUGH, when_thorough

START, LENGTH, REDUCED = MIB, 144 * MIB, 32 * MIB
QUICK = ("-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--force-offline-reencrypt")
TABLE = """printf 'label: {}\\n2048,100000\\n' | sfdisk -q --wipe never "$0" """
pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("cryptsetup", "sfdisk", "setpriv")]


@dataclass(frozen=True)
class Encrypted:
    """An image with one LUKS2 partition; `plain`: the hash of all its decrypted data."""

    image: Path
    key: Path
    state: Path
    plain: str
    length: int = LENGTH

    def process(self, word: str) -> "subprocess.Popen[str]":
        words = (sys.executable, "-m", "tests.raid.reencrypting", word, self.image, self.state, self.key)
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

    def loop(self) -> AbstractContextManager[Path]:
        return attached(self.image, "-o", str(START), "--sizelimit", str(self.length))

    def around(self) -> bytes:
        """Return the bytes of the disk before and after the partition."""
        content = self.image.read_bytes()
        return content[:START] + content[START + self.length :]

    def decrypted(self) -> str:
        """Decrypt a copy with cryptsetup and return the hash of its content."""
        copy, header = self.image.with_name("copy"), self.image.with_name("exported")
        header.unlink(missing_ok=True)
        with self.image.open("rb") as image:
            image.seek(START)
            copy.write_bytes(image.read(self.length))
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
            return hashlib.sha256(file.read(self.length - REDUCED // 2)).hexdigest()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Encrypted:
    return make_encrypted(tmp_path_factory.mktemp("encrypted"), LENGTH)


def make_encrypted(folder: Path, length: int) -> Encrypted:
    """Create an image with a LUKS2 partition of this length, and a table."""
    content, image, key = folder / "content", folder / "disk.img", folder / "key"
    key.write_bytes(b"a passphrase")
    plain = b"".join(hashlib.shake_256(bytes([at])).digest(MIB) for at in range((length - REDUCED) // MIB))
    with content.open("wb") as file:
        file.write(plain)
        file.truncate(length)
    words = ("--encrypt", "--type", "luks2", "--reduce-device-size", "32M", "--sector-size", "512", "--key-file", key)
    run("cryptsetup", "reencrypt", *QUICK, *words, content)
    with image.open("wb") as file:
        file.truncate(START)
        file.seek(START)
        file.write(content.read_bytes())
        file.truncate(START + length + MIB)
    run("sfdisk", "-q", image, stdin=f"label: gpt\nstart={START // 512},size={length // 512}\n")
    content.unlink()
    made = Encrypted(image, key, folder, "", length)
    made = replace(made, plain=made.decrypted())
    assert image.with_name("copy").read_bytes().startswith(plain)
    return made


@pytest.fixture
def encrypted(made: Encrypted, tmp_path: Path) -> Encrypted:
    image = tmp_path / "disk.img"
    shutil.copy(made.image, image)
    return replace(made, image=image, state=tmp_path / "state")


def test_a_change_killed_at_any_moment_is_resumed_without_data_loss(made: Encrypted, encrypted: Encrypted) -> None:
    """Kills before the header records anything, in the middle, and in the middle of resuming."""
    for attempt, enough in enumerate((None, 20 * MIB, 60 * MIB) if THOROUGH else (None, 40 * MIB)):
        process = encrypted.process("resume" if attempt else "begin")
        wait_for(process, encrypted, enough)
        kill_all(process)
        (record,) = find_records(encrypted.state)
        assert (record.position, record.begun) == (0, True)
    assert "online-reencrypt" in json.dumps(encrypted.header()["config"])
    process = encrypted.process("resume")
    assert process.wait(300) == 0
    assert encrypted.sectors() == {4096}
    assert "online-reencrypt" not in json.dumps(encrypted.header()["config"])
    assert find_records(encrypted.state) == ()
    assert encrypted.decrypted() == encrypted.plain
    assert encrypted.around() == made.around()


@when_thorough("takes 10 s for each signal; the test above kills both")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_cryptsetup_stops_with_aligntool_and_the_change_can_be_resumed(number: int, encrypted: Encrypted) -> None:
    process = encrypted.process("begin")
    wait_for(process, encrypted, 1)
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


def test_a_rollback_restores_the_disk_only_until_the_first_data_are_reencrypted(encrypted: Encrypted) -> None:
    before = encrypted.image.read_bytes()
    for enough, code in ((None, 0), (1, 3)):
        process = encrypted.process("begin")
        wait_for(process, encrypted, enough)
        kill_all(process)
        assert encrypted.process("back").wait(300) == code
        assert len(find_records(encrypted.state)) == (code != 0)
        assert (encrypted.image.read_bytes() == before) == (code == 0)


def test_without_its_record_the_same_command_continues_once_both_headers_are_valid(encrypted: Encrypted) -> None:
    process = encrypted.process("begin")
    wait_for(process, encrypted, 1)
    kill_all(process)
    _repair(encrypted)
    shutil.rmtree(encrypted.state)
    assert encrypted.process("begin").wait(120) == 0
    assert encrypted.sectors() == {4096}
    assert encrypted.decrypted() == encrypted.plain


def test_a_volume_that_cannot_be_opened_is_refused_before_anything_is_written(encrypted: Encrypted) -> None:
    """With the device mapper because of a wrong key, without it because it is missing; tests/lab has the rest."""
    wrong = encrypted.image.with_name("wrong")
    wrong.write_bytes(b"another")
    before = digest(encrypted.image)
    ended = run_aligntool("realign", "--layers", "--yes", "--not-suspended", "--key-file", wrong, encrypted.image)
    assert (ended.returncode, "cannot be opened to examine it" in ended.stderr) == (3, True), ended.stderr
    assert digest(encrypted.image) == before


def test_a_change_without_a_key_is_refused(encrypted: Encrypted) -> None:
    ended = run_aligntool("realign", "--layers", "--yes", "--not-suspended", encrypted.image)
    assert ended.returncode == 3
    assert "--key-file FILE" in ended.stderr


def test_a_change_initialised_by_cryptsetup_alone_is_continued(encrypted: Encrypted) -> None:
    with encrypted.loop() as loop:
        words = ("--init-only", "--sector-size", "4096", "--keep-key", "--key-file", encrypted.key)
        run("cryptsetup", "reencrypt", "-q", "--force-offline-reencrypt", *words, loop)
    assert encrypted.sectors() == {512}
    assert encrypted.process("begin").wait(120) == 0
    assert encrypted.sectors() == {4096}
    assert encrypted.decrypted() == encrypted.plain


def test_an_unfinished_encryption_is_not_mistaken_for_a_change_of_sectors(encrypted: Encrypted) -> None:
    content = encrypted.image.with_name("content")
    with content.open("wb") as file:
        file.truncate(LENGTH)
    words = ("--encrypt", "--type", "luks2", "--reduce-device-size", "32M", "--sector-size", "4096", "--init-only")
    run("cryptsetup", "reencrypt", *QUICK, *words, "--key-file", encrypted.key, content)
    with encrypted.image.open("r+b") as image:
        image.seek(START)
        image.write(content.read_bytes())
    before = digest(encrypted.image)
    ended = run_aligntool("plan", "realign", "--layers", encrypted.image)
    assert "re-encrypted by cryptsetup" not in ended.stdout, ended.stdout
    assert digest(encrypted.image) == before


def test_a_header_that_cryptsetup_would_refuse_is_refused_before_the_change(encrypted: Encrypted) -> None:
    with encrypted.loop() as loop:
        for number in range(31):
            new = encrypted.image.with_name("new")
            new.write_text(str(number))
            run("cryptsetup", "luksAddKey", *QUICK[:-1], "--key-file", encrypted.key, loop, new)
    process = subprocess.run(
        [sys.executable, "-m", "tests.raid.reencrypting", "begin", encrypted.image, encrypted.state, encrypted.key],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (process.returncode, "all 32 key slots are used" in process.stderr) == (3, True), process.stderr


def test_a_header_whose_data_are_on_another_device_is_not_changed(encrypted: Encrypted) -> None:
    data, header = encrypted.image.with_name("data"), encrypted.image.with_name("header")
    data.write_bytes(bytes(64 * MIB))
    made = ("--type", "luks2", "--header", header, "--sector-size", "512", "--key-file", encrypted.key)
    run("cryptsetup", "luksFormat", *QUICK[:-1], *made, data)
    with encrypted.image.open("r+b") as image:
        image.seek(START)
        image.write(header.read_bytes())
    before = digest(encrypted.image)
    ended = run_aligntool(
        "realign", "--layers", "--yes", "--not-suspended", "--key-file", encrypted.key, encrypted.image
    )
    assert (ended.returncode, "are on another device" in ended.stderr) == (3, True), ended.stderr
    assert "--layers" not in run_aligntool("audit", "-v", encrypted.image).stdout
    assert "--layers" not in run_aligntool("plan", "realign", encrypted.image).stdout
    assert "reencrypt" not in run_aligntool("plan", "convert", "--sector-size", "4096", encrypted.image).stderr
    assert digest(encrypted.image) == before


def test_a_record_names_its_image_by_its_full_path(encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(encrypted.image.parent)
    plan = Layers(encrypted.image.name, Request()).make_plan()
    assert plan.disk.path == str(encrypted.image)
    with encrypted.image.open("ab") as image:
        image.truncate(encrypted.image.stat().st_size + MIB)
    with pytest.raises(Refused, match="it is another image"):
        with_current_names(plan, ())


def test_a_disk_is_identified_under_another_name_and_with_another_table() -> None:
    disk = replace(made_disk("2048+131072", physical=4096), size=GIB, serial="s1")
    plan = plan_layers(judge(with_content(disk, luks2())).judged[0], ())
    renamed = replace(disk, path="/dev/sdx", name="sdx")
    grown = replace(renamed, partitions=(replace(disk.partitions[0], name="another name"),))
    other = replace(disk, serial="s2")
    for now in (renamed, grown):
        assert with_current_names(plan, (other, now)).disk.path == "/dev/sdx"
    with pytest.raises(Refused, match="is missing"):
        with_current_names(plan, (other,))


def test_the_finishing_command_without_a_record_quotes_the_image_path() -> None:
    plan = planned(luks2())
    (step,) = plan.steps
    assert isinstance(step, ReencryptSectors)
    moved = replace(plan, disk=replace(plan.disk, path="/an image.img"))
    assert "/an image.img," in shlex.split(finishing_command(moved, step))


def _repair(encrypted: Encrypted) -> None:
    """Repair as docs/layers.md describes: a kill while the headers are written leaves one of them damaged."""
    with encrypted.loop() as loop:
        run("cryptsetup", "repair", "-q", "--key-file", encrypted.key, loop)


def wait_for(process: "subprocess.Popen[str]", encrypted: Encrypted, enough: int | None) -> None:
    """Return once this many bytes are re-encrypted; None: once the step began.

    It runs for a moment at a time and is looked at while it stands still, so that it cannot outrun the test.
    """
    if enough is None:
        assert process.stdout
        assert any(line.startswith("StepBegun") for line in process.stdout)
    deadline = time.monotonic() + 300
    while enough is not None and encrypted.done() < enough:
        assert process.poll() is None, "it came to its end"
        assert time.monotonic() < deadline
        _send_all(process, signal.SIGCONT)
        time.sleep(0.02)
        _send_all(process, signal.SIGSTOP)
    _send_all(process, signal.SIGCONT)


def kill_all(process: "subprocess.Popen[str]") -> None:
    """Kill both, like a power cut: neither of the two can clean up."""
    process.send_signal(signal.SIGSTOP)
    _send_all(process, signal.SIGKILL)
    process.wait()


def _send_all(process: "subprocess.Popen[str]", number: int) -> None:
    for pid in (*_children(process.pid), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(pid: int) -> tuple[int, ...]:
    return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# The plan


def planned(layer: Layer, *, length: int = 64 * MIB) -> ArrayPlan:
    disk = made_disk(f"2048+{length // 512}", physical=4096)
    return plan_layers(judge(with_content(replace(disk, size=GIB), layer)).judged[0], ())


def luks2(data_start: int = 17 * MIB, unit: int = 512, version: str = "LUKS2") -> Layer:
    extent = Extent(MIB, 64 * MIB)
    return Layer("crypto_LUKS", extent, version, uuid="b", data_start=data_start, data_unit=unit)


def test_a_plan_is_unchanged_after_writing_and_reading_its_document() -> None:
    plan = planned(luks2())
    assert from_json(to_json(plan)) == plan
    assert plan.steps == (ReencryptSectors(1, Extent(MIB, 64 * MIB), "b", 512, 4096),)
    assert planned(luks2(unit=4096)).steps == ()


def test_the_chunk_and_data_of_an_array_are_not_changed_and_the_reason_is_given() -> None:
    report = audit(machine("raid5", None, chunk=4 * KIB), {})
    plan = plan_layers(report.judged[-1], ())
    assert plan.steps == ()
    assert any("a power cut while they change would lose data" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("layer", "length", "why"),
    [
        (luks2(version="LUKS1"), 64 * MIB, "LUKS1 supports only sectors of 512 bytes"),
        (replace(luks2(version="LUKS1"), data_start=None), 64 * MIB, "data of its LUKS header are on another device"),
        (luks2(17 * MIB + 512), 64 * MIB, "begin 512 bytes past a boundary of 4KiB"),
        (luks2(), 64 * MIB + 1024, "end 1024 bytes past a whole sector of 4KiB"),
    ],
)
def test_a_volume_that_cannot_have_larger_sectors_is_refused(layer: Layer, length: int, why: str) -> None:
    with pytest.raises(Refused, match=why):
        planned(layer, length=length)


def test_a_luks_without_a_partition_is_not_reported_as_having_nothing_to_do() -> None:
    disk = replace(made_disk("", physical=4096), size=GIB, content=(luks2(),))
    with pytest.raises(Refused, match="as a whole is a LUKS"):
        plan_layers(judge(disk).judged[0], ())


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
        (("sh", "-c", f'mkfs.btrfs -q "$0" && {TABLE.format("gpt")}'), "btrfs and a GPT table is recognised inside"),
        (("sh", "-c", f'mke2fs -q -F -t ext4 -b 4096 "$0" && {TABLE.format("dos")}'), "ext4 and an MBR table"),
    ],
)
def test_only_content_that_works_on_larger_sectors_is_accepted(
    words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    content = tmp_path / "content"
    with content.open("wb") as file:
        file.truncate(320 * MIB)
    run(*words, content)
    with open_read_only(str(content)) as device:
        reasons = list(content_problems(device, device.size, 4 * KIB))
    assert (not why and not reasons) or any(why in reason for reason in reasons if why), reasons
