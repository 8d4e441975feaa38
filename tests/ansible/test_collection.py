"""The collection on loop devices: check mode writes nothing, a run makes changes, a second run makes none.

Expected values come from sfdisk, e2fsck and the digests of the disks. No network is needed: the collection is used from
the checkout, and the managed host is this machine.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from aligntool import __version__
from aligntool.recipes.goals import text_of_settings
from aligntool.units import MIB
from tests.ansible.play import COLLECTION, Played, environment, play, play_thrice, read
from tests.cli.old_disks import assert_whole, first_start, make_old_disk
from tests.conftest import attached, run
from tests.mover.disks import entries
from tests.mover.test_kills import killed
from tests.run_aligntool import run_aligntool
from tests.schemas import check
from tests.thorough import THOROUGH, when_thorough

pytestmark = [pytest.mark.needs_tools("ansible-playbook", "ansible-doc", "ansible-galaxy")]
MODULES = ("audit", "layout", "raid", "realign")


@dataclass(frozen=True, slots=True)
class PlaybookRuns:
    """Three runs of a playbook, and the disks it worked on. `make test` checks nothing of the third, and omits it."""

    checked: Played
    ran: Played
    again: Played
    digests: tuple[list[str], ...]  # of every disk: before, after the check, after the run, at the end
    images: dict[str, Path]


def run_playbook(playbook: str, images: dict[str, Path], disks: dict[str, Path]) -> PlaybookRuns:
    def digests() -> list[str]:
        return [digest(image) for image in images.values()]

    before, variables = digests(), {name: str(disk) for name, disk in disks.items()}
    folder = next(iter(images.values())).parent
    checked, ran, *more = islice(play_thrice(folder, playbook, variables, digests), 3 if THOROUGH else 2)
    again = more[0] if more else ran
    return PlaybookRuns(read(checked[0]), read(ran[0]), read(again[0]), (before, checked[1], ran[1], again[1]), images)


def digest(image: Path) -> str:
    with image.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Loop = Callable[[Path], Path]


@pytest.fixture(scope="module")
def attach() -> Iterator[Loop]:
    """Attach an image to a loop device; only the devices attached here are detached afterwards."""
    with ExitStack() as devices:
        yield lambda image: devices.enter_context(attached(image))


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory, attach: Loop) -> PlaybookRuns:
    folder = tmp_path_factory.mktemp("ansible")
    images = {name: folder / f"{name}.img" for name in ("old", "empty")}
    make_old_disk(images["old"])
    with images["empty"].open("xb") as file:
        file.truncate(64 * MIB)
    return run_playbook("disks.yml", images, {name: attach(image) for name, image in images.items()})


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, attach: Loop) -> PlaybookRuns:
    folder = tmp_path_factory.mktemp("ansible")
    images = {name: folder / f"{name}.img" for name in ("cut", "copy", "full")}
    make_old_disk(images["cut"])
    run("mke2fs", "-q", "-t", "ext4", images["full"], "64M")
    cut = attach(images["cut"])
    assert killed(cut, 20_000, "realign", str(cut), "--yes")  # sectors: half of its file
    run("cp", "--sparse=always", images["cut"], images["copy"])
    return run_playbook("interrupted.yml", images, images | {"cut": cut})


needs_disks = pytest.mark.needs_tools("sfdisk", "mke2fs", "e2fsck", "debugfs", "losetup", "blockdev", "dd")


def check_three_runs(runs: PlaybookRuns, names: set[str]) -> None:
    """Check that the first run announces every change and makes none, the second makes them all, and the third none."""
    before, checked, ran, again = runs.digests
    assert before == checked and ran == again
    assert all(one != other for one, other in zip(checked, ran, strict=True))
    assert {name for name, word in runs.checked.words.items() if word == "changed"} == names
    assert {name for name, word in runs.ran.words.items() if word == "changed"} == names
    assert (runs.checked.changed, runs.ran.changed, runs.again.changed) == (len(names), len(names), 0)
    assert all(runs.checked.diffs[name] == runs.ran.diffs[name] for name in names)
    assert not any(runs.again.diffs[name].strip() for name in names)


@when_thorough("four runs of Ansible")
@pytest.mark.needs_root
@needs_disks
def test_check_mode_writes_nothing_and_a_second_run_changes_nothing(disks: PlaybookRuns) -> None:
    check_three_runs(disks, {"realign", "layout"})


@pytest.mark.needs_root
@needs_disks
def test_other_tools_see_the_requested_layout_on_the_disks(disks: PlaybookRuns) -> None:
    assert first_start(disks.images["old"]) == 2048
    assert_whole(disks.images["old"])
    layout = entries(disks.images["empty"])
    assert [(one["start"], one.get("name")) for one in layout.values()] == [(2048, "boot"), (2048 + 32768, None)]


@pytest.mark.needs_root
@needs_disks
def test_the_diff_shows_the_partitions_before_and_after(disks: PlaybookRuns) -> None:
    moved, made = (disks.checked.diffs[name] for name in ("realign", "layout"))
    assert re.search(r"^-1  start 32256 B  length 50331648 B .*\n\+1  start 1048576 B  length 5", moved, re.MULTILINE)
    assert re.search(r"^\+1  start 1048576 B  length 16777216 B  EFI System", made, re.MULTILINE)


@pytest.mark.needs_root
@needs_disks
def test_the_audit_is_returned_as_a_fact_that_conforms_to_its_schema(disks: PlaybookRuns) -> None:
    report = disks.ran.results["audit"]["ansible_facts"]["aligntool"]
    check(report)
    assert [part["verdict"]["answer"] for part in report["disks"][0]["partitions"]] == ["on"]


@pytest.mark.needs_root
@needs_disks
def test_a_refusal_fails_the_task_with_its_codes_and_the_exit_code(disks: PlaybookRuns) -> None:
    failed = disks.ran.results["refused"]
    assert disks.ran.words["refused"] == "fatal" and not failed["changed"]
    assert failed["rc"] == 3 and "same-drive" in {one["code"] for one in failed["refusals"]}
    assert failed["msg"].splitlines() == [one["text"] for one in failed["refusals"]]
    assert "name each drive once" in failed["next"]


@pytest.mark.needs_root
@needs_disks
@when_thorough("plays three times more")
def test_an_interrupted_move_is_resumed_or_rolled_back_and_other_content_wiped_once(interrupted: PlaybookRuns) -> None:
    check_three_runs(interrupted, {"finish", "undo", "wipe"})
    for name, start in (("cut", 2048), ("copy", 63)):
        assert first_start(interrupted.images[name]) == start
        assert_whole(interrupted.images[name])
    assert re.search(r"^-.*in-flight, \d+ of \d+ bytes moved", interrupted.ran.diffs["undo"], re.MULTILINE)
    results = interrupted.ran.results
    assert results["missing"]["rc"] == 3 and [one["what"] for one in results["missing"]["unseen"]]
    kept = results["kept"]
    assert kept["rc"] == 3 and {one["code"] for one in kept["refusals"]} == {"not-empty"}


@pytest.mark.needs_root
@pytest.mark.needs_tools("mdadm", "blkid")
def test_a_task_without_a_drive_is_ok_or_fails_as_its_settings_say(tmp_path: Path) -> None:
    """The settings select no drive of this machine: none has such a name."""
    file = tmp_path / "played.toml"
    names = 'by_id = "nvme-no_such_drive_*"\nnone = "nothing"\n'
    file.write_text(f'format = 1\nkind = "ensure"\nlevel = "raid0"\n[drives]\n{names}')
    played = read(play(tmp_path, "selected.yml", {"pattern": "nvme-no_such_drive_*", "file": str(file)}))
    assert played.words == {"nothing": "ok", "error": "fatal", "key": "fatal", "file": "ok", "absent": "fatal"}
    assert played.changed == 0
    assert played.results["nothing"]["plan"]["goal"] == "no drive is selected, which the file allows"
    assert played.results["file"]["plan"]["goal"] == "no drive is selected, which the file allows"
    failed = played.results["error"]
    assert failed["rc"] == 3 and [one["code"] for one in failed["refusals"]] == ["too-few-members"]
    assert "unknown key 'levels'" in played.results["key"]["msg"]
    assert "/etc/aligntool/arrays.d/no-such-file.toml" in played.results["absent"]["msg"]


def test_settings_become_the_same_file_as_a_user_would_write() -> None:
    source = (COLLECTION / "plugins/modules/raid.py").read_text()
    found: dict[str, Any] = {"json": json}
    start, end = source.index("def settings("), source.index("def ensure(")
    exec(compile(source[start:end], "raid.py", "exec"), found)
    values = {
        "level": "raid1", "owner": 1000, "bind": [{"from": 'a', "to": "/b"}],
        "drives": {"select": ["all-unused"], "model": ['x "y"', "z\\"], "at_least": 2},
    }  # fmt: skip
    words = found["settings"](values)
    assert words[::2] == ["--set"] * 6
    file = tomllib.loads(text_of_settings("data", words[1::2]))
    assert file == {**values, "owner": "1000", "format": 1, "kind": "ensure", "name": "data"}


def test_what_raid_create_makes_can_be_asked_of_the_module() -> None:
    """--root configures another system than the one that runs; a play configures its host."""
    help_ = run_aligntool("raid", "create", "--help", code=0).stdout
    taken = (COLLECTION / "plugins/modules/raid.py").read_text().partition("from ansible.module_utils.basic")[2]
    missing = [
        option
        for option in re.findall(r"^  --([a-z-]+)", help_, re.MULTILINE)
        if not re.search(rf'"{option.replace("-", "_")}": |{option}={{', taken)
    ]
    assert missing == ["root", "dry-run", "yes", "json", "color", "no-pager", "unconfined"]


def test_ansible_doc_has_a_page_for_every_module_with_the_options_it_accepts(tmp_path: Path) -> None:
    names = [f"aligntool.aligntool.{name}" for name in MODULES]
    said = run("env", "-i", *(f"{k}={v}" for k, v in environment(tmp_path).items()), "ansible-doc", "--json", *names)
    pages = json.loads(said)
    assert sorted(pages) == names
    for name in MODULES:
        page = pages[f"aligntool.aligntool.{name}"]
        assert page["doc"]["short_description"] and page["examples"] and page["return"]
        source = (COLLECTION / "plugins" / "modules" / f"{name}.py").read_text()
        taken = source.partition("from ansible.module_utils.basic")[2]
        for option, described in page["doc"]["options"].items():
            assert option == "executable" or f'"{option}": ' in taken or f"{option}={{" in taken, option
            assert described["description"] and described["type"]


def test_the_collection_can_be_built(tmp_path: Path) -> None:
    run("env", "-i", *(f"{k}={v}" for k, v in environment(tmp_path).items()), "ansible-galaxy", "collection", "build",
        COLLECTION, "--output-path", tmp_path)  # fmt: skip
    names = run("tar", "-tzf", tmp_path / f"aligntool-aligntool-{__version__}.tar.gz").split()
    assert {f"plugins/modules/{name}.py" for name in MODULES} < set(names) and "README.md" in names
