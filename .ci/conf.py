"""Settings of Sphinx for `make site`: the Markdown pages of the repository as HTML, offline, with a search.

The pages stay as GitHub shows them: the menu is made of the lists of links in docs/README.md.
"""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

from aligntool import __version__

project = author = project_copyright = "aligntool"
version = release = __version__
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/**.md", "recipes/README.md", "packaging/ansible/README.md"]
exclude_patterns = [".*", "aligntool", "build", "dist", "tests"]  # not looked into: .venv has thousands of files
root_doc = "README"
myst_heading_anchors = 4  # as GitHub makes anchors
html_title = f"aligntool {__version__}"
html_theme = "alabaster"
html_theme_options = {"page_width": "70rem", "sidebar_width": "15rem", "fixed_sidebar": True}
html_css_files = ["data:text/css,.body%20img%7Bmax-width:100%25%7Dpre%7Boverflow-x:auto%7D"]
smartquotes = False  # a "--" is an option here
html_show_copyright = html_copy_source = html_show_sourcelink = False


def menu(caption: str, pages: list[str]) -> str:
    """Return a table of contents that only the menu shows."""
    return "\n".join(["", "```{toctree}", ":hidden:", ":maxdepth: 1", f":caption: {caption}", *pages, "```", ""])


def add_menus(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the menus to the first page, and that of the decisions to the list of the pages."""
    if name not in ("README", "docs/README"):
        return
    listed = (Path(app.srcdir) / "docs" / "README.md").read_text()
    parts = re.split(r"^For people who change|^The decisions", listed, flags=re.MULTILINE)
    use, change, decisions = (re.findall(r"\]\(([\w/-]+)\.md\)", part) for part in parts)
    if name == "docs/README":
        source[0] += menu("Decisions", decisions)
        return
    pages = (f"docs/{page}" for page in use)
    others = ("recipes/README", "packaging/ansible/README", "CHANGELOG")
    source[0] += menu("For users", ["README.ja", "docs/README", *pages, *others])
    source[0] += menu("For developers", [*(f"docs/{page}" for page in change), "SECURITY"])


def copy_first_page(app: Sphinx, error: Exception | None) -> None:
    """Copy the first page to index.html, where servers look for it."""
    if error is None:
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Connect the event handlers of Sphinx."""
    app.connect("source-read", add_menus)
    app.connect("build-finished", copy_first_page)
