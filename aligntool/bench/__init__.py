"""Benchmarks: which loads to put on a drive, what fio said of them, and what that means.

In: profiles, what is known of the target, figures of runs. Out: jobs, results, verdicts. Pure: fio itself is started in
`apply/fio.py`, the machine is asked in `probe/`.
"""

from aligntool.bench.jobs import Job, Pattern, fio_words
from aligntool.bench.measured import Measured, Side

__all__ = ["Job", "Measured", "Pattern", "Side", "fio_words"]
