"""`aligntool fleet`: the verdict, the ranking, groups of one model, hostile snapshots, bounded memory."""

import io
import json
import lzma
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time
import tracemalloc
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.fleet import MOST_ROWS, MOST_SQUARES, Drive, ErrorCount, Fleet, Machine, machine_of
from aligntool.audit.fleet_changes import Change, State, compare_fleets, new_errors, states_of
from aligntool.audit.judge import audit
from aligntool.render.fleet import (
    MOST_OPEN,
    change_words,
    changes_json,
    fleet_lines,
    machine_json,
    page_html,
    verdict_of,
)
from aligntool.render.lines import text_of
from aligntool.units import GIB, MIB
from tests.audit import array_builders as arrays
from tests.audit.fleet.sample_snapshots import MACHINES, members_of, multiplied, pack, pc
from tests.fuzz import bombs
from tests.render.report.browser import asked, on_phone
from tests.render.report.test_browser import CUT, PHONE, examined
from tests.run_aligntool import program, run_aligntool
from tests.schemas import check
from tests.thorough import THOROUGH, when_thorough


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which snapshots are unpacked."""
    (tmp_path / "room").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "room"))
    return tmp_path / "room"


def document(*words: str | Path, code: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_aligntool("fleet", "--json", *words, code=code).stdout)
    check(found)
    return found


def machines(folder: Path) -> Path:
    """Return three machines, of which the one that writes most is not the first, and one without findings."""
    pc(folder / "a-idle", written=0)
    pc(folder / "b-unknown")
    pc(folder / "c-busy", written=4 * GIB)
    pc(folder / "d-fine", start=MIB, written=GIB)
    pc(folder / "e-quiet", written=GIB)
    return folder


def test_misaligned_disks_are_ranked_by_predicted_cost_and_amount_written(tmp_path: Path) -> None:
    """A partition at sector 63 of a 512e disk: each 4 KiB write touches two sectors of 4 KiB, so it costs twice as
    much, and the amount written is the extra work.
    """
    found = document(machines(tmp_path), code=1)
    ranking = [(row["machine"], row["cost"], row["written_a_day"], row["extra_a_day"]) for row in found["ranking"]]
    assert ranking == [
        ("c-busy", 2.0, 4 * GIB, 4 * GIB), ("e-quiet", 2.0, GIB, GIB), ("b-unknown", 2.0, None, None),
        ("a-idle", 2.0, 0, 0),
    ]  # fmt: skip
    assert [each["snapshot"].rpartition("/")[2] for each in found["machines"]] == [
        "a-idle", "b-unknown", "c-busy", "d-fine", "e-quiet",
    ]  # fmt: skip
    assert found["summary"]["misaligned"] == 4 and found["summary"]["snapshots"] == 5


def test_the_text_ranks_machines_and_says_by_what(tmp_path: Path) -> None:
    lines = run_aligntool("fleet", machines(tmp_path / "known"), code=1).stdout.splitlines()
    at = lines.index("Misaligned machines, most extra work first")
    assert [line.split()[0] for line in lines[at + 2 : at + 6]] == ["c-busy", "e-quiet", "b-unknown", "a-idle"]
    assert lines[-1] == f"→ aligntool audit --sysroot {tmp_path}/known/c-busy"
    pc(tmp_path / "unknown" / "only")
    text = run_aligntool("fleet", tmp_path / "unknown", code=1).stdout
    page = run_aligntool("fleet", tmp_path / "unknown", "-o", "-", code=1).stdout
    assert "Misaligned machines, most misaligned partitions first" in text
    assert "Next for <strong>only</strong>, the machine with the most misaligned partitions:" in page
    assert "extra work" not in page


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_long_name_of_a_machine_is_never_cut(tmp_path: Path, columns: int) -> None:
    names = [f"berlin-rack-of-databases-{number:02}.example.org" for number in range(3)]
    for name in names:
        pc(tmp_path / name)
    text = run_aligntool("fleet", tmp_path, env={"COLUMNS": str(columns)}, code=1).stdout
    lines = text[text.index("Misaligned machines") : text.index("off: ")].splitlines()
    assert all(any(name in line for line in lines) for name in names)
    assert max(map(len, lines)) <= columns and len(lines) == (5 if columns > 60 else 8)


def text_lines(*machines: Machine, width: int = 80) -> list[str]:
    fleet = Fleet()
    for number, machine in enumerate(machines):
        fleet.add(number, machine)
    return [line.rstrip("\n") for line in text_of(fleet_lines(fleet, width=width))]


def test_the_text_names_each_machine_with_unknown_starts_or_other_errors() -> None:
    fine = Machine("fine", on_grid=4)
    only_unknown = text_lines(fine, Machine("u1.tar", on_grid=1, unknown=2), Machine("u2", unknown=3))
    at = only_unknown.index("Machines with findings")
    assert [line.split() for line in only_unknown[at + 1 : at + 4]] == [
        ["machine", "unknown"],
        ["u2", "3"],
        ["u1", "2"],
    ]
    assert only_unknown[-1] == "→ aligntool audit --sysroot u2"
    mixed = text_lines(Machine("e", errors=1), fine, Machine("off", off_grid=1, errors=1), Machine("u", unknown=1))
    at = mixed.index("Machines with findings, most misaligned partitions first")
    assert [line.split() for line in mixed[at + 1 : at + 5]] == [
        ["machine", "off", "unknown", "errors"],
        ["off", "1", "0", "1"], ["e", "0", "0", "1"], ["u", "0", "1", "0"],
    ]  # fmt: skip
    assert not any("fine" in line for line in [*only_unknown, *mixed])
    assert len(text_lines(fine)) == 2


def test_a_long_name_gets_its_own_line_and_leaves_the_others_in_the_table() -> None:
    short, middle, long = "a", "db-replica-12.example.org", "build-runner-frankfurt-0007.internal.example.com"
    lines = text_lines(*(Machine(name, off_grid=9, errors=9) for name in (short, middle, long)), width=60)
    found = {line.split()[0]: len(line.split()) for line in lines if line.startswith("  ") and line.split()}
    assert (found[short], found[middle], found[long]) == (3, 3, 1)


def test_each_filter_of_the_page_has_the_number_of_its_machines(tmp_path: Path) -> None:
    page = run_aligntool("fleet", machines(tmp_path), "-o", "-", code=1).stdout
    filters = re.findall(r'id="only-(\w+)"[^>]*> ([^<]+)</label>', page)
    assert [(name, words.rpartition(": ")[2]) for name, words in filters] == [
        ("all", "5"), ("error", "4"), ("warning", "0"), ("good", "1"), ("unknown", "0"),
    ]  # fmt: skip


def test_names_with_numbers_are_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        pc(tmp_path / "in" / f"web{number}", start=MIB)
    (tmp_path / "in" / "web1.tar.xz").write_bytes(b"no archive")
    found = document(tmp_path / "in", code=3)
    assert [each["snapshot"].rpartition("/")[2] for each in found["machines"]] == [
        "web1.tar.xz", "web2", "web9", "web10"
    ]  # fmt: skip
    page = run_aligntool("fleet", *sorted((tmp_path / "in").iterdir()), "-o", "-", code=3).stdout
    assert re.findall(r'<h3 id="machine-\d+">([^<]+)</h3>', page) == ["web2", "web9", "web10"]


def test_the_squares_are_in_the_order_of_the_ranking_then_what_was_not_audited() -> None:
    fleet = Fleet()
    fleet.add(0, Machine("torn", why="no archive"))
    for number in range(1, MOST_ROWS + 5):
        fleet.add(number, Machine(f"m{number}", off_grid=number))
    squares = re.findall(r'<li class="\w+" data-name="([^"]+)"', page_html(fleet, "2026-11-29T00:00:00Z"))
    assert squares == [*(f"m{number}" for number in range(MOST_ROWS + 4, 0, -1)), "torn"]


def test_a_snapshot_that_is_given_twice_is_counted_once(tmp_path: Path) -> None:
    found = document(machines(tmp_path), tmp_path / "c-busy", code=1)
    assert found["summary"]["snapshots"] == 5 and found["summary"]["misaligned"] == 4


def test_the_first_line_is_the_verdict(tmp_path: Path) -> None:
    done = run_aligntool("fleet", machines(tmp_path), code=1)
    assert done.stdout.splitlines()[0] == "4 of 5 machines have misaligned partitions"
    assert max(map(len, done.stdout.splitlines())) <= 80
    fine = run_aligntool("fleet", tmp_path / "d-fine", code=0)
    assert fine.stdout.splitlines()[0] == "OK: every partition of 1 machine starts on its boundaries"


def test_errors_of_another_kind_are_in_the_verdict() -> None:
    """As in the verdict of an audit: a result that exits with 1 is not called OK."""
    said = []
    machines = (
        Machine("a", on_grid=1),
        Machine("b", on_grid=1, errors=2),
        Machine("c"),
        Machine("d", why="torn"),
        Machine("e", on_grid=1, warnings=2),
    )
    for machine in machines:
        fleet = Fleet()
        fleet.add(0, machine)
        said.append(verdict_of(fleet)[0].partition(";")[0])
    assert said == [
        "OK: every partition of 1 machine starts on its boundaries", "No partition is misaligned",
        "No partition to judge", "The snapshot could not be audited",
        "Every partition of 1 machine starts on its boundaries",
    ]  # fmt: skip


def test_exit_codes_are_those_of_an_audit(tmp_path: Path) -> None:
    folder = machines(tmp_path)
    bad = tmp_path / "bad.tar.xz"
    bad.write_bytes(b"no archive")
    assert run_aligntool("audit", "--sysroot", folder / "c-busy").returncode == 1
    run_aligntool("fleet", folder / "c-busy", code=1)
    run_aligntool("fleet", "--fail-on", "never", folder / "c-busy", code=0)
    run_aligntool("fleet", folder / "c-busy", bad, code=3)
    run_aligntool("fleet", tmp_path / "missing.tar.xz", code=3)
    run_aligntool("fleet", code=2)


def test_a_folder_without_snapshots_is_refused_with_each_suffix_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused = run_aligntool("fleet", tmp_path / "empty", code=3).stderr
    assert "contains no snapshot" in refused
    said = re.findall(r"\.t[.a-z]+[a-z]", refused.partition("\n")[0])
    pc(tmp_path / "tree", start=MIB)
    for suffix in said:
        (tmp_path / suffix).mkdir()
        pack(tmp_path / suffix / f"a{suffix}", members_of(tmp_path / "tree"), {})
        run_aligntool("fleet", tmp_path / suffix, code=0)
    assert sorted(said) == [".tar", ".tar.gz", ".tar.xz", ".tgz", ".txz"]


@pytest.mark.parametrize("words", [("fleet",), ("audit", "--sysroot")])
def test_a_name_that_does_not_exist_gets_the_words_of_the_system(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run_aligntool(*words, tmp_path / "nosuch", code=3)
    assert f"{tmp_path}/nosuch: No such file or directory\n" in done.stdout + done.stderr


def test_a_single_different_firmware_of_a_model_is_listed_for_attention(tmp_path: Path) -> None:
    for number in range(6):
        pc(tmp_path / f"m{number}", start=MIB, model="SSD X", firmware="2B6Q" if number == 4 else "3B6Q")
    pc(tmp_path / "other", start=MIB, model="SSD Y", firmware="1.0")
    found = document(tmp_path, code=0)
    (look,) = found["look"]
    assert (look["machine"], look["firmware"]) == ("m4", "2B6Q")
    assert look["why"] == "firmware 2B6Q; 5 of 6 drives of this model have 3B6Q"
    (model,) = found["models"]
    assert model["model"] == "SSD X" and model["drives"] == 6
    assert model["firmwares"] == [{"firmware": "3B6Q", "drives": 5}, {"firmware": "2B6Q", "drives": 1}]
    text = run_aligntool("fleet", tmp_path, code=0).stdout
    assert "1 drive needs new firmware or attention" in text and "m4, sda (SSD X): firmware 2B6Q" in text


def test_a_firmware_with_a_known_defect_is_a_finding_and_listed_for_attention(tmp_path: Path) -> None:
    """Crucial m4: firmware 0002 stops responding after 5184 hours, 0309 does not (Crucial's release notes of January
    2012).
    """
    for firmware in ("0002", "0309"):
        pc(tmp_path / f"fw{firmware}", start=MIB, model="M4-CT128M4SSD2", firmware=firmware)
    (look,) = document(tmp_path, code=0)["look"]
    assert (look["machine"], look["defect"]) == ("fw0002", look["why"])
    assert "0002" in look["why"] and "5184 power-on hours" in look["why"] and "firmware 0309 corrects it" in look["why"]
    for firmware, codes in (("0002", ["AT511"]), ("0309", [])):
        found = json.loads(run_aligntool("audit", "--sysroot", tmp_path / f"fw{firmware}", "--json", code=0).stdout)
        assert [one["code"] for one in found["findings"] if one["code"] == "AT511"] == codes
    assert "defect: it stops responding" in run_aligntool("drives", "M4-CT128M4SSD2", code=0).stdout


def test_a_model_evenly_split_between_two_firmwares_is_not_listed(tmp_path: Path) -> None:
    for number in range(6):
        pc(tmp_path / f"m{number}", start=MIB, model="SSD X", firmware="2B6Q" if number % 2 else "3B6Q")
    assert document(tmp_path, code=0)["look"] == []


def test_captured_machines_have_the_same_counts_as_in_the_audit(tmp_path: Path) -> None:
    names = [MACHINES / f"{name}.tar.xz" for name in ("lowest-aligned-7", "nvme-behind-switch")]
    found = document(*names, code=1)
    for name, machine in zip(names, found["machines"], strict=True):
        one = json.loads(run_aligntool("audit", "--json", "--sysroot", name).stdout)["summary"]
        assert {key: machine[key] for key in ("on_grid", "off_grid", "unknown", "errors", "warnings", "disks")} == {
            key: value for key, value in one.items() if key != "infos"
        }


def test_many_snapshots_are_reported_in_their_given_order_with_host_and_date(tmp_path: Path) -> None:
    list(multiplied(tmp_path, 9))
    found = document(tmp_path, code=1)
    assert [each["host"] for each in found["machines"]] == [f"host{at}" for at in range(9)]
    assert found["machines"][3]["date"] == "2026-11-04T00:00:00Z"
    extra = [row["extra_a_day"] for row in found["ranking"] if row["extra_a_day"] is not None]
    assert len(set(extra)) > 3 and extra == sorted(extra, reverse=True)
    assert {model["model"] for model in found["models"]} >= {"scsi_debug"}
    again = document(tmp_path, code=1)
    assert again | {"date": found["date"]} == found, "the order in which children answer makes no difference"


# Hostile snapshots


def _archive(path: Path, *members: tuple[str, bytes, str, bytes]) -> Path:
    with tarfile.open(path, "w:xz") as tar:
        for name, kind, link, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_a_hostile_snapshot_is_one_line_and_the_others_are_audited(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = machines(tmp_path / "in")
    _archive(folder / "x1.tar.xz", ("../outside", tarfile.REGTYPE, "", b"x"))
    link = ("sys/block", tarfile.SYMTYPE, str(tmp_path), b"")
    _archive(folder / "x2.tar.xz", link, ("sys/block/outside", tarfile.REGTYPE, "", b"x"))
    bomb = tarfile.TarInfo("sys/block/huge")
    bomb.size = 1 << 40
    (folder / "x3.tar.xz").write_bytes(lzma.compress(bomb.tobuf() + bytes(MIB)))
    (folder / "x4.tar.xz").write_bytes(b"\xfd7zXZ\0broken")
    _archive(folder / "x5.tar.xz", ("sys/block", tarfile.DIRTYPE, "", b""), ("/etc/x", tarfile.REGTYPE, "", b"x"))
    os.mkfifo(folder / "x6.tar.xz")
    odd = pc(folder / "x7\x1b[31m\udcff", start=MIB, model="\x1b[2J" + "M" * 500, firmware="<b>" * 40)
    (odd / "aligntool").mkdir()
    (odd / "aligntool/manifest.json").write_text(json.dumps({"host": "\x1b]0;" + "h" * 3000, "date": "<script>"}))
    page = tmp_path / "page.html"
    done = run_aligntool("fleet", folder, "-o", page, code=3)
    assert done.stdout.startswith("4 of 6 machines have misaligned partitions\n6 snapshots could not be audited")
    assert "Traceback" not in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr
    lines = done.stdout.partition("Not audited\n")[2]
    assert all(lines.count(f"/x{n}.tar.xz") == 1 for n in range(1, 7))
    assert not outside.exists() and not Path("/etc/x").exists()
    check(json.loads(run_aligntool("fleet", "--json", folder, code=3).stdout))
    text = page.read_text()
    assert text.count("<script") == 1 and "\x1b" not in text and "<b>" not in text


def test_a_snapshot_without_an_end_is_named_and_the_others_are_audited(tmp_path: Path) -> None:
    """900,000 folders of one name: some KiB, and far more work than in an archive of that size."""
    folder = machines(tmp_path / "machines")
    count = len(list(folder.iterdir()))
    endless = folder / "endless.tar.xz"
    bombs.archive(endless, bombs.ARCHIVES["equal folders.tar.xz"]())
    found = document(folder, code=3)
    (failed,) = (machine for machine in found["machines"] if machine["why"])
    assert failed["snapshot"] == str(endless)
    assert "more than 10000 files" in failed["why"]
    assert len(found["machines"]) == count + 1


def test_a_name_in_an_archive_does_not_fill_the_report(tmp_path: Path) -> None:
    _archive(tmp_path / "a.tar.xz", ("../" + "long" * 15_000, tarfile.REGTYPE, "", b""))
    machine = document(tmp_path, code=3)["machines"][0]
    assert "the archive contains" in machine["why"] and len(machine["why"]) <= 1000


def test_folders_unpacked_by_children_are_removed(tmp_path: Path, room: Path) -> None:
    list(multiplied(tmp_path / "in", 2))
    run_aligntool("fleet", tmp_path / "in", code=1)
    assert list(room.iterdir()) == []


# The page


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_has_the_verdict_the_ranking_and_no_network(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run_aligntool("fleet", machines(tmp_path / "in"), "-o", page, code=1)
    parser = _Page()
    parser.feed(page.read_text())
    assert parser.open == []
    text = " ".join(" ".join(parser.text).split())
    assert text.count("4 of 5 machines have misaligned partitions") == 2  # the title, the headline
    rows = re.findall(r'<h3 id="machine-\d+">([^<]+)</h3>', page.read_text())
    assert rows == ["c-busy", "e-quiet", "b-unknown", "a-idle", "d-fine"]
    square = (
        r'<li class="(\w+)" data-name="[^"]+" title="([^"]+)"><a href="#machine-(\d+)">\s*<span class="name">([^<]+)<'
    )
    assert re.findall(square, page.read_text()) == [
        (tone, f"{name}: {words}", str(number), name)
        for number, (name, tone, words) in enumerate(
            (
                ("c-busy", "error", "off 1, errors 1"),
                ("e-quiet", "error", "off 1, errors 1"),
                ("b-unknown", "error", "off 1, errors 1"),
                ("a-idle", "error", "off 1, errors 1"),
                ("d-fine", "good", "no findings"),
            ),
            1,
        )
    ]
    assert not re.search(r"https?://", page.read_text()) and page.read_text().count("<script") == 1
    refused = run_aligntool("fleet", tmp_path / "in", "-o", page, code=3)
    assert "already exists" in refused.stderr and refused.stdout == ""


def test_the_bars_of_models_are_to_scale(tmp_path: Path) -> None:
    for number in range(6):
        pc(tmp_path / "in" / f"x{number}", start=MIB if number < 4 else 32256, model="SSD X")
    for number in range(3):
        pc(tmp_path / "in" / f"y{number}", start=MIB if number else 32256, model="SSD Y")
    page = run_aligntool("fleet", tmp_path / "in", "-o", "-", code=1).stdout
    bars = re.findall(r'<th scope="row">(SSD .)</th><td class="bar">(.*?)</td>', page, re.DOTALL)
    widths = {name: re.findall(r'width="([0-9.]+)%" height="14" class="(\w+)"', bar) for name, bar in bars}
    assert widths == {
        "SSD X": [("33.333", "bad"), ("66.667", "good")],
        "SSD Y": [("16.667", "bad"), ("33.333", "good")],
    }


CHOSEN = """
const shown = [...document.querySelectorAll('.machine-row h3')].filter(one => one.checkVisibility());
say(shown.map(one => one.textContent));
"""


@pytest.mark.needs_tools("chromium")
def test_the_filter_shows_only_machines_of_one_kind_without_a_script(tmp_path: Path) -> None:
    for number in range(MOST_OPEN + 4):
        pc(tmp_path / "in" / f"m{number:02}", start=MIB if number % 4 else 32256)
    page = run_aligntool("fleet", tmp_path / "in", "-o", "-", code=1).stdout
    misaligned = [f"m{number:02}" for number in range(0, MOST_OPEN + 4, 4)]
    everything = asked(page, CHOSEN)
    assert isinstance(everything, list) and len(everything) == MOST_OPEN
    chosen = page.replace('id="only-all" checked', 'id="only-all"')
    assert asked(chosen.replace('id="only-error"', 'id="only-error" checked'), CHOSEN) == misaligned
    fine = asked(chosen.replace('id="only-good"', 'id="only-good" checked'), CHOSEN)
    assert isinstance(fine, list) and len(fine) == MOST_OPEN + 4 - len(misaligned)


FACTS = """
const facts = [...phone.contentDocument.querySelectorAll('.machine-row .model')];
const size = one => [one.scrollHeight > one.clientHeight, one.scrollWidth > one.clientWidth];
say(facts.map(one => [one.textContent.split(' · ')[0], ...size(one)]));
"""


@pytest.mark.needs_tools("chromium")
def test_a_phone_shows_the_figure_that_ranks_a_machine_whole(tmp_path: Path) -> None:
    for number in (1, 2):
        pc(tmp_path / f"database-replica-{number}.rack-12.frankfurt.example.org", written=number * 1300 * GIB)
    pc(tmp_path / "web", written=0)
    pc(tmp_path / "old")
    page = run_aligntool("fleet", tmp_path, "-o", "-", code=1).stdout
    assert asked(on_phone(page), CUT) == [True, [], 390]
    assert asked(on_phone(page), FACTS) == [
        ["2.5TiB extra a day", False, False], ["1.3TiB extra a day", False, False],
        ["extra work unknown", False, False], ["0B extra a day", False, False],
    ]  # fmt: skip


def test_a_name_on_the_page_is_broken_between_its_words(tmp_path: Path) -> None:
    pc(tmp_path / "db_1.example.org")
    page = run_aligntool("fleet", tmp_path, "-o", "-", code=1).stdout
    name = "db_<wbr>1.<wbr>example.<wbr>org"
    assert f'<h3 id="machine-1">{name}</h3>' in page and f'<span class="name">{name}</span>' in page
    assert 'data-name="db_1.example.org"' in page


FOUND = """
const box = document.querySelector('.find input');
box.value = ' WEB 1';
box.dispatchEvent(new Event('input'));
const squares = [...document.querySelectorAll('.heat li')].filter(one => one.checkVisibility());
const rows = [...document.querySelectorAll('.machine-row h3')].filter(one => one.checkVisibility());
const count = document.querySelector('.find output').value;
say([box.checkVisibility(), squares.length, rows.map(one => one.textContent), count]);
"""


@pytest.mark.needs_tools("chromium")
def test_the_search_box_shows_only_machines_whose_name_has_all_words(tmp_path: Path) -> None:
    for number in range(MOST_OPEN + 2):
        pc(tmp_path / "in" / f"{'web' if number % 2 else 'db'}-{number:02}")
    page = run_aligntool("fleet", tmp_path / "in", "-o", "-").stdout
    names = [f"web-{number:02}" for number in range(1, MOST_OPEN + 2, 2) if "1" in f"{number:02}"]
    assert asked(page, FOUND) == [True, len(names), names, f"{len(names)} found"]


@pytest.mark.needs_tools("chromium")
def test_without_scripts_there_is_no_search_box(tmp_path: Path) -> None:
    pc(tmp_path / "in" / "one")
    page = run_aligntool("fleet", tmp_path / "in", "-o", "-").stdout
    bare = page[: page.index("<script>")] + page[page.index("</script>") :]
    assert asked(bare, "say(document.querySelector('.find').checkVisibility())") is False


@pytest.mark.needs_tools("chromium")
@pytest.mark.parametrize(("width", "dark"), [(PHONE, True), (1200, False)], ids=["phone, dark", "desktop, light"])
def test_axe_finds_nothing_on_the_page_of_many_machines(tmp_path: Path, width: int, dark: bool) -> None:
    old, new = older_and_newer(tmp_path)
    page = run_aligntool("fleet", new, "--since", old, "-o", "-", code=3).stdout
    answer = examined(page, width=width, dark=dark)
    assert answer["broken"] == [] and answer["outside"] == [] and answer["wide"] == []
    assert {"color-contrast", "label"} <= set(answer["checked"])


def test_a_page_of_many_machines_is_bounded() -> None:
    fleet = Fleet()
    for number in range(MOST_SQUARES + 100):
        fleet.add(number, _machine(number))
    page = page_html(fleet, "2026-11-29T00:00:00Z")
    assert page.count('<article class="disk machine-row') == MOST_ROWS
    assert len(re.findall(r'<li class="\w+" data-name="[^"]+" title=', page)) == MOST_SQUARES
    assert f"The first {MOST_SQUARES} of {MOST_SQUARES + 100} machines." in page


# Two fleets


def older_and_newer(folder: Path) -> tuple[Path, Path]:
    """Return two folders of snapshots. Between them one machine became misaligned, one was realigned, one is new, one
    is gone, one cannot be read any more, and one is the same.
    """
    old, new = folder / "old", folder / "new"
    for fleet, starts in (
        (old, {"broken": MIB, "gone": MIB, "mended": 32256, "same": 32256, "worse": MIB}),
        (new, {"mended": MIB, "new": 32256, "same": 32256, "worse": 32256}),
    ):
        for name, start in starts.items():
            pc(fleet / name, start=start)
    (new / "broken.tar.xz").write_bytes(b"no archive")
    return old, new


def test_since_lists_what_became_worse_is_new_became_better_or_is_gone(tmp_path: Path) -> None:
    old, new = older_and_newer(tmp_path)
    found = json.loads(run_aligntool("fleet", new, "--since", old, "--json", code=3).stdout)
    check(found)
    assert found["schema"] == "aligntool.fleet.since" and found["since"] == str(old)
    assert [(each["machine"], each["change"]) for each in found["machines"]] == [
        ("broken", "worse"), ("worse", "worse"), ("new", "new"), ("mended", "better"), ("gone", "gone"),
    ]  # fmt: skip
    assert found["summary"] == {"worse": 2, "unclear": 0, "new": 1, "better": 1, "gone": 1, "unchanged": 1}
    worse = found["machines"][1]
    assert (worse["before"]["off_grid"], worse["after"]["off_grid"]) == (0, 1)
    assert found["machines"][2]["before"] is None and found["machines"][4]["after"] is None


def test_since_is_in_the_text_and_on_the_page(tmp_path: Path) -> None:
    old, new = older_and_newer(tmp_path)
    page = tmp_path / "page.html"
    text = run_aligntool("fleet", new, "--since", old, "-o", page, code=3).stdout
    lines = text.partition(f"Since {old}\n")[2].splitlines()
    assert lines[:7] == [
        "  2 worse, 0 unclear, 1 new, 1 better, 1 gone, 1 unchanged", "  worse    broken: no findings → not audited",
        "  worse    worse: off 0 → 1, errors 0 → 1; new: AT101: Partition starts off the",
        "    physical sectors", "  new      new: off 1, errors 1",
        "  better   mended: off 1 → 0, errors 1 → 0", "  gone     gone: no findings",
    ]  # fmt: skip
    parser = _Page()
    parser.feed(page.read_text())
    said = " ".join(" ".join(parser.text).split())
    assert "2 worse, 0 unclear, 1 new, 1 better, 1 gone, 1 unchanged" in said
    assert said.index("broken: no findings → not audited") < said.index("mended: off 1 → 0")


def test_since_reads_the_json_of_an_older_report(tmp_path: Path) -> None:
    old, new = older_and_newer(tmp_path)
    kept = tmp_path / "old.json"
    kept.write_text(run_aligntool("fleet", old, "--json", code=1).stdout)
    documents = [
        json.loads(run_aligntool("fleet", new, "--since", each, "--json", code=3).stdout) for each in (old, kept)
    ]
    assert documents[0]["machines"] == documents[1]["machines"]
    kept.write_text('{"schema": "aligntool.audit", "version": 1, "machines": []}')
    refused = run_aligntool("fleet", new, "--since", kept, code=3)
    assert f"{kept} is not a report of aligntool fleet --json" in refused.stderr and refused.stdout == ""
    missing = run_aligntool("fleet", new, "--since", tmp_path / "missing.json", code=3)
    assert "missing.json" in missing.stderr and "Traceback" not in missing.stderr


def test_the_exit_code_with_since_is_that_of_the_newer_machines(tmp_path: Path) -> None:
    for name, start in (("old", 32256), ("new", MIB)):
        pc(tmp_path / name / "a", start=start)
    (tmp_path / "old" / "b.tar.xz").write_bytes(b"no archive")
    run_aligntool("fleet", tmp_path / "new", "--since", tmp_path / "old", code=0)


_STATES = st.builds(
    State, st.just(False), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)
) | st.just(State(True, 0, 0, 0, 0))


@given(_STATES, _STATES)
def test_what_became_unknown_or_was_not_known_is_never_better(before: State, after: State) -> None:
    for each in compare_fleets("x", {"m": before}, {"m": after}).machines:
        rose = [
            name
            for name in ("off_grid", "errors", "unknown", "warnings")
            if getattr(after, name) > getattr(before, name)
        ]
        if rose or before.not_audited or after.not_audited:
            assert each.change is not Change.BETTER
        else:
            assert each.change is Change.BETTER
        if after.not_audited or rose[:1] == ["off_grid"]:
            assert each.change is Change.WORSE or before.not_audited


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (State(False, 2, 2, 0, 0), State(False, 0, 0, 2, 0), Change.UNCLEAR),
        (State(False, 0, 0, 0, 0), State(False, 0, 0, 2, 0), Change.WORSE),
        (State(False, 2, 2, 0, 0), State(False, 1, 1, 0, 1), Change.UNCLEAR),
        (State(True, 0, 0, 0, 0), State(False, 2, 2, 0, 0), Change.UNCLEAR),
        (State(False, 2, 2, 1, 0), State(False, 1, 1, 1, 0), Change.BETTER),
    ],
)
def test_some_numbers_that_fell_do_not_make_up_for_others(before: State, after: State, change: Change) -> None:
    (found,) = compare_fleets("x", {"m": before}, {"m": after}).machines
    assert found.change is change


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)),
)
def test_every_machine_is_counted_once_and_the_reverse_comparison_mirrors(
    before: dict[str, int], after: dict[str, int]
) -> None:
    old, new = ({name: State(False, off, 0, 0, 0) for name, off in each.items()} for each in (before, after))
    there, back = compare_fleets("x", old, new), compare_fleets("y", new, old)
    assert len(there.machines) + there.unchanged == len(before.keys() | after.keys())
    assert there.unchanged == back.unchanged
    assert (
        there.count(Change.WORSE)
        == back.count(Change.BETTER)
        == sum(after[name] > before[name] for name in before.keys() & after.keys())
    )
    assert there.count(Change.NEW) == back.count(Change.GONE) == len(after.keys() - before.keys())


# Memory


def _machine(number: int) -> Machine:
    drives = tuple(
        Drive(
            f"sd{place}",
            f"MODEL {number % 500 if number % 2 else number}",
            f"FW{number % 60}",
            1 << 40,
            1,
            2.0,
            number,
            number,
            None,
        )
        for place in range(4)
    )
    why = "no archive" if number % 10 == 0 else None
    return Machine(f"/in/{number}.tar.xz", f"host{number}", "2026-11-01T00:00:00Z", "0.1.0", 4, off_grid=4,
                   drives=drives, why=why)  # fmt: skip


def test_the_page_never_replaces_a_snapshot_of_the_folder(tmp_path: Path) -> None:
    snapshot = tmp_path / "a.tar.xz"
    snapshot.write_bytes(b"captured")
    page = tmp_path / "page.html"
    page.symlink_to(snapshot)
    refused = run_aligntool("fleet", tmp_path, "-o", page, "--overwrite", code=3)
    assert f"{page} is what is read; nothing was written" in refused.stderr
    assert snapshot.read_bytes() == b"captured"


@when_thorough("many machines")
def test_stored_data_do_not_grow_with_the_number_of_machines() -> None:
    fleet, sizes = Fleet(), []
    tracemalloc.start()
    try:
        for number in range(12_000):
            fleet.add(number, _machine(number))
            if number in (5_999, 11_999):
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert fleet.snapshots == 12_000 and fleet.not_audited == 1_200 and fleet.misaligned_disks == 43_200
    assert sizes[1] < sizes[0] + 200_000
    audited = [number for number in range(12_000) if number % 10][::-1]
    assert [row.machine for row in fleet.ranking[::4]] == [f"host{number}" for number in audited[: MOST_ROWS // 4]]


_PEAK = """
import sys
from aligntool.__main__ import main
try:
    main()
finally:
    (peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(peak, file=sys.stderr)
"""


def _peak(folder: Path) -> int:
    """Return the peak memory of the parent in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, "fleet", "--json", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    return int(done.stderr.split()[-1])


@when_thorough("many machines")
def test_the_memory_of_the_parent_does_not_grow_with_the_number_of_snapshots(tmp_path: Path) -> None:
    few, many = (100, 1000) if THOROUGH else (8, 40)
    names = list(multiplied(tmp_path / "many", many))
    (tmp_path / "few").mkdir()
    for name in names[:few]:
        (tmp_path / "few" / name.name).symlink_to(name)
    peaks = _peak(tmp_path / "few"), _peak(tmp_path / "many")
    assert peaks[1] < peaks[0] + 2048 and peaks[1] < 96 * 1024, peaks


def test_ctrl_c_ends_the_command_and_its_children(tmp_path: Path, room: Path) -> None:
    list(multiplied(tmp_path / "in", 24))
    child = subprocess.Popen(program("fleet", tmp_path / "in"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)  # fmt: skip
    while not any(room.glob("*/*")):  # a child unpacks
        assert child.poll() is None
    os.killpg(child.pid, 2)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 130 and b"Traceback" not in err and out == b""
    assert list(room.iterdir()) == []


def test_since_refuses_a_file_that_is_neither_a_snapshot_nor_json(tmp_path: Path) -> None:
    pc(tmp_path / "new" / "a")
    page = tmp_path / "page.html"
    run_aligntool("fleet", tmp_path / "new", "-o", page, code=1)
    refused = run_aligntool("fleet", tmp_path / "new", "--since", page, code=3)
    assert f"--since {page}: " in refused.stderr and refused.stdout == ""


def test_the_documented_script_compares_each_run_with_the_one_before(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/fleet.md").read_text().partition("## Every night")[2]
    script = text.partition("```\n")[2].partition("```")[0].replace("/srv/aligntool", shlex.quote(str(tmp_path)))
    places = [
        pack(tmp_path / f"{start}.tar.xz", members_of(pc(tmp_path / str(start), start=start)), {})
        for start in (MIB, 32256)
    ]
    folder = tmp_path / "bin"
    folder.mkdir()
    script = script.replace("/usr/local/bin", shlex.quote(str(folder)))  # where `make install` puts aligntool
    (folder / "aligntool").write_text(f'#!/bin/sh\nexec {shlex.join(program())} "$@"\n')
    (tmp_path / "hosts.txt").write_text("db7\n")
    said = []
    for place in places:
        (folder / "ssh").write_text(f"#!/bin/sh\ncat {shlex.quote(str(place))}\n")
        for each in folder.iterdir():
            each.chmod(0o755)
        cron = {"PATH": "/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", script], env=cron, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
        time.sleep(1)  # the name of a run has the second
    assert "Since " not in said[0]
    assert "1 worse, 0 unclear, 0 new" in said[1] and "db7: off 0 → 1, errors 0 → 1" in said[1]


def test_snapshots_without_a_date_are_counted_beside_those_with_one() -> None:
    dates = ("2026-11-23T00:00:00Z", None, None)
    lines = text_lines(*(Machine(f"m{number}", date=date) for number, date in enumerate(dates)), width=200)
    assert lines[1].endswith("; captured on 2026-11-23, 2 without a date")


def test_numbers_in_the_last_column_are_right_aligned() -> None:
    lines = text_lines(*(Machine(f"m{number}", warnings=number) for number in (2, 10)))
    at = next(number for number, line in enumerate(lines) if line.endswith("  warnings"))
    right = len(lines[at])
    assert [len(line) for line in lines[at + 1 : at + 3]] == [right, right]


DEGRADED = Machine(
    "db1", disks=4, errors=1, warnings=2, on_grid=5, error_codes=(ErrorCount("AT101", 1), ErrorCount("AT601", 1))
)


def test_a_machine_with_a_degraded_array_is_before_slow_ones_and_its_row_says_so() -> None:
    lines = text_lines(Machine("slow", off_grid=9, errors=9), DEGRADED)
    title = "AT601: An array runs with members missing"
    assert lines[0].startswith(f"{title} on 1 machine; 1 of 2 machines has")
    rows = [line.split() for line in lines if line.startswith("  ")]
    assert [row[0] for row in rows if row[0] in ("slow", "db1")] == ["db1", "slow"]
    assert any(line.startswith("  db1") and "AT601: An array" in line for line in lines)
    assert lines[-1] == "→ aligntool audit --sysroot db1"


def test_an_error_of_an_array_names_it_in_text_page_and_json() -> None:
    found = machine_of("db1.tar.xz", audit(arrays.machine("raid1", degraded=1), {}), {})
    words = "AT601 md127 (any:data): An array runs with members missing"
    assert words[:20] in "\n".join(text_lines(found))
    fleet = Fleet()
    fleet.add(0, found)
    assert words in page_html(fleet, "2026-11-29T00:00:00Z")
    (error,) = json.loads(machine_json(found))["error_codes"]
    assert error == {"code": "AT601", "count": 1, "arrays": ["md127 (any:data)"]}


def test_the_page_says_what_the_error_of_a_machine_is() -> None:
    fleet = Fleet()
    fleet.add(0, Machine("slow", off_grid=9, errors=9))
    fleet.add(1, DEGRADED)
    page = page_html(fleet, "2026-11-29T00:00:00Z")
    said = "AT601: An array runs with members missing"
    assert f'<span class="verdict error">{said}; 5 aligned</span>' in page
    assert f"Next for <strong>db1</strong>, {said}:" in page and f"<li>{said}</li>" in page
    row = page.partition('<h3 id="machine-1">db1')[2].partition("</summary>")[0]
    assert 'class="bad"' in row, "a bar that is green all over says that all is well"


def test_what_is_new_on_a_machine_is_named_and_never_hidden_by_what_is_gone() -> None:
    def db(*codes: tuple[str, int], errors: int | None = None, why: str | None = None) -> Machine:
        found = tuple(ErrorCount(*each) for each in codes)
        return Machine("db1", errors=sum(each.count for each in found) if errors is None else errors,
                       error_codes=found, why=why)  # fmt: skip

    def change(before: Machine, after: Machine) -> tuple[str, str] | None:
        found = compare_fleets("x", states_of([before]), states_of([after]), new_errors([before], [after])).machines
        return (found[0].change.value, change_words(found[0])) if found else None

    slow = ("AT101", 16)
    degraded = "AT601: An array runs with members missing"
    assert change(db(slow), db(slow, ("AT601", 1))) == ("worse", f"errors 16 → 17; new: {degraded}")
    assert change(db(slow), db(("AT101", 15), ("AT601", 1))) == ("unclear", f"new: {degraded}")
    assert change(db(slow), db(("AT101", 14), ("AT601", 1))) == ("unclear", f"errors 16 → 15; new: {degraded}")
    assert change(db(slow, ("AT601", 1)), db(slow)) == ("better", "errors 17 → 16")
    assert change(db(slow), db(slow)) is None
    older = db(errors=16)  # a report of a version that did not count by code
    assert change(older, db(slow, ("AT601", 1))) == ("worse", "errors 16 → 17")
    assert change(db(why="no archive"), db(slow)) == ("unclear", "not audited → errors 16")


def test_the_changes_of_a_machine_are_in_the_document_and_on_the_page() -> None:
    before, after = Machine("db1", disks=4), replace(DEGRADED, errors=2)
    changes = compare_fleets("x", states_of([before]), states_of([after]), new_errors([before], [after]))
    document = json.loads(changes_json(changes, "2026-11-29T00:00:00Z"))
    check(document)
    assert document["machines"][0]["errors"] == [{"code": "AT101", "count": 1}, {"code": "AT601", "count": 1}]
    fleet = Fleet()
    fleet.add(0, after)
    listed = page_html(fleet, "2026-11-29T00:00:00Z", changes).partition('id="since"')[2].partition("</ul>")[0]
    assert "new: AT101:" in listed and "AT601: An array runs with members missing" in listed


def test_the_document_counts_the_errors_of_each_code(tmp_path: Path) -> None:
    found = document(machines(tmp_path), code=1)
    counts = [sum(each["count"] for each in machine["error_codes"]) for machine in found["machines"]]
    assert counts == [machine["errors"] for machine in found["machines"]] and any(counts)
    assert {each["code"] for machine in found["machines"] for each in machine["error_codes"]} >= {"AT101"}


def test_the_square_of_a_machine_with_a_degraded_array_differs_from_a_misaligned_one() -> None:
    fleet = Fleet()
    for number, machine in enumerate((Machine("slow", off_grid=9, errors=9), replace(DEGRADED, off_grid=1))):
        fleet.add(number, machine)
    page = page_html(fleet, "2026-11-29T00:00:00Z")
    assert '<li class="error damage" data-name="db1"' in page and '<li class="error" data-name="slow"' in page
    assert '<span aria-hidden="true">!</span>' in page and '<span aria-hidden="true">9</span>' in page
