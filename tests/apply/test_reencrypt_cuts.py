"""Power cuts with a cache in the disk while cryptsetup re-encrypts: every write and flush is recorded, and replayed.

cryptsetup alone loses data after some of them: where its journal was not flushed before the header that needs it, and
where all data are done and only its header is left.
"""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aligntool.units import KIB, MIB
from tests.apply.test_reencrypt import REDUCED, START, Encrypted, kill_all, make_encrypted, wait_for
from tests.conftest import run
from tests.moving.media import Write, medium, needs_media
from tests.moving.test_write_log import SEED, Epochs, replay, survivors
from tests.run_aligntool import run_aligntool
from tests.thorough import THOROUGH

pytestmark = [needs_media, pytest.mark.needs_root, pytest.mark.needs_tools("cryptsetup", "sfdisk")]
LENGTH = REDUCED + 20 * MIB  # two pieces: cryptsetup re-encrypts at most 16 MiB at once
HEADERS = range(START, START + 32 * KIB)
DATA = START + 16 * MIB


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Encrypted, Epochs]:
    """Return an image before the change, with the record of it as just begun, and the writes of the whole change."""
    folder = tmp_path_factory.mktemp("cuts")
    before = make_encrypted(folder, LENGTH)
    with medium(Path(shutil.copy(before.image, folder / "served.img"))) as recorder:
        whole = replace(before, image=recorder.disk, state=folder / "state")
        assert whole.process("begin").wait(120) == 0
        epochs = recorder.epochs()
    shutil.copy(before.image, whole.image)  # where the served file was, which the record names
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


def worst_cuts(epochs: Epochs) -> Iterator[tuple[int, list[Write]]]:
    """Yield cuts after which the header is newer than the journal, and all cuts after the last data."""
    last = max(number for number, epoch in enumerate(epochs) if any(write.at >= DATA for write in epoch))
    for number, epoch in enumerate(epochs):
        header = [write for write in epoch if write.at in HEADERS]
        if number > last or 0 < len(header) < len(epoch):
            yield number, header


def test_a_power_cut_loses_nothing(recorded: tuple[Encrypted, Epochs]) -> None:
    chance, epochs = random.Random(SEED), recorded[1]
    cuts = [*worst_cuts(epochs)]
    assert len(cuts) > 6
    if THOROUGH:
        cuts += [(number, survivors(epochs[number], chance)) for number in [*range(len(epochs))] * 3]
    for number, kept in cuts:
        disk = crash(recorded, number, kept)
        assert disk.process("resume").wait(120) == 0, f"ALIGNTOOL_SEED={SEED}, cut in epoch {number}"
        assert disk.sectors() == {4096} and "online-reencrypt" not in str(disk.header()["config"])
        assert disk.decrypted() == disk.plain, f"ALIGNTOOL_SEED={SEED}, cut in epoch {number} of {len(epochs)}"


def test_cryptsetup_alone_is_not_suggested_when_only_the_header_is_left(recorded: tuple[Encrypted, Epochs]) -> None:
    """It would take the data for those before the change, and encrypt them once more."""
    number = next(number for number, kept in worst_cuts(recorded[1]) if not kept)
    disk = crash(recorded, number, [])
    refused = run_aligntool("plan", "realign", "--grain", "2MiB", disk.image)
    assert (refused.returncode, "all data are done" in refused.stderr) == (3, True), refused.stderr
    assert "docs/layers.md" in refused.stderr and "resume-only" not in refused.stderr
    with disk.loop() as loop:
        words = ("reencrypt", "-q", "--resume-only", "--force-offline-reencrypt", "--key-file", disk.key)
        run("cryptsetup", *words, loop)
    assert disk.decrypted() != disk.plain, "cryptsetup no longer loses them: nothing has to prevent it any more"
