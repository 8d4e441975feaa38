"""Fields of boot sectors that say where the partition begins, changed in memory.

In: what is held of a partition, and patches. Out: the same bytes, patched. Alone because it is pure arithmetic on bytes
and because a wrong one makes a system that does not boot.
"""

from collections.abc import Sequence

from aligntool.errors import Refused
from aligntool.plan import Held, Patch
from aligntool.units import Extent

# exFAT, 3.1 and 3.4: sectors 0 to 10 are summed, but for VolumeFlags and PercentInUse, which change in use; sector 11
# holds nothing but the sum, repeated.
_SUMMED_SECTORS = 11
_NOT_SUMMED = (106, 107, 112)


def patched(held: Held, found: Sequence[bytes], patches: Sequence[Patch]) -> tuple[bytes, ...]:
    """`found`: the bytes of each of `held.ranges`. Patches are done in their order, so checksums come last.

    Raises Refused when a field has neither its value before nor after, or lies outside what is held.
    """
    parts = [bytearray(part) for part in found]
    for patch in patches:
        part, at = _find(held, parts, patch)
        if patch.before is None or patch.after is None:
            _sum(held, parts, patch)
            continue
        value = int.from_bytes(part[at : at + patch.length], "little")
        if value not in (patch.before, patch.after):
            raise Refused(f"{patch.what} at byte {patch.at} of the partition is {value}, not {patch.before}:"
                          " it changed since the plan was made", hint="make the plan anew")  # fmt: skip
        part[at : at + patch.length] = patch.after.to_bytes(patch.length, "little")
    return tuple(bytes(part) for part in parts)


def _sum(held: Held, parts: Sequence[bytearray], patch: Patch) -> None:
    """`patch.at` is the sector of the checksum, `patch.length` a sector of the volume."""
    sector = patch.length
    region = Extent(patch.at - _SUMMED_SECTORS * sector, (_SUMMED_SECTORS + 1) * sector)
    part, at = _find_extent(held, parts, region, patch.what)
    total = 0
    for offset in range(_SUMMED_SECTORS * sector):
        if offset not in _NOT_SUMMED:
            total = ((total >> 1) | (total << 31)) + part[at + offset] & 0xFFFFFFFF
    end = at + region.length
    part[end - sector : end] = total.to_bytes(4, "little") * (sector // 4)


def _find(held: Held, parts: Sequence[bytearray], patch: Patch) -> tuple[bytearray, int]:
    return _find_extent(held, parts, Extent(patch.at, patch.length), patch.what)


def _find_extent(held: Held, parts: Sequence[bytearray], wanted: Extent, what: str) -> tuple[bytearray, int]:
    for extent, part in zip(held.ranges, parts, strict=True):
        if extent.contains(wanted):
            return part, wanted.start - extent.start
    raise Refused(f"{what} at byte {wanted.start} of the partition lies outside what the journal holds")
