"""Results of benchmarks that were kept: reading one, and listing all.

In: files, which anybody may have written. Out: Results, and a complaint for each file that is none. Alone because a
history outlives the version of aligntool that wrote it.
"""

from collections.abc import Mapping
from pathlib import Path

from aligntool.bench.document import LARGEST, from_json
from aligntool.bench.experiments import Spans, Starts, experiment_from_json
from aligntool.bench.results import Brief, Kept, Result
from aligntool.errors import Refused


def history_folder(environment: Mapping[str, str], *, root: bool) -> Path:
    """$XDG_STATE_HOME, else /var/lib for root and ~/.local/state for others (XDG Base Directory Specification)."""
    state = environment.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state, "aligntool", "bench")
    if root:
        return Path("/var/lib/aligntool/bench")
    return Path(environment.get("HOME") or "/", ".local", "state", "aligntool", "bench")


def read_result(file: str) -> Result:
    """Raises Refused."""
    return from_json(read_text(file), file)


def read_text(file: str) -> str:
    """Of a file that may be a result. Raises Refused."""
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - the user's own spelling
            content = opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Refused(f"{file}: {why}", hint="aligntool bench list") from error
    if len(content) > LARGEST:
        raise Refused(f"{file} is too large for a result of aligntool bench", hint="aligntool bench list")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{file} is no text", hint="aligntool bench list") from None


def read_experiment(file: str) -> Starts | Spans | None:
    """None: it is none. Raises Refused."""
    return experiment_from_json(read_text(file), file)


def _kept(file: str) -> Kept:
    text = read_text(file)
    found = experiment_from_json(text, file)
    if found is None:
        return Kept(file, from_json(text, file))
    name = "alignment" if isinstance(found, Starts) else "span"
    return Kept(
        file,
        None,
        experiment=Brief(found.when, name, found.target, found.summary, found.drive, found.complete),
    )


def list_results(folder: Path) -> list[Kept]:
    """Oldest first. An empty list: there is no history."""
    try:
        names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".json"))
    except OSError:
        return []
    found = []
    for name in names:
        file = str(folder / name)
        try:
            found.append(_kept(file))
        except Refused as refusal:
            found.append(Kept(file, None, str(refusal)))
    return found
