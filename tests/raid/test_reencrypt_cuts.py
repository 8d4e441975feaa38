"""Power cuts with a cache in the disk while cryptsetup re-encrypts: every write and flush is recorded, and replayed.

cryptsetup alone loses data after some of them: where its journal was not flushed before the header that needs it, and
where all data are done and only its header is left.
"""

import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.commands import ByHand, by_hand
from aligntool.units import KIB, MIB
from tests.by_hand import section_of
from tests.conftest import run
from tests.mover.media import Write, medium, needs_media
from tests.mover.test_write_log import Epochs, replay, survivors
from tests.raid.test_reencrypt import REDUCED, START, Encrypted, kill_all, make_encrypted, wait_for
from tests.run_aligntool import run_aligntool
from tests.thorough import SEED, THOROUGH, sample, when_thorough

pytestmark = [needs_media, pytest.mark.needs_root, pytest.mark.needs_tools("cryptsetup", "sfdisk")]
LENGTH = REDUCED + 20 * MIB  # three pieces: cryptsetup re-encrypts at most 16 MiB at once
HEADERS = range(START, START + 32 * KIB)
DATA = START + 16 * MIB


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Encrypted, Epochs]:
    """Return an image before the change, with its record as just begun, and all writes of the change."""
    folder = tmp_path_factory.mktemp("cuts")
    before = make_encrypted(folder, LENGTH)
    with medium(Path(shutil.copy(before.image, folder / "served.img"))) as recorder:
        whole = replace(before, image=recorder.disk, state=folder / "state")
        assert whole.process("begin").wait(120) == 0
        epochs = recorder.epochs()
    shutil.copy(before.image, whole.image)  # at the path of the served file, which the record names
    begun = whole.process("begin")
    wait_for(begun, whole, None)
    kill_all(begun)
    (folder / "state").rename(folder / "begun")
    return whole, epochs


def crash(recorded: tuple[Encrypted, Epochs], number: int, kept: list[Write]) -> Encrypted:
    """Return the image after a cut in this epoch, of which only these writes reached the disk."""
    disk, epochs = recorded
    shutil.copy(disk.key.with_name("disk.img"), disk.image)
    shutil.rmtree(disk.state, ignore_errors=True)
    shutil.copytree(disk.state.with_name("begun"), disk.state)
    replay(disk.image, [*epochs[:number], kept])
    return disk


def decrypted(disk: Encrypted, known: dict[str, str]) -> str:
    """Return the hash of the decrypted content. The same bytes under the same volume key are decrypted only once."""
    header, copied = disk.header(), disk.image.with_name("head")
    run("cryptsetup", "open", "--test-passphrase", "--disable-locks", "--key-file", disk.key, copied)
    with disk.image.open("rb") as image:
        image.seek(DATA)
        content = hashlib.sha256(image.read(START + disk.length - DATA)).hexdigest()
    volume = f"{content} {header['digests']} {header['segments']}"
    if volume not in known:
        known[volume] = disk.decrypted()
    return known[volume]


def worst_cuts(epochs: Epochs) -> Iterator[tuple[int, list[Write]]]:
    """Yield cuts after which the header is newer than the journal, and all cuts after the last data."""
    last = max(number for number, epoch in enumerate(epochs) if any(write.at >= DATA for write in epoch))
    for number, epoch in enumerate(epochs):
        header = [write for write in epoch if write.at in HEADERS]
        if number > last or 0 < len(header) < len(epoch):
            yield number, header


def test_a_power_cut_loses_no_data(recorded: tuple[Encrypted, Epochs]) -> None:
    chance, epochs = random.Random(SEED), recorded[1]
    cuts = [*worst_cuts(epochs)]
    assert len(cuts) > 6
    if THOROUGH:
        cuts += [(number, survivors(epochs[number], chance)) for number in [*range(len(epochs))] * 3]
    else:
        cuts = [next(cut for cut in cuts if cut[1]), next(cut for cut in cuts if not cut[1]), cuts[-1]]
    known: dict[str, str] = {}
    for number, kept in cuts:
        disk = crash(recorded, number, kept)
        assert disk.process("resume").wait(120) == 0, f"ALIGNTOOL_SEED={SEED}, cut in epoch {number}"
        assert disk.sectors() == {4096} and "online-reencrypt" not in str(disk.header()["config"])
        assert decrypted(disk, known) == disk.plain, f"ALIGNTOOL_SEED={SEED}, cut in epoch {number} of {len(epochs)}"


@pytest.mark.parametrize("piece", [pytest.param(0, marks=when_thorough("the last piece has more such cuts")), -1])
def test_a_second_cut_while_a_piece_is_recovered_loses_no_data(recorded: tuple[Encrypted, Epochs], piece: int) -> None:
    """cryptsetup flushes what it recovers only with the next header, and wipes the journal of the last piece before."""
    chance, epochs = random.Random(SEED), recorded[1]
    number = [number for number, epoch in enumerate(epochs) if any(write.at >= DATA for write in epoch)][piece]
    disk = crash(recorded, number, [write for write in epochs[number] if write.at % MIB])
    state, crashed = disk.state.with_name("crashed"), Path(shutil.copy(disk.image, disk.key.with_name("crashed.img")))
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(disk.state, state)
    served = disk.image.parents[2] / "served.img"
    shutil.rmtree(served.with_name(f"{served.name}-medium"))
    with medium(Path(shutil.copy(crashed, served))) as recorder:
        assert disk.process("resume").wait(120) == 0
        second = recorder.epochs()
    early = enumerate(second if THOROUGH else second[:3])  # until the piece is recovered
    cuts = [(number, kept) for number, epoch in early for kept in ([], epoch[-1:], epoch[len(epoch) // 2 :])]
    cuts += [(number, survivors(epoch, chance)) for number, epoch in enumerate(second)] if THOROUGH else []
    known: dict[str, str] = {}
    for number, kept in cuts:
        shutil.copy(crashed, disk.image)
        shutil.rmtree(disk.state, ignore_errors=True)
        shutil.copytree(state, disk.state)
        replay(disk.image, [*second[:number], kept])
        assert disk.process("resume").wait(120) == 0, f"ALIGNTOOL_SEED={SEED}, cut in epoch {number}"
        assert disk.sectors() == {4096} and "online-reencrypt" not in str(disk.header()["config"])
        assert decrypted(disk, known) == disk.plain, f"ALIGNTOOL_SEED={SEED}, cut in epoch {number} of {len(second)}"


@sample(1)
@pytest.mark.parametrize("state", ["all data are done", "its journal or its data may not be on the disk"])
def test_cryptsetup_alone_is_not_suggested_where_it_loses_data(recorded: tuple[Encrypted, Epochs], state: str) -> None:
    """Where all data are done, it encrypts them once more; else it writes an incomplete journal over intact data."""
    number, kept = next(cut for cut in worst_cuts(recorded[1]) if bool(cut[1]) == (state != "all data are done"))
    disk = crash(recorded, number, kept)
    refused = run_aligntool("plan", "realign", "--grain", "2MiB", disk.image)
    assert (refused.returncode, state in refused.stderr) == (3, True), refused.stderr
    assert "docs/layers.md" in refused.stderr and "cryptsetup repair" not in refused.stderr
    with disk.loop() as loop:
        for words in (("repair", "-q"), ("reencrypt", "-q", "--resume-only", "--force-offline-reencrypt")):
            run("cryptsetup", *words, "--key-file", disk.key, loop)
    assert disk.decrypted() != disk.plain, "cryptsetup no longer loses them: nothing has to prevent it any more"


@when_thorough("two more cuts")
def test_without_its_record_the_change_is_continued_in_every_such_state(recorded: tuple[Encrypted, Epochs]) -> None:
    cuts = list(worst_cuts(recorded[1]))[:-2]  # at the last two, it is complete
    cuts = cuts if THOROUGH else [next(cut for cut in cuts if cut[1]), next(cut for cut in cuts if not cut[1])]
    for number, kept in cuts:
        disk = crash(recorded, number, kept)
        shutil.rmtree(disk.state)
        assert disk.process("begin").wait(120) == 0, number
        assert disk.sectors() == {4096} and disk.decrypted() == disk.plain, number


def test_the_commands_in_the_documentation_keep_the_data(recorded: tuple[Encrypted, Epochs]) -> None:
    page = section_of(by_hand(ByHand.LUKS, "cryptsetup")).replace("sudo ", "")
    cuts = list(worst_cuts(recorded[1]))
    for number, kept in (next(cut for cut in cuts if cut[1]), next(cut for cut in cuts if not cut[1])):
        disk = crash(recorded, number, kept)
        first = page[page.index("dd if=/dev/zero") :].partition("`")[0] + "\ncryptsetup repair -q PARTITION\n"
        whole = "head -c 16777216" + page.partition("head -c 16777216")[2].partition("```")[0]
        with disk.loop() as loop:
            keyed = (first if kept else whole).replace("PARTITION", str(loop))
            for word in ("repair -q", "reencrypt --resume-only"):
                keyed = keyed.replace(f"cryptsetup {word}", f"cryptsetup {word} --key-file {disk.key}")
            run("sh", "-c", f"set -e\ncd {disk.image.parent}\nrm -f empty header\n{keyed}")
            if kept:
                words = ("-q", "--resume-only", "--force-offline-reencrypt", "--key-file", disk.key)
                run("cryptsetup", "reencrypt", *words, loop)
        assert disk.sectors() == {4096} and disk.decrypted() == disk.plain
