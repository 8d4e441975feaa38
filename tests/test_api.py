"""The Python API: frozen names, the same results as the commands, and no output."""

import ast
import enum
import inspect
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from aligntool import api
from aligntool.units import KIB
from tests.cli.old_disks import assert_whole, first_start, make_old_disk
from tests.run_aligntool import run_aligntool
from tests.schemas import check, check_lines

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "fleet_check.py"
FROZEN = Path(__file__).parent / "golden" / "api.txt"

pytestmark = pytest.mark.needs_tools("sfdisk", "mke2fs", "e2fsck", "debugfs", "blkid")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_old_disk(tmp_path_factory.mktemp("old") / "old.img")


@pytest.fixture
def disk(model: Path, tmp_path: Path) -> Path:
    """Make a disk with one file system on sector 63."""
    image = tmp_path / "disk.img"
    image.write_bytes(model.read_bytes())
    return image


def kind_of(annotation: object) -> str:
    """Return a type as it is written, without the modules that define it."""
    text = inspect.formatannotation(annotation).replace("pathlib._local.", "pathlib.")  # Python 3.13
    return re.sub(r"\baligntool\.[\w.]*\.", "", text)


def described() -> Iterator[str]:
    """Yield the public names with their parameters, fields and values, a line each."""
    for name in sorted(api.__all__):
        value = getattr(api, name)
        if isinstance(value, enum.EnumMeta):
            yield from (name, *(f"    {each} = {one.value!r}" for each, one in vars(value)["_member_map_"].items()))
        elif is_dataclass(value) or inspect.isfunction(value):
            signature = inspect.signature(getattr(api, name))
            yield name
            for each in signature.parameters.values():
                default = "" if each.default is each.empty or callable(each.default) else f" = {each.default!r}"
                kind = " (keyword)" if inspect.isfunction(value) and each.kind is each.KEYWORD_ONLY else ""
                yield f"    {each.name}: {kind_of(each.annotation)}{default}{kind}"
            if inspect.isfunction(value):
                yield f"    -> {kind_of(signature.return_annotation)}"
            own = [each for each, kind in vars(value).items() if isinstance(kind, property)]
            yield from (f"    {each} (property)" for each in sorted(own))
        else:
            bases = [base.__name__ for base in getattr(value, "__mro__", ())]
            yield f"{name}: {', '.join(bases) or kind_of(value)}"


def test_the_public_names_and_signatures_are_frozen() -> None:
    """For additions, write this text into the file; removals must have been deprecated before."""
    assert "\n".join(described()) + "\n" == FROZEN.read_text()


def test_the_documentation_page_names_every_function() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    for name in api.__all__:
        if inspect.isfunction(getattr(api, name)):
            assert f"`{name}(" in page, name


def test_importing_the_api_does_not_import_the_command_line() -> None:
    code = "import sys, aligntool.api; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typer", "click", "rich", "jinja2", "parted", "aligntool.cli"} & set(loaded)


def test_the_api_audits_as_the_command_does(disk: Path) -> None:
    document = json.loads(run_aligntool("audit", "--json", disk, code=1).stdout)
    for report in (api.audit(disk), api.audit(api.look([str(disk)]))):
        assert json.loads(api.to_json(report)) | {"date": document["date"]} == document
    report = api.audit([disk, disk.parent / "missing"])
    assert [judged.disk.path for judged in report.judged] == [str(disk)]
    assert [unseen.what for unseen in report.inventory.unseen] == [str(disk.parent / "missing")]
    assert report.findings[0].next == document["findings"][0]["next"]


def test_the_api_plans_and_realigns_without_output(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plan = api.plan_realign(disk)
    check(json.loads(api.to_json(plan)))
    assert api.to_json(plan) == run_aligntool("plan", "realign", "--json", disk, code=0).stdout
    assert api.read_plan(api.to_json(plan)) == plan
    events: list[api.Event] = []
    done = api.apply(api.read_plan(api.to_json(plan)), events.append)
    assert first_start(disk) * 512 == plan.plan.places[0].after.start == 1 << 20
    assert_whole(disk)
    assert [verdict.answer for verdict in done.judged.verdicts] == [api.Answer.ON] and not done.kernel_behind
    assert [event.index for event in events if isinstance(event, api.StepDone)] == [*range(len(plan.plan.steps))]
    assert api.plan_realign(disk).nothing_to_do
    before = disk.read_bytes()
    assert api.apply(api.plan_realign(disk)).judged.disk == done.judged.disk and disk.read_bytes() == before
    with pytest.raises(api.Refused, match="has changed since") as refused:
        api.apply(plan)
    assert [one.code for one in refused.value.refusals] == ["plan-stale"]
    assert capfd.readouterr() == ("", "")


def test_a_refusal_has_every_reason(disk: Path) -> None:
    with pytest.raises(api.Refused) as refused:
        api.plan_realign(disk, partitions=[8, 9])
    assert all(isinstance(one, api.Refusal) and one.code and one.text for one in refused.value.refusals)
    (unseen,) = api.look(disk.parent / "missing").unseen
    assert unseen.why and not api.look(disk.parent / "missing").disks


def test_an_interruption_after_the_first_write_is_resumed(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt(event: api.Event) -> None:
        if isinstance(event, api.Progress):
            raise KeyboardInterrupt

    with pytest.raises(api.Stopped, match="interrupted in step") as stopped:
        api.apply(api.plan_realign(disk), interrupt)
    assert f"aligntool resume {disk}" in stopped.value.hint
    assert capfd.readouterr() == ("", "")
    run_aligntool("resume", "--yes", disk, code=0)
    assert first_start(disk) == 2048
    assert_whole(disk)


# The wake-up descriptor of an event loop has the number that the disk has in the child process.
WOKEN = """
import os, signal, sys
from pathlib import Path
from aligntool import api

disk, plan, found = Path(sys.argv[1]), api.plan_realign(sys.argv[1]), []

def interrupt(event):
    if isinstance(event, api.Progress):
        (mover,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        assert Path(f"/proc/{mover}/fd/3").samefile(disk)
        at = int(Path(f"/proc/{mover}/fdinfo/3").read_text().split()[1])
        found.append((at, disk.read_bytes()[at]))
        raise KeyboardInterrupt

os.dup2(os.pipe()[1], 3)
os.set_blocking(3, False)
signal.set_wakeup_fd(3)
try:
    api.apply(plan, interrupt)
except api.Stopped:
    print(*found[0], disk.read_bytes()[found[0][0]])
"""


def test_a_signal_that_wakes_an_event_loop_writes_nothing_to_the_disk(disk: Path) -> None:
    command = ["sh", "-c", '"$@" 3</dev/null', "sh", sys.executable, "-c", WOKEN, str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, before, after = done.stdout.split()
    assert before == after
    run_aligntool("rollback", "--yes", disk, code=0)
    assert_whole(disk)


def test_a_caller_that_ignores_sigchld_still_gets_exit_codes_of_programs(disk: Path) -> None:
    damaged = disk.with_name("damaged.img")
    damaged.write_bytes(disk.read_bytes())
    subprocess.run(["debugfs", "-w", "-R", "clri /", f"{damaged}?offset={63 * 512}"], check=True, capture_output=True)
    plans = api.plan_realign(disk), api.plan_realign(damaged)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        api.apply(plans[0])
        with pytest.raises(api.Refused, match="failed the check by e2fsck"):
            api.apply(plans[1])
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert_whole(disk)


def test_an_exception_in_the_callback_gets_a_note_about_the_state_of_the_disk(disk: Path) -> None:
    def fail(event: api.Event) -> None:
        if isinstance(event, api.Progress):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        api.apply(api.plan_realign(disk), fail)
    assert "the journal is kept" in raised.value.__notes__[0] and "aligntool rollback" in raised.value.__notes__[0]
    run_aligntool("rollback", "--yes", disk, code=0)
    assert first_start(disk) == 63


def test_the_example_uses_only_the_api_and_realigns_an_image(disk: Path) -> None:
    tree = [*ast.walk(ast.parse(EXAMPLE.read_text()))]
    imported = {ast.unparse(node) for node in tree if isinstance(node, ast.Import | ast.ImportFrom)}
    assert imported == {"import json", "import sys", "from aligntool import api"}
    named = [node for node in tree if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "api"]
    assert {node.attr for node in named} <= set(api.__all__)

    def example(*words: str) -> tuple[int, list[str]]:
        done = subprocess.run([sys.executable, EXAMPLE, *words, disk], capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    code, (line,) = example()
    assert code == 1 and json.loads(line) | {"bytes": 0} == {
        "disk": str(disk), "off": 1, "moves": [1], "bytes": 0, "refusals": []
    }  # fmt: skip
    assert first_start(disk) == 63
    code, (line, *events) = example("--apply")
    assert code == 0 and json.loads(line)["moves"] == [1]
    check_lines("\n".join(events))
    assert {"step-begun", "progress", "step-done"} <= {json.loads(event)["event"] for event in events}
    assert first_start(disk) == 2048
    assert_whole(disk)
    assert example() == (0, [json.dumps({"disk": str(disk), "off": 0, "moves": [], "bytes": 0, "refusals": []})])


def test_the_command_that_a_refusal_names_has_the_options_of_the_request(disk: Path) -> None:
    """Without them the command would move other partitions, or to another boundary."""
    found = api.plan_realign(disk, partitions=[1], grain=64 * KIB, physical_sector_size=4096)
    with disk.open("r+b") as file:
        file.seek(440)
        file.write(b"\xff\xfe\xfd\xfc")  # another disk signature
    with pytest.raises(api.Refused) as refused:
        api.apply(found)
    assert refused.value.hint.endswith(f"plan realign {disk} -p 1 --grain 64KiB --physical-sector-size 4KiB")
