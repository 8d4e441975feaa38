"""The output of an audit fits the width of the terminal, and contains the names that the owner gave."""

from pathlib import Path

import pytest

from tests.conftest import run
from tests.run_aligntool import run_aligntool

SCRIPT = 'label: gpt\nstart=2049, size=204801, name="first of all"\nstart=300007, size=102400, name=second\n'


@pytest.mark.parametrize("columns", [40, 60, 79, 80])
def test_the_first_page_fits_the_terminal_and_keeps_its_words(columns: int) -> None:
    text = run_aligntool(env={"COLUMNS": str(columns)}, code=0).stdout
    assert max(map(len, text.splitlines())) <= columns
    assert text.split() == run_aligntool(env={"COLUMNS": "120"}, code=0).stdout.split()


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    image = Path("disk.img")
    with image.open("wb") as file:
        file.truncate(256 << 20)
    run("sfdisk", "-q", image, stdin=SCRIPT)
    run("mke2fs", "-q", "-t", "ext4", "-L", "photographs", "-E", f"offset={300007 * 512}", image, "50M")
    return image


@pytest.mark.needs_tools("sfdisk", "mke2fs")
@pytest.mark.parametrize("columns", [60, 72, 80, 100])
def test_a_map_fits_the_terminal(named: Path, columns: int) -> None:
    text = run_aligntool("audit", "--map", named, env={"COLUMNS": str(columns)}).stdout
    assert "second" in text and max(map(len, text.splitlines())) <= columns


@pytest.mark.needs_tools("sfdisk", "mke2fs")
def test_the_pictures_fit_beside_a_list(named: Path) -> None:
    """A picture that wraps shows blocks at other places of their sectors."""
    lines = run_aligntool("audit", "--map", named, env={"COLUMNS": "52"}).stdout.splitlines()
    drawn = [line for line in lines if "|-" in line or "[=" in line or line.strip() == "^"]
    assert len(drawn) > 5 and max(map(len, drawn)) <= 52


@pytest.mark.needs_tools("sfdisk", "mke2fs")
def test_the_text_and_the_page_contain_labels_and_names(named: Path) -> None:
    text = " ".join(run_aligntool("audit", named).stdout.split())
    run_aligntool("report", "-o", "page.html", named)
    for words in (text, Path("page.html").read_text()):
        assert "first of all" in words and "photographs" in words


@pytest.mark.needs_tools("sfdisk", "mke2fs")
@pytest.mark.parametrize("columns", [10**9, 10**20])
def test_a_map_does_not_fill_the_memory_if_the_width_is_nonsense(named: Path, columns: int) -> None:
    text = run_aligntool("audit", "--map", named, env={"COLUMNS": str(columns)}, code=1).stdout
    assert "second" in text and max(map(len, text.splitlines())) <= 80
    run_aligntool("audit", "--help", env={"COLUMNS": str(columns)}, code=0)
