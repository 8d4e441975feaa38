"""Jobs that do not return are abandoned, and do not delay those that do."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from aligntool.cli.arrays import refuse_unready
from aligntool.errors import Refused
from aligntool.inventory import Gap
from aligntool.linux.deadline import Pulse, result_in_child, results_in_children, run_while_progressing
from aligntool.linux.look import look
from aligntool.linux.programs import NOT_RUN, end_program, run_program
from aligntool.raid.planning import Needs
from aligntool.units import MIB
from tests.conftest import run
from tests.linux.stalled_disk import needs_stalled, stalled_disk, stalled_file
from tests.raid.applying.builders import member_step, paths_in
from tests.run_aligntool import run_aligntool

ROOT = Path(__file__).parents[2]


def _children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_slow_output_of_a_program_is_kept_to_the_last_byte() -> None:
    words = ("sh", "-c", "printf 'a1\nb2\na3'; sleep 0.3; printf '4\na5'; exit 7")
    answer = run_program(*words, only_reads=True, limit_s=30.0)
    assert (answer.code, answer.output) == (7, "a1\nb2\na34\na5")
    with tempfile.TemporaryFile("w+") as file:
        answer = run_program(*words, only_reads=True, limit_s=30.0, output=file)
        assert (answer.code, answer.output, file.read()) == (7, "", "a1\nb2\na34\na5")
    assert run_program("sh", "-c", "exec >&-; exec sleep 600", only_reads=True, limit_s=0.3).code == NOT_RUN
    assert run_program("sh", "-c", "sleep 600; true", limit_s=0.3).code == NOT_RUN


@pytest.mark.parametrize(("trapped", "code"), [("exit 3", 3), ("", -signal.SIGKILL)])
def test_a_program_that_ignores_the_signal_to_end_is_killed(trapped: str, code: int) -> None:
    words = ("sh", "-c", f"trap '{trapped}' TERM; echo; for each in $(seq 100); do sleep 0.1; done")
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout and child.stdout.readline() == b"\n"
        end_program(child, signal.SIGTERM, 30.0 if trapped else 0.3)
        assert child.returncode == code


def number(value: int, _: Pulse) -> int:
    return value


def never(_: Pulse) -> int:
    time.sleep(600)
    return 0


def dies(_: Pulse) -> int:
    os._exit(9)


def test_every_job_that_returns_gives_its_result_and_one_that_does_not_gives_none() -> None:
    jobs: list[Callable[[Pulse], int]] = [partial(number, value) for value in range(300)]
    jobs[7], jobs[100], jobs[200] = never, dies, never
    answers = dict(results_in_children(jobs, 1.0))
    assert answers == {value: None if value in (7, 100, 200) else value for value in range(300)}


def test_a_job_that_reports_progress_gets_more_time_but_not_without_limit() -> None:
    def works(beats: int, pulse: Pulse) -> int:
        for _ in range(beats):
            time.sleep(0.3)
            pulse.beat()
        return beats

    assert result_in_child(partial(works, 5), 1.0) == 5
    assert result_in_child(partial(works, 100), 1.0) is None


def computes(seconds: float, _: Pulse) -> int:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return 1


def test_computing_time_does_not_count_as_waiting_for_the_disk_but_is_limited() -> None:
    assert result_in_child(partial(computes, 0.6), 0.5) == 1
    assert result_in_child(partial(computes, 600.0), 0.1) is None


def test_an_exception_of_a_job_is_passed_on_and_the_child_has_no_files_open(tmp_path: Path) -> None:
    def fails(_: Pulse) -> int:
        raise Refused("no", hint="yes")

    with pytest.raises(Refused) as refusal:
        result_in_child(fails)
    assert refusal.value.hint == "yes"
    with (tmp_path / "lock").open("w"):
        there = result_in_child(lambda _: [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()])
    assert there is not None and not [name for name in there if name.startswith(str(tmp_path))]


def test_a_job_that_waits_too_long_for_a_disk_is_abandoned_and_the_disk_is_named(tmp_path: Path) -> None:
    fifo = tmp_path / "disk"
    os.mkfifo(fifo)

    def waits() -> bytes:
        with (tmp_path / "other").open("w"):
            return os.read(os.open(fifo, os.O_RDWR), 1)

    def program_waits() -> None:
        with (tmp_path / "other").open("w"):
            run_program("sh", "-c", f"exec cat <> {fifo}", only_reads=True, limit_s=60.0)

    for job, named in ((waits, fifo), (program_waits, tmp_path / "other")):
        began = time.monotonic()
        with pytest.raises(Refused, match=f"^{named} did not answer within 0.4 s$") as refusal:
            run_while_progressing(job, "-", 0.4)
        assert time.monotonic() - began < 30 and refusal.value.refusals[0].code == "no-answer"


def test_jobs_and_programs_that_make_progress_are_waited_for(tmp_path: Path) -> None:
    words = ("sh", "-c", "for i in 1 2 3 4 5; do sleep 0.2; done; echo done")

    def naps() -> int:
        for _ in range(5):
            time.sleep(0.2)
        return 5

    def fails() -> int:
        raise Refused("no", hint="yes")

    assert run_while_progressing(lambda: run_program(*words, only_reads=True).output, silence_s=0.6) == "done\n"
    assert run_while_progressing(naps, silence_s=0.6) == 5
    with pytest.raises(Refused, match="no"):
        run_while_progressing(fails)
    with pytest.raises(Refused, match="was killed"):
        run_while_progressing(lambda: os._exit(9))


def test_no_child_process_remains_after_all_have_answered() -> None:
    pid = result_in_child(lambda _: os.getpid())
    assert pid is not None
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@pytest.mark.needs_root
@needs_stalled
class TestStalledDisk:
    def test_a_stalled_disk_is_an_error_in_every_output_and_the_other_disk_is_judged(self, tmp_path: Path) -> None:
        image = tmp_path / "good.img"
        image.touch()
        os.truncate(image, 64 * MIB)
        run("sfdisk", "-q", image, stdin="label: gpt\nstart=2048\n")
        with stalled_disk(tmp_path) as device:
            audit = partial(run_aligntool, "audit", "--timeout", "2")
            done = audit("--json", device, image)
            quiet, metrics = audit("-q", device), audit("--format", "prometheus", device)
            listed = audit("--json", "--fail-on", "error")
        document = json.loads(done.stdout)
        silent, good = document["disks"]
        assert [part["verdict"]["answer"] for part in good["partitions"]] == ["on"]
        assert silent["verdict"]["answer"] == "unknown" and document["summary"]["unknown"] == 1
        assert [(one["what"], one["gap"]) for one in document["unseen"]] == [(device.name, "no-answer")]
        assert [(one["code"], one["disk"]) for one in document["findings"] if one["severity"] == "error"] == [
            ("AT903", device.name)
        ]
        assert [each.returncode for each in (done, quiet, metrics, listed)] == [3, 3, 3, 3]
        assert "AT903" in quiet.stdout and f'device="{device.name}",code="AT903"' in metrics.stdout
        assert device.name in {one["what"] for one in json.loads(listed.stdout)["unseen"]}

    def test_commands_on_a_stalled_disk_are_refused(self, tmp_path: Path) -> None:
        commands = [
            ("plan", "realign"),
            ("status",),
            ("resume",),
            ("report", "-o", str(tmp_path / "r.html")),
            ("bench", "run"),
            ("bench", "alignment"),
            ("bench", "span"),
        ]
        with stalled_disk(tmp_path) as device, ThreadPoolExecutor() as pool:
            done = list(pool.map(lambda words: run_aligntool(*words, device), commands))
        assert [each.returncode for each in done] == [3] * len(commands)
        assert all("did not answer" in each.stderr for each in done)

    def test_a_pipe_from_the_audit_ends_when_the_audit_ends(self, tmp_path: Path) -> None:
        with stalled_disk(tmp_path) as device:
            line = f"{sys.executable} -m aligntool audit --timeout 1 {device} | cat"
            done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert "AT903" in done.stdout

    def test_an_image_on_a_hung_file_system_is_refused_and_the_other_one_is_judged(self, tmp_path: Path) -> None:
        good = tmp_path / "good.img"
        good.write_bytes(bytes(MIB))
        with stalled_file(tmp_path) as file:
            seen = look([str(file), str(good)], silence_s=1.0, keep_going=True)
        assert [disk.path for disk in seen.disks] == [str(good)]
        assert [(one.what, one.gap) for one in seen.unseen] == [(str(file), Gap.DISK)]

    def test_a_journal_or_target_on_a_hung_file_system_is_refused(self, tmp_path: Path) -> None:
        good = tmp_path / "good.img"
        good.write_bytes(bytes(MIB))
        with stalled_file(tmp_path) as file, ThreadPoolExecutor() as pool:
            commands = [
                *((word, "--journal", file, good) for word in ("status", "resume", "rollback")),
                ("bench", "run", file),
            ]
            done = list(pool.map(lambda words: run_aligntool(*words), commands))
        assert [each.returncode for each in done] == [3] * len(commands)
        assert not [each.stderr for each in done if f"{file} did not answer" not in each.stderr]

    def test_the_preflight_check_of_an_array_opens_no_other_disk(
        self, tmp_path: Path, sparse: Callable[..., Path], loop: Callable[..., Path]
    ) -> None:
        """A child of this process that opens a disk that does not answer would remain."""
        steps = [member_step(paths_in(tmp_path), loop(sparse(64 * MIB)))]
        with stalled_disk(tmp_path):
            before = _children()
            with suppress(Refused):
                refuse_unready(Needs(), steps)
            assert _children() == before

    def test_a_program_that_cannot_be_killed_is_abandoned(self, tmp_path: Path) -> None:
        with stalled_disk(tmp_path) as device:
            words = ("dd", f"if={device}", "of=/dev/null", "bs=4096", "count=1")
            answer = run_program(*words, only_reads=True, limit_s=0.5)
            assert answer.code == NOT_RUN and "did not finish" in answer.errors

    def test_the_arrays_of_the_machine_are_shown_without_opening_it(self, tmp_path: Path) -> None:
        with stalled_disk(tmp_path) as device:
            disk = look([], arrays=True, files=False, silence_s=5.0).disk(str(device))
        assert disk is not None and disk.unseen[0].gap is Gap.PART and disk.size == 64 * MIB
