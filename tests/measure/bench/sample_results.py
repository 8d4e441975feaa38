"""Made-up results for tests, with known figures."""

from collections.abc import Sequence

from aligntool.measure.results import Conditions, DriveState, Result, Sample, Series, Settings
from aligntool.recipes.goals import BenchTest
from aligntool.units import KIB, MIB


def sample(
    rate: float, *, number: int = 1, block: int = 4 * KIB, cpu: float = 10, seconds: float = 1.0, busy: float = 0.5
) -> Sample:
    """Return a sample; `rate` in bytes per second, `busy` in cores."""
    return Sample(number, round(rate), rate / block, round(rate * seconds), seconds, 50.0, cpu, 40.0, 90.0, 200.0, busy)


def series(
    *rates: float, random: bool = True, block: int = 4 * KIB, depth: int = 1, threads: int = 1, write: bool = False,
    cpu: float = 10, busy: float = 0.5,
) -> Series:  # fmt: skip
    test = BenchTest(random, block, depth, threads, write)
    return Series(
        test, tuple(sample(rate, number=n, block=block, cpu=cpu, busy=busy) for n, rate in enumerate(rates, 1))
    )


def result(
    *found: Series, passes: Sequence[int] = (), steady: bool = False, score: str | None = None,
    drive: DriveState | None = None, span: int = 64 * MIB, kind: str = "folder",
) -> Result:  # fmt: skip
    settings = Settings("made-up", span, 1.0, 5, True, "libaio", "file", tuple(passes), steady, score)
    drives = (drive or DriveState("sda", model="Made Up 1", queue_depth=32, kind="ata"),)
    seen = Conditions(kernel="6.1", fio="fio-3.33", cores=8, drives=drives)
    return Result("2026-01-02T03:04:05Z", "0.1", "/srv", kind, settings, seen, found)
