"""`aligntool report` as a user types it: files, refusals, and a missing program."""

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import run
from tests.run_aligntool import run_aligntool

MACHINES = Path(__file__).parent.parent / "audit/machines"


def report(*words: str | Path, path: str | None = None) -> "subprocess.CompletedProcess[str]":
    return run_aligntool("report", *words, env={} if path is None else {"PATH": path})


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Make a disk with its first partition at sector 63."""
    made = tmp_path / "old.img"
    with made.open("wb") as file:
        file.truncate(64 << 20)
    run("sfdisk", "-q", made, stdin="label: dos\nstart=63, size=80000, type=83\nstart=81920, type=83\n")
    return made


@pytest.mark.needs_tools("sfdisk")
def test_the_page_shows_the_same_partition_starts_as_sfdisk(image: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = report(image, "-o", page)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"{page} written" in done.stderr
    text = page.read_text()
    for part in json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"]:
        assert f'<td role="cell" class="number sector">{part["start"]}</td>' in text
    assert "AT101" in text and f"aligntool plan realign {image}" in text


@pytest.mark.needs_tools("sfdisk")
def test_no_output_is_written_if_one_of_two_exists_unless_overwrite_is_given(image: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "map.svg"
    assert report("--chart", "queue-depth", "--svg", picture).returncode == 0
    before = picture.read_text()
    words = (image, "-o", page, "--chart", "map-old-img", "--svg", picture)
    refused = report(*words)
    assert refused.returncode == 3 and "already exists; nothing was written" in refused.stderr
    assert picture.read_text() == before and not page.exists()
    done = report(*words, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.svg", "old.img", "report.html"]


@pytest.mark.parametrize(
    "words",
    [
        "report READ -o NAME", "report READ --chart queue-depth --svg NAME", "report --bench READ -o NAME",
        "report --sysroot READ -o NAME", "audit --sysroot READ -o NAME", "audit --measured READ -o NAME",
    ],
)  # fmt: skip
def test_a_file_that_is_read_is_never_replaced(words: str, tmp_path: Path) -> None:
    file, name = tmp_path / "read", tmp_path / "name"
    file.write_bytes(bytes(1 << 20))
    name.hardlink_to(file)
    places = {"READ": file, "NAME": name}
    done = run_aligntool(*(places.get(word, word) for word in words.split()), "--overwrite", code=3)
    assert f"{name} is what is read; nothing was written" in done.stderr and done.stdout == ""
    assert name.read_bytes() == bytes(1 << 20)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "-o report.html"),
        (("-o", "x.svg", "--chart", "queue-depth", "--svg", "./x.svg"), "same file name"),
        (("--chart", "queue-depth"), "--svg FILE or --png FILE"),
        (("--svg", "x.svg"), "--chart NAME"),
        (("--chart", "queue-depth", "--svg", "x", "--png", "x"), "same file name"),
    ],
)
def test_output_files_without_a_matching_chart_are_usage_errors(words: tuple[str, ...], said: str) -> None:
    before = set(Path.cwd().iterdir())
    done = report(*words)
    assert done.returncode == 2 and said in " ".join(done.stderr.replace("│", " ").split()), done.stderr
    assert set(Path.cwd().iterdir()) == before


@pytest.mark.parametrize(
    ("words", "better"),
    [
        (("report", "-o", "r.pdf"), "r.html"),
        (("report", "--chart", "queue-depth", "--svg", "q.png"), "q.svg"),
        (("report", "--chart", "queue-depth", "--png", "q.jpeg"), "q.png"),
        (("fleet", MACHINES, "-o", "fleet.pdf"), "fleet.html"),
        (("snapshot", "-o", "foo.zip"), "foo.tar.xz"),
        (("snapshot", "-o", "foo"), "foo.tar.xz"),
    ],
)
def test_a_name_of_another_format_is_a_usage_error_with_a_better_name(
    words: tuple[str | Path, ...], better: str, tmp_path: Path
) -> None:
    done = run_aligntool(*words, cwd=tmp_path, env={"COLUMNS": "400"})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"such as {better}; nothing was written" in done.stderr and not list(tmp_path.iterdir())


def test_a_date_at_the_end_of_a_name_is_not_a_format(tmp_path: Path) -> None:
    for name in ("page", "page.2026.11", "page.htm"):
        assert run_aligntool("report", MACHINES.parent / "no.img", "-o", tmp_path / name).returncode == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such.img", "-o", "x.html"), "no-such.img"),
        (("--chart", "queue-depth", "--svg", "no-such-folder/x.svg"), "no-such-folder is not a folder"),
        (("--chart", "queue-depth", "--svg", "/dev/null", "--overwrite"), "not a regular file"),
        (("--chart", "queue-depth", "--svg", "n" * 300), "cannot be written: File name too long"),
    ],
)
def test_an_unwritable_output_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    before = set(Path.cwd().iterdir())
    done = report(*words)
    assert done.returncode == 3 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert set(Path.cwd().iterdir()) == before


def test_an_unknown_chart_is_refused_with_the_available_charts(tmp_path: Path) -> None:
    machine = MACHINES / "nvme-behind-switch.tar.xz"
    done = report("--sysroot", machine, "--chart", "map-nvme0", "--svg", tmp_path / "x.svg")
    assert done.returncode == 3
    assert "map-nvme0n1, " in done.stderr and "→ --chart map-nvme0n1" in done.stderr


@pytest.mark.parametrize("words", [("report", "-o", "page.html"), ("raid", "show"), ("raid", "persist", "md2")])
def test_two_captured_machines_are_a_usage_error_where_only_one_is_possible(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    first, second = MACHINES / "nvme-behind-switch.tar.xz", MACHINES / "there-is-none.tar.xz"
    done = run_aligntool(*words, "--sysroot", first, "--sysroot", second, cwd=tmp_path, env={"COLUMNS": "400"})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{first}, {second}: give one --sysroot" in done.stderr
    assert not list(tmp_path.iterdir())


def test_without_rsvg_convert_a_png_is_refused_with_the_name_of_its_package(tmp_path: Path) -> None:
    done = report("--chart", "queue-depth", "--png", tmp_path / "x.png", path=str(tmp_path))
    assert done.returncode == 3 and "librsvg2-bin" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.needs_tools("rsvg-convert")
def test_a_chart_without_disk_data_requires_no_disk(tmp_path: Path) -> None:
    svg, png = tmp_path / "q.svg", tmp_path / "q.png"
    done = report("--chart", "queue-depth", "--svg", svg, "--png", png)
    assert done.returncode == 0, done.stderr
    assert "Queue depth 1 compared with queue depth 4" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("word", ["queue-depth", "Queue-Depth"])
def test_explain_draws_queue_depth_and_lists_it(word: str) -> None:
    told = run_aligntool("explain", word, code=0).stdout
    assert "QD1" in told and "QD4" in told and max(map(len, told.splitlines())) <= 80
    listed = run_aligntool("explain", code=0).stdout
    assert "\nqueue-depth " in listed


def test_a_file_that_is_not_a_result_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    for text in ("", "{}", '{"schema": "aligntool.bench.span", "version": 1}'):
        broken.write_text(text)
        done = report("--bench", broken, "-o", tmp_path / "x.html")
        assert done.returncode == 3 and "is not a result" in done.stderr, done.stderr
    assert report("--bench", tmp_path / "none.json", "-o", tmp_path / "x.html").returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"]
