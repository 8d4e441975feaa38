"""Settings of Sphinx for `make site`: the Markdown pages of the repository as HTML, offline, with a search.

English and Japanese are two sites, the second (`-t ja`) in the folder ja/ of the first; a link to a page of
the other language leads to the other site. The pages stay as GitHub shows them: the menus are made of the
headings and links of docs/README.md, docs/ja/README.md and docs/decisions/README.md.
"""

import os
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

from aligntool import __version__

sys.path.insert(0, str(Path(__file__).parent))
from translated_pages import followed

JAPANESE = tags.has("ja")  # type: ignore[name-defined]  # Sphinx defines it # noqa: F821

project = author = project_copyright = "aligntool"
version = release = __version__
extensions = ["myst_parser"]
exclude_patterns = [
    ".*",
    "aligntool",
    "build",
    "dist",
    "tests",
]  # not looked into: .venv has thousands of files
if JAPANESE:
    language, root_doc = "ja", "docs/ja/README"
    include_patterns = ["README.ja.md", "docs/ja/*.md"]
else:
    language, root_doc = "en", "docs/README"
    include_patterns = [
        "*.md",
        "docs/*.md",
        "docs/decisions/*.md",
        "recipes/README.md",
        "packaging/ansible/README.md",
    ]
    exclude_patterns.append("README.ja.md")
myst_heading_anchors = 4  # as GitHub makes anchors
html_title = f"aligntool {__version__}"
html_theme = "furo"
html_static_path = ["site/static"]
templates_path = ["site/templates"]
html_css_files = ["aligntool.css"]
html_sidebars = {
    "**": [
        "sidebar/brand.html", "language.html", "sidebar/search.html", "sidebar/scroll-start.html",
        "sidebar/navigation.html", "sidebar/scroll-end.html",
    ]
}  # fmt: skip
smartquotes = False  # a "--" is an option here
highlight_language = "text"  # commands and their output, unless a block names its language
html_show_copyright = html_copy_source = html_show_sourcelink = False

# Pages that are below another one in the menu.
BELOW = {"docs/recipes": ["recipes/README"], "docs/ansible": ["packaging/ansible/README"]}
ABOUT = (["README.ja"], "aligntoolについて") if JAPANESE else (["README", "CHANGELOG", "SECURITY"], "About")


def menu(pages: list[str], caption: str = "") -> str:
    """Return a table of contents that only the menu shows."""
    options = [":hidden:", ":maxdepth: 1", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, *(f"/{page}" for page in pages), "```", ""])


def sections(listed: str) -> dict[str, list[str]]:
    """Return the pages that each section of a list links to; a page of several sections belongs to the last
    one.
    """
    titles, texts = (re.split(r"^## (.*)$", listed, flags=re.MULTILINE)[first::2] for first in (1, 2))
    found = {title: list(dict.fromkeys(pages_of(text))) for title, text in zip(titles, texts, strict=True)}
    last = {page: title for title, pages in found.items() for page in pages}
    return {title: [page for page in pages if last[page] == title] for title, pages in found.items()}


def pages_of(text: str) -> list[str]:
    """Return the pages that a text links to, as a whole."""
    return re.findall(r"\]\(([\w/-]+)\.md\)", text)


def add_menus(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the menus to the first page, and to the pages that have others below them."""
    folder = Path(name).parent.as_posix()
    if name == root_doc:
        for title, pages in sections(source[0]).items():
            source[0] += menu([f"{folder}/{page}" for page in pages], title)
        source[0] += menu(*ABOUT)
    elif name == "docs/decisions/README":
        source[0] += menu([f"{folder}/{page}" for page in pages_of(source[0])])
    elif name in BELOW:
        source[0] += menu(BELOW[name])


def mark_behind(app: Sphinx, name: str, source: list[str]) -> None:
    """Let a translated page begin with the English pages that have changed since it was translated."""
    behind = [
        page for page, _, is_current, _ in followed(source[0], Path(app.srcdir, "docs")) if not is_current
    ]
    if behind:
        links = "、".join(f"[docs/{page}](../{page})" for page in behind)
        source[0] = f"> この翻訳は英語版より古くなっています。最新の内容: {links}\n\n{source[0]}"


def other_site(name: str, other: str) -> str:
    """Return the address of a page of the other language, seen from a page of this one."""
    ours, theirs = ("ja/", "") if JAPANESE else ("", "ja/")
    return os.path.relpath(f"{theirs}{other}.html", Path(ours + name).parent)


def link_other_language(app: Sphinx, doctree: nodes.document) -> None:
    """Let links to pages of the other language lead to the other site."""
    for node in list(doctree.findall(pending_xref)):
        target, fragment = node["reftarget"], node.get("reftargetid")
        if (
            node["refdomain"] != "doc"
            or target in app.env.found_docs
            or not Path(app.srcdir, f"{target}.md").exists()
        ):
            continue
        address = other_site(node["refdoc"], target) + (f"#{fragment}" if fragment else "")
        node.replace_self(nodes.reference("", "", *node.children, refuri=address))


def mark_tasks(app: Sphinx, doctree: nodes.document) -> None:
    """Mark the list of tasks, the first one on the first page, for the style sheet."""
    if app.env.docname == root_doc:
        next(doctree.findall(nodes.bullet_list))["classes"].append("tasks")


def add_language(app: Sphinx, name: str, template: str, context: dict[str, object], doctree: object) -> None:
    """Add the address of the same page in the other language, or of its first page, for the link in the
    menu.
    """
    same = re.sub(r"^docs/ja/", "docs/", name) if JAPANESE else re.sub(r"^docs/(?=[\w-]+$)", "docs/ja/", name)
    if same == name or not Path(app.srcdir, f"{same}.md").exists():
        same = "docs/README" if JAPANESE else "docs/ja/README"
    context["other_language"] = other_site(name, same)


def redirect_to_first_page(app: Sphinx, error: Exception | None) -> None:
    """Write index.html, which servers look for."""
    if error is None:
        address = f"{root_doc}.html"
        Path(app.outdir, "index.html").write_text(
            f'<!doctype html><html lang="{language}"><meta charset="utf-8"><title>{html_title}</title>'
            f'<meta http-equiv="refresh" content="0; url={address}"><a'
            f' href="{address}">{html_title}</a></html>\n'
        )


def setup(app: Sphinx) -> None:
    """Connect the event handlers of Sphinx."""
    app.connect("source-read", add_menus)
    app.connect("source-read", mark_behind)
    app.connect("doctree-read", link_other_language)
    app.connect("doctree-read", mark_tasks)
    app.connect("html-page-context", add_language)
    app.connect("build-finished", redirect_to_first_page)
