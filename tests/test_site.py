"""The site that `make site` generates from the Markdown pages: one in English, one in Japanese below it."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

from tests.conftest import run
from tests.thorough import when_thorough

ROOT = Path(__file__).parent.parent
# What a browser loads by itself: scripts, pictures, style sheets, fonts.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]*)|<link\b[^>]*\bhref="([^"]*)|url\(['"]?([^'")]*)"""
)
LINK = re.compile(r"""<(?:a|link|script|img)\b[^>]*?\b(?:href|src)="([^"]*)\"""")


@when_thorough("Sphinx reads every page")
def test_the_site_builds_without_a_warning_has_every_page_and_fetches_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    # A link to a missing page or heading is a warning, and so is a page that is in no list of docs/README.md.
    options = ("-qW", "--keep-going", "-c", ROOT / ".ci")
    assert run(sys.executable, "-m", "sphinx", *options, "-d", tmp_path / "en", ROOT, site) == ""
    assert run(sys.executable, "-m", "sphinx", *options, "-d", tmp_path / "ja", "-t", "ja", ROOT, site / "ja") == ""

    japanese = {ROOT / "README.ja.md", *(ROOT / "docs" / "ja").glob("*.md")}
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[pr]*/**/README.md")}
    for page in pages:
        own, other = (site / "ja", site) if page in japanese else (site, site / "ja")
        name = page.relative_to(ROOT).with_suffix(".html")
        assert (own / name).is_file() and not (other / name).exists(), f"{page} is not in its site alone"
    assert 'url=docs/README.html"' in (site / "index.html").read_text()
    assert 'url=docs/ja/README.html"' in (site / "ja" / "index.html").read_text()
    assert '<html class="no-js" lang="ja"' in (site / "ja" / "docs" / "ja" / "raid.html").read_text()

    for page in (ROOT / "docs" / "ja").glob("*.md"):
        digests = _listed_digests(page)
        html = (site / "ja" / "docs" / "ja" / f"{page.stem}.html").read_text()
        assert ("この翻訳は英語版より古くなっています" in html) == any(old != new for old, new in digests), page

    texts = {file: file.read_text() for file in (*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg"))}
    for file, text in texts.items():
        for found in FETCHED.finditer(text):
            source = next(filter(None, found.groups()), "")
            assert not re.match(r"(https?:)?//", source), f"{file} fetches {source}"
    missing = [(str(file), link) for file in texts if file.suffix == ".html" for link in missing_targets(file, texts)]
    assert missing == []


def _listed_digests(page: Path) -> list[tuple[str, str]]:
    """Return the SHA-256 that a translated page names for each English page, and that of its words today, by coreutils.

    A page that follows sections names another text, which `followed` of .ci/translated_pages.py finds.
    """
    code = (
        "import json, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from translated_pages import followed;"
        "print(json.dumps([text for _, text, _, _ in followed(Path(sys.argv[2]).read_text(), Path(sys.argv[3]))]))"
    )
    texts = json.loads(run(sys.executable, "-B", "-c", code, ROOT / ".ci", page, ROOT / "docs"))
    named = re.findall(r"^<!-- follows .* sha256:(\S+) -->$", page.read_text(), re.MULTILINE)
    found = []
    for old, text in zip(named, texts, strict=True):
        done = subprocess.run(["sha256sum"], input=" ".join(text.split()), capture_output=True, text=True, check=True)
        found.append((old, done.stdout.split()[0]))
    return found


def missing_targets(file: Path, texts: dict[Path, str]) -> list[str]:
    """Return the links of a page to files and headings of the two sites that do not exist."""
    links = {unescape(link) for link in LINK.findall(texts[file]) if not re.match(r"\w+:|//", link)}
    found = []
    for link in sorted(links):
        path, _, fragment = link.partition("#")
        target = (file.parent / unquote(path.partition("?")[0])).resolve() if path else file
        there = target.is_file() and (not fragment or f'id="{unquote(fragment)}"' in texts.get(target, ""))
        found += [] if there else [link]
    return found
