"""The last line of a stream of events, where nothing was changed: a refusal, an interruption, nothing to do."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from aligntool.errors import Refused

if TYPE_CHECKING:
    from aligntool.plan import Plan

_Words = ParamSpec("_Words")


def ends_stream(run: Callable[_Words, None]) -> Callable[_Words, None]:
    """Return a command whose `--json` ends with an `end` event also where it refuses or is interrupted before the
    first write. With `--dry-run` its JSON is a plan, and a refusal has none.
    """

    @wraps(run)
    def ended(*args: _Words.args, **kwargs: _Words.kwargs) -> None:
        if not kwargs.get("json_") or kwargs.get("dry_run"):
            return run(*args, **kwargs)
        try:
            return run(*args, **kwargs)
        except Refused as error:
            write_end("refused", changed=False, sentences=tuple(str(error).split("\n")), hint=error.hint)
            raise
        except KeyboardInterrupt:
            write_end("interrupted", changed=False, sentences=("nothing was written",))
            raise

    return ended


def write_end(state: str, *, changed: bool, sentences: tuple[str, ...] = (), hint: str = "") -> None:
    """Write the `end` event to standard output."""
    from aligntool.render.events import end_json

    sys.stdout.write(end_json(state=state, changed=changed, sentences=sentences, hint=hint))
    sys.stdout.flush()


def write_nothing_to_do(plan: "Plan", state: str = "new") -> None:
    """Write the whole stream of a plan without steps."""
    from aligntool.render.events import begin_json

    sys.stdout.write(begin_json(plan))
    write_end(state, changed=False, sentences=("nothing to do",))
