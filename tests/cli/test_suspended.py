"""A disk with a layer that may hold a suspended system: the question, --yes, --not-suspended, saved plans."""

import json
import shutil
from pathlib import Path

import pytest

from aligntool import api
from aligntool.errors import Refused
from aligntool.units import MIB
from tests.cli.old_disks import assert_whole, first_start, make_old_disk
from tests.cli.test_screen import Terminal
from tests.cli.test_tui import User, stepped
from tests.conftest import digest, run
from tests.mover.test_audit_in_flight import killed_while_copying
from tests.run_aligntool import run_aligntool

pytestmark = pytest.mark.needs_tools("cryptsetup", "sfdisk", "mke2fs", "debugfs")
AT = 64 * MIB
LUKS_LENGTH = 20 * MIB
WARNING = "may be suspended: a system that is suspended to disk inside the LUKS2 on partition 2"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old disk whose second partition, which is on the grid, is a LUKS."""
    folder = tmp_path_factory.mktemp("suspended")
    image = make_old_disk(folder / "disk.img")
    run("sfdisk", "-q", "--append", image, stdin=f"start={AT // 512}, size={LUKS_LENGTH // 512}, type=83\n")
    luks = folder / "luks"
    luks.write_bytes(bytes(LUKS_LENGTH))
    quick = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
    run("cryptsetup", "luksFormat", "-q", "--type", "luks2", *quick, luks, "-", stdin="secret")
    with image.open("r+b") as file:
        file.seek(AT)
        file.write(luks.read_bytes())
    return image


@pytest.fixture
def disk(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "disk.img"))


def words(text: str) -> str:
    return " ".join(text.split())


def test_yes_alone_is_refused_and_nothing_is_written(disk: Path) -> None:
    before = digest(disk)
    done = run_aligntool("realign", "--yes", disk, code=3)
    assert WARNING in words(done.stderr)
    assert "shut down the system that uses it, then add --not-suspended" in words(done.stderr)
    end = json.loads(run_aligntool("realign", "--yes", "--json", disk, code=3).stdout.splitlines()[-1])
    assert [refusal["code"] for refusal in end["refusals"]] == ["may-be-suspended"]
    assert digest(disk) == before


def test_the_plan_says_it_before_and_the_option_states_it(disk: Path) -> None:
    dry = words(run_aligntool("realign", "--dry-run", disk, code=0).stdout)
    assert f"Before {WARNING}" in dry.replace("Before · ", "Before ").replace("Before - ", "Before ")
    done = run_aligntool("realign", "--yes", "--not-suspended", disk, code=0)
    assert words(done.stdout).count(WARNING) == 1, "it is to be done before, not afterwards"
    assert first_start(disk) == 2048
    assert_whole(disk)
    assert run_aligntool("realign", "--yes", disk, code=0)  # nothing to do: nothing to ask


def test_a_move_in_flight_is_undone_and_finished_without_the_option(disk: Path) -> None:
    plan = json.loads(run_aligntool("plan", "realign", "--json", disk, code=0).stdout)
    assert plan["plan"]["attention"][0].startswith(WARNING)
    for way, start in (("rollback", 63), ("resume", 2048)):
        killed_while_copying(disk, "--not-suspended")
        run_aligntool(way, "--yes", disk, code=0)
        assert first_start(disk) == start
    assert_whole(disk)


def test_a_saved_plan_needs_the_option_too(disk: Path) -> None:
    saved = disk.with_name("plan.json")
    run_aligntool("plan", "realign", disk, "-o", saved, code=0)
    before = digest(disk)
    assert WARNING in words(run_aligntool("apply", "--yes", saved, code=3).stderr)
    assert digest(disk) == before
    run_aligntool("apply", "--yes", "--not-suspended", saved, code=0)
    assert first_start(disk) == 2048


def test_a_plan_from_before_the_layer_was_made_is_refused(disk: Path) -> None:
    with disk.open("r+b") as file:
        file.seek(AT)
        luks = file.read(LUKS_LENGTH)
        file.seek(AT)
        file.write(bytes(LUKS_LENGTH))
    saved = disk.with_name("plan.json")
    plain = run_aligntool("plan", "realign", disk, "-o", saved, code=0)
    assert "suspended" not in plain.stdout
    with disk.open("r+b") as file:
        file.seek(AT)
        file.write(luks)
    before = digest(disk)
    for options in ((), ("--not-suspended",)):
        assert "make a new plan" in run_aligntool("apply", "--yes", *options, saved, code=3).stderr
    assert digest(disk) == before


def test_the_question_names_the_layer_and_its_answer_is_enough(disk: Path) -> None:
    with Terminal("realign", disk) as terminal:
        terminal.until(lambda rows: any("to continue:" in row for row in rows))
        asked = words(" ".join(terminal.rows()))
        question = asked[asked.index("This writes to") :]
        assert WARNING in question
        terminal.type(f"{disk}\n")
        assert terminal.end() == 0
    assert first_start(disk) == 2048
    assert_whole(disk)


def test_the_python_api_needs_the_statement(disk: Path) -> None:
    plan = api.plan_realign(disk)
    before = digest(disk)
    with pytest.raises(Refused, match="may be suspended") as refused:
        api.apply(plan)
    assert [refusal.code for refusal in refused.value.refusals] == ["may-be-suspended"]
    assert digest(disk) == before
    api.apply(plan, not_suspended=True)
    assert first_start(disk) == 2048


def test_the_screens_ask_and_pass_the_answer_on(disk: Path) -> None:
    async def steps(user: User) -> None:
        await user.press("enter", until="1 off")
        asked = await user.press("r", until="to continue")
        assert "may be suspended: a system" in words(asked)
        await user.answer(str(disk), until="$ aligntool audit")

    assert not stepped(disk, steps, verdict="1 of 2 partitions misaligned").stopped
    assert first_start(disk) == 2048


def test_a_disk_of_file_systems_is_not_affected(tmp_path: Path) -> None:
    image = make_old_disk(tmp_path / "plain.img")
    done = run_aligntool("realign", "--yes", image, code=0)
    assert "suspended" not in done.stdout + done.stderr
    assert first_start(image) == 2048
