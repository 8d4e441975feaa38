"""`aligntool WORD...` that zeroes neither the journal's place nor the old places at the end.

Only the benchmark may do this: it shows what zeroing costs.

    python tests/bench/unzeroed.py realign DISK --yes
"""

import sys
from functools import partialmethod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from aligntool.__main__ import main
from aligntool.mover.journal import Journal
from aligntool.mover.steps import Walk


def nothing(self: Walk) -> None:
    """Leave the old places as they are."""


if __name__ == "__main__":
    Journal.close = partialmethod(Journal.close, zeroed=False)  # type: ignore[assignment]
    Walk._clear_old_places = nothing  # type: ignore[method-assign]
    main()
