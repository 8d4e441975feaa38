"""Write results into a page of the documentation, between the two markers of their name, and change nothing else."""

from pathlib import Path


def put(page: Path, name: str, text: str) -> None:
    """Replace the text between the markers. Raises SystemExit if the page has no such markers."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    head, has_begin, rest = page.read_text().partition(begin)
    _, has_end, tail = rest.partition(end)
    if not has_begin or not has_end:
        raise SystemExit(f"{page} has no {begin} ... {end}")
    page.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
