"""Combined grids: compared with trying every sector."""

from hypothesis import given
from hypothesis import strategies as st

from aligntool.audit.report import Grid, GridKind, Severity
from aligntool.inventory import Source
from aligntool.realign.placing import StartGrid, choices, required_grid
from aligntool.units import KIB, MIB

SIZES = st.sampled_from([512, 1024, 1536, 4096, 12288, 16384, 65536])


def grid(size: int, phase: int = 0, severity: Severity = Severity.ERROR) -> Grid:
    return Grid(GridKind.PHYSICAL, size, phase, Source.REPORTED, "a test", severity)


@given(st.lists(st.tuples(SIZES, st.integers(0, 200)), min_size=1, max_size=3))
def test_common_boundaries_equal_those_of_an_exhaustive_search(asked: list[tuple[int, int]]) -> None:
    grids = [grid(size, phase * 512 % size) for size, phase in asked]
    tried = [at for at in range(0, 2 * MIB, 512) if all(one.off_by(at) == 0 for one in grids)]
    lattice = required_grid(grids, 512)
    assert tried == ([at for at in range(0, 2 * MIB, 512) if lattice.has(at)] if lattice else [])


def test_a_grid_of_info_severity_is_not_required() -> None:
    assert required_grid([grid(4096), grid(3 * MIB, severity=Severity.INFO)], 512) == StartGrid(4096)


def test_an_alignment_offset_of_3584_shifts_the_grain_as_well() -> None:
    need = required_grid([grid(4096, 3584)], 512)
    assert need == StartGrid(4096, 3584)
    first = choices(need, MIB, only_grain=False)[0]
    assert [first.up(1), first.up(MIB)] == [3584, MIB + 3584]
    assert need.has(63 * 512)
    assert not need.has(2048 * 512)


def test_the_grain_is_halved_down_to_the_grid_and_no_further() -> None:
    sizes = [one.size for one in choices(StartGrid(4096), MIB, only_grain=False)]
    assert sizes == [MIB, 512 * KIB, 256 * KIB, 128 * KIB, 64 * KIB, 32 * KIB, 16 * KIB, 8 * KIB, 4 * KIB]
    assert [one.size for one in choices(StartGrid(4096), MIB, only_grain=True)] == [MIB]


def test_a_grid_coarser_than_the_grain_has_precedence() -> None:
    assert choices(StartGrid(4 * MIB), MIB, only_grain=False) == (StartGrid(4 * MIB),)


def test_a_stripe_of_three_disks_requires_multiples_of_grain_and_stripe() -> None:
    sizes = [one.size for one in choices(StartGrid(192 * KIB), MIB, only_grain=False)]
    assert sizes[0] == 3 * MIB
    assert sizes[-1] == 192 * KIB
