"""Which English pages a translated page follows, and whether they have changed since."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

FOLLOWED = r"^<!-- follows docs/(\S+)(?: \((.*)\))? sha256:(\S+) -->$"
"""The first lines of a translated page: the page or the sections that it follows, and the SHA-256 of their
words.
"""


def followed(page: str, docs: Path) -> Iterator[tuple[str, str, bool, str]]:
    """Yield each page in `docs` that a translated page follows: its name, the text followed, whether that is
    as it was translated, and the SHA-256 of its words.
    """
    for name, sections, digest in re.findall(FOLLOWED, page, re.MULTILINE):
        text = (docs / name).read_text()
        if sections:
            text = "".join(f"## {title}\n{section(text, title)}" for title in sections.split(", "))
        now = digest_of(text)
        yield name, text, digest == now, now


def digest_of(text: str) -> str:
    """Return the SHA-256 of the words of a text."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def section(page: str, title: str) -> str:
    """Return the text of a section, or nothing if the page has none of this title."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""
