"""The verdict on command queueing, on simulated drives whose answer is known: figures in, verdict out.

A closed queue: a request needs S seconds of one of the drive's ways and then H seconds of the processor. With n in
flight, IOPS are at most n / (S + H), ways / S and cores / H (the bounds of operational analysis: Denning and Buzen,
1978), and here exactly the smallest of them.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aligntool.measure.compare import Gain, depth_gains
from aligntool.measure.results import DriveState, Series
from aligntool.measure.schedule import BenchOptions, Target, TargetKind, depths_between, plan_bench
from aligntool.recipes.goals import BenchGoal, BenchTest
from aligntool.units import KIB
from tests.measure.bench.sample_results import result, series
from tests.measure.bench.test_profiles import goal_of, plan_of

DEPTHS = (1, 2, 4, 8, 32)


def simulated(
    service_us: float, host_us: float, ways: int, noise: float, rng: random.Random, *,
    depths: Sequence[int] = DEPTHS, cores: int = 2, hidden: float = 0.0, background: float = 0.0, thread: float = 0.5,
) -> list[Series]:  # fmt: skip
    """Simulate a drive; `hidden`: share of the host's time during which no core is busy; `thread`: share of the rest
    that fio's thread uses itself.
    """
    made = []
    for depth in depths:
        rates = [depth / (service_us + host_us), ways / service_us, cores / host_us, 1 / (host_us * thread)]
        iops = 1e6 * min(rates)
        share = iops * host_us * (1 - hidden) / 1e6
        runs = [iops * rng.gauss(1, noise) * 4 * KIB for _ in range(5)]
        busy = min(share + background, cores)
        made.append(series(*runs, depth=depth, cpu=min(100 * share * thread, 100), busy=busy))
    return made


def verdict(found: Sequence[Series], kind: str = "ata") -> Gain:
    (gain,) = depth_gains(result(*found, drive=DriveState("sda", kind=kind)))
    return gain.gain


HOSTS = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 6)  # times the drive's own part


@pytest.mark.parametrize("service_us", [100, 300, 1000, 10_000])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_a_serial_drive_is_never_reported_as_parallel(service_us: float, noise: float) -> None:
    rng = random.Random(round(service_us + 1000 * noise))
    for host in HOSTS:
        for thread in (0.1, 0.5, 1.0):
            for background in (0.0, 0.5):
                drawn = simulated(
                    service_us, max(host * service_us, 1), 1, noise, rng, background=background, thread=thread
                )
                assert verdict(drawn) is not Gain.SOME, (host, thread, background)


@pytest.mark.parametrize("host", [0.3, 0.5, 1.0])
def test_a_serial_drive_is_not_reported_as_parallel_if_its_host_idles(host: float) -> None:
    """Leaving an idle state, a network: time of the host during which no core is busy."""
    rng = random.Random(7)
    for _ in range(20):
        assert verdict(simulated(300, host * 300, 1, 0.02, rng, hidden=1.0)) is not Gain.SOME


@pytest.mark.parametrize("kind", ["network", "virtio", "scsi", "other"])
@pytest.mark.parametrize("service_us", [30, 100, 1000, 10_000])
def test_a_serial_drive_behind_a_network_is_never_reported_as_parallel(kind: str, service_us: float) -> None:
    rng = random.Random(round(service_us))
    for host in (0.5, 1, 1.5, 2, 3, 6, 20, 40):
        for noise in (0.0, 0.02, 0.1):
            drawn = simulated(service_us, host * service_us, 1, noise, rng, hidden=1.0)
            assert verdict(drawn, kind) is not Gain.SOME, (host, noise)


def test_a_gain_of_an_unknown_drive_may_be_caused_by_a_wait() -> None:
    """A folder on a network file system, or a result that does not name its drives."""
    drawn = simulated(1000, 4, 16, 0.0, random.Random(9))
    made = result(*drawn)
    (gain,) = depth_gains(replace(made, conditions=replace(made.conditions, drives=())))
    assert gain.gain is Gain.UNKNOWN and verdict(drawn) is Gain.SOME


def test_fast_answers_behind_a_network_may_be_from_memory() -> None:
    drawn = simulated(3, 100, 1, 0.02, random.Random(5), hidden=1.0)
    assert verdict(drawn, "network") is Gain.UNKNOWN


@pytest.mark.parametrize("host_us", [50, 100, 150, 190])
@pytest.mark.parametrize("share", [0.7, 1.0, 2.0, 4.0])
def test_the_gain_of_a_serial_drive_may_be_caused_by_leaving_an_idle_state(host_us: float, share: float) -> None:
    """The gain is no larger than what a flash drive can reach one request at a time."""
    rng = random.Random(round(host_us * share))
    drawn = simulated(max(host_us / share, 30), host_us, 1, 0.01, rng, hidden=1.0)
    assert verdict(drawn, "nvme") is not Gain.SOME


@pytest.mark.parametrize("kind", ["scsi", "virtio", "md"])
def test_more_iops_than_serial_flash_can_reach_show_parallelism_on_any_connection(kind: str) -> None:
    for ways, service_us in ((16, 100), (32, 300), (8, 80)):
        drawn = simulated(service_us, 4, ways, 0.05, random.Random(ways))
        assert verdict(drawn, kind) is Gain.SOME


def test_a_hard_disk_with_command_queueing_is_recognised() -> None:
    """12 ms with one in flight, 5 with 32: an idle processor does not take 7 ms to wake up."""
    depths = ((1, 83.0), (2, 101.0), (4, 130.0), (32, 200.0))
    drawn = [series(*[iops * 4096 * s for s in (0.99, 1, 1.01, 1, 1)], depth=depth) for depth, iops in depths]
    assert verdict(drawn, "ata") is Gain.SOME
    assert verdict(drawn, "network") is Gain.UNKNOWN


@pytest.mark.parametrize("ways", [4, 8, 32])
@pytest.mark.parametrize("service_us", [80, 300, 1000, 10_000])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_a_parallel_drive_is_recognised(ways: int, service_us: float, noise: float) -> None:
    rng = random.Random(ways)
    for host_us in (2, 5):
        assert verdict(simulated(service_us, host_us, ways, noise, rng)) is Gain.SOME


def test_a_parallelism_of_two_is_not_distinguished_from_a_slow_host() -> None:
    assert verdict(simulated(300, 5, 2, 0.02, random.Random(1))) is Gain.UNKNOWN


def test_a_parallel_drive_is_recognised_while_other_programs_run() -> None:
    rng = random.Random(3)
    assert verdict(simulated(80, 5, 32, 0.02, rng, cores=8, background=2.0)) is Gain.SOME


def test_a_serial_drive_is_recognised_by_a_missing_gain() -> None:
    assert verdict(simulated(10_000, 100, 1, 0.02, random.Random(2))) is Gain.NONE


def test_a_full_core_with_one_request_in_flight_makes_the_gain_unknown() -> None:
    full = series(*[1e6] * 5, cpu=97)
    rest = [series(*[rate * 1e6] * 5, depth=depth) for depth, rate in ((2, 2), (4, 4), (32, 30))]
    assert verdict([full, *rest]) is Gain.UNKNOWN
    assert verdict([series(*[1e6] * 5, busy=8), *rest]) is Gain.UNKNOWN  # all 8 cores of the machine
    assert verdict([series(*[1e6] * 5), *rest]) is Gain.SOME


def test_without_depths_two_and_four_a_gain_is_unknown() -> None:
    assert verdict(simulated(80, 5, 32, 0.0, random.Random(4), depths=(1, 32))) is Gain.UNKNOWN
    assert verdict(simulated(80, 5, 32, 0.0, random.Random(4), depths=(1, 2, 32))) is Gain.UNKNOWN


def test_depths_two_and_four_are_measured_in_addition_to_one_and_many() -> None:
    between = tuple(BenchTest(True, 4 * KIB, depth, 1, False) for depth in (2, 4))
    assert plan_of("crystaldiskmark").added == between == plan_of("amorphousdiskmark").added
    for name in ("crystaldiskmark-nvme", "boot", "as-ssd", "threads", "steady", "iometer"):
        assert plan_of(name).added == ()
    for wish in (BenchOptions(passes=(1, 5)), BenchOptions(repeats=3)):
        assert plan_of("crystaldiskmark", wish=wish).added == ()
    buffered = Target("/srv", TargetKind.FOLDER, "/srv", free=1 << 40, direct=False)
    assert plan_bench("x", goal_of("crystaldiskmark"), buffered, BenchOptions()).added == ()
    own = tuple(BenchTest(True, 4 * KIB, depth, 1, False) for depth in (1, 2, 16))
    assert depths_between(own) == between[1:]
    whole = plan_bench("x", BenchGoal(own), Target("/srv", TargetKind.FOLDER, "/srv", free=1 << 40), BenchOptions())
    assert whole.measured == own + between[1:]
