"""The site that `make site` generates from the Markdown pages."""

import re
import sys
from pathlib import Path

from tests.conftest import run
from tests.thorough import when_thorough

ROOT = Path(__file__).parent.parent
# What a browser loads by itself: scripts, pictures, style sheets, fonts.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]*)|<link\b[^>]*\bhref="([^"]*)|url\(['"]?([^'")]*)"""
)


@when_thorough("Sphinx reads every page")
def test_the_site_builds_without_a_warning_has_every_page_and_fetches_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    # A link to a missing page or heading is a warning, and so is a page that is in no list of docs/README.md.
    words = ("-qW", "--keep-going", "-c", ROOT / ".ci", "-d", tmp_path / "doctrees", ROOT, site)
    assert run(sys.executable, "-m", "sphinx", *words) == ""

    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[pr]*/**/README.md")]
    for page in pages:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).is_file(), f"{page} is not in the site"
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()

    for file in (*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")):
        for found in FETCHED.finditer(file.read_text()):
            source = next(filter(None, found.groups()), "")
            assert not re.match(r"(https?:)?//", source), f"{file} fetches {source}"
