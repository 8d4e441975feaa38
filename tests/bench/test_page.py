"""Results on a page of the documentation."""

from pathlib import Path

import pytest

from tests.bench.page import put


def test_results_are_written_between_their_markers_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- b begin -->\nold\n<!-- b end -->\nc\n<!-- d begin -->\nkept\n<!-- d end -->\n")
    put(page, "b", "new")
    assert page.read_text() == ("a\n<!-- b begin -->\nnew\n<!-- b end -->\nc\n<!-- d begin -->\nkept\n<!-- d end -->\n")
    page.write_text("no markers")
    with pytest.raises(SystemExit):
        put(page, "b", "new")
