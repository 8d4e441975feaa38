"""How the copies and the parity of a new array become right: its members are zeroed before it is made, or md
synchronises them afterwards. When each of these is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aligntool.audit.arrays import Member
from aligntool.audit.wording import audit_command
from aligntool.change import RaidGoal
from aligntool.commands import typed
from aligntool.errors import Refusal
from aligntool.inventory import DENSE, DiskKind
from aligntool.raid.ceilings import Ceiling
from aligntool.raid.commands import ArrayGeometry
from aligntool.raid.levels import LEVELS
from aligntool.raid.refusals import is_wiped
from aligntool.steps import MakeArray
from aligntool.units import KIB, Extent, format_about, format_rate, format_size, time_words

# Zeroed members. What is proof that a data area reads as zeros: docs/decisions/0064-what-proves-zeros.md.


@dataclass(frozen=True, slots=True)
class Zeroing:
    """How a drive can be zeroed. None: not readable."""

    longest: int | None = None  # bytes of a Write Zeroes command, as the kernel uses it; 0: it does not
    deallocates: bool | None = None  # the drive deallocates what is zeroed, and it reads as zeros: DLFEAT


def refuse_zeroing(
    members: Sequence[Member], goal: RaidGoal, zeroing: Mapping[str, Zeroing]
) -> Iterator[Refusal]:
    """Yield why members cannot be zeroed, if they are to be. Content that was found is refused as for any
    member. `zeroing`: of each drive, by its name.
    """
    for member in members if goal.zero_members else ():
        disk = member.disk
        name = member.name
        if is_wiped(member, goal):
            text = f"{name} is not zeroed, because it is named with --wipe; only empty drives are"
            yield Refusal("not-empty", name, text, "omit --zero-members")
        elif disk.sampled is None:
            text = f"{name} was not read, so it is not known to be empty; it is not zeroed"
            yield Refusal("not-read", name, text, "run the same command with sudo")
        if disk.kind is not DiskKind.NVME:
            text = f"{name} is not on an NVMe drive, so no command zeroes it and promises zeros"
            yield Refusal("write-zeroes", name, text, "omit --zero-members")
        elif not zeroing.get(disk.name, Zeroing()).longest:
            text = f"Linux does not use the Write Zeroes command of {disk.name}, if it has one"
            look = typed("nvme id-ctrl -H", disk.path)
            yield Refusal("write-zeroes", name, text, f"omit --zero-members; {look}; {audit_command(disk)}")


def area_of_data(step: MakeArray) -> Extent:
    """Return the data area within each member, as it is zeroed."""
    return Extent(step.data.offset, step.data.length or 0)


def is_read_whole(level: str) -> bool:
    """Return whether every byte that was zeroed is read back. Wrong parity loses other data when a member
    fails; mirrors that differ where nothing was written yet lose nothing.
    """
    return bool(LEVELS[level].parity)


def read_back_words(level: str) -> str:
    """Return what is read back of each member."""
    return "every byte" if is_read_whole(level) else f"a place in every {format_size(DENSE)}"


# When an array is at full speed. Until the first synchronisation ends, md reads and writes all members for
# it, and a RAID5 or RAID6 reconstructs every stripe that is written.

READY = "At full speed: "
"""Beginning of the note that says when."""
_SYNCED = f"{READY}when it is synchronised"
SYNC_LIFTED = 100_000_000  # KiB/s, more than any array
_SYNC_LIMIT = 200_000 * KIB  # bytes per second: md.c, sysctl_speed_limit_max


def ready_words(
    goal: RaidGoal, geometry: ArrayGeometry, bound: Ceiling, zeroing: Sequence[Zeroing], limit: int | None
) -> str:
    """Return when the array is at full speed. `bound`: of the members; `zeroing`: of each drive; `limit`:
    md's, for a synchronisation, in bytes per second; None: not readable.
    """
    if not geometry.level.redundant:
        return f"{READY}as soon as it is made; {geometry.level.title} has nothing to synchronise"
    if goal.zero_members:
        return f"{READY}as soon as it is made; {_zeroing_words(geometry, bound, zeroing)}"
    fast = _at_members_rate(geometry, bound)
    if goal.fast_sync:
        return f"{_SYNCED}{_least_words(fast)}; md's limit is lifted until then"
    limited = _at_limit(geometry, limit)
    if fast is not None and fast[0] >= limited[0]:
        return f"{_SYNCED}{_least_words(fast)}"
    without = f"; without the limit at least {time_words(round(fast[0]))}" if fast else ""
    return f"{_SYNCED}{_least_words(limited)}{without}"


def _zeroing_words(geometry: ArrayGeometry, bound: Ceiling, zeroing: Sequence[Zeroing]) -> str:
    words = f"before that, the drives zero {format_about(geometry.each)} of each member at an unknown rate"
    if zeroing and all(drive.deallocates for drive in zeroing):
        words += " (all announce that they deallocate what is zeroed instead of writing it)"
    words += f"; {read_back_words(geometry.level.word)} is read back"
    if is_read_whole(geometry.level.word) and bound.read:
        words += f", which takes at least {time_words(round(_all_members(geometry) / bound.read))}"
    return words


_Least = tuple[float, str]  # a duration in seconds that cannot be shorter, and the reason


def _least_words(least: _Least | None) -> str:
    """Return when that is at the earliest; None: unknown."""
    if least is None:
        return "; the rates of the members are unknown"
    return f", in at least {time_words(round(least[0]))} ({least[1]})"


def _at_limit(geometry: ArrayGeometry, limit: int | None) -> _Least:
    """Return the duration at md's limit, which counts the bytes of a member, or of a RAID10 those of the
    array (md.c, md_do_sync: resync_max_sectors).
    """
    counted = geometry.size if geometry.level.word == "raid10" else geometry.each
    rate = limit or _SYNC_LIMIT
    which = "md's limit" if limit else "md's default limit"
    return counted / rate, f"{format_about(counted)} at {which} of {format_rate(rate)}"


def _at_members_rate(geometry: ArrayGeometry, bound: Ceiling) -> _Least | None:
    """Return the duration in which the members could take in as many bytes as the array has: md writes all
    copies but one, and the last member of a RAID5. Of a RAID6 it reads all members, and writes only parity
    that is wrong (raid5.c, handle_parity_checks6).
    """
    if geometry.level.word == "raid6":
        return _least(_all_members(geometry), bound.read, bound.binds)
    return _least(geometry.size, bound.write, bound.binds_write)


def _all_members(geometry: ArrayGeometry) -> int:
    """Return the bytes of all members of a level with parity."""
    return geometry.each * (geometry.data + geometry.level.parity)


def _least(total: int, rate: int | None, by: str) -> _Least | None:
    if not rate:
        return None
    return total / rate, f"{format_about(total)} at {format_rate(rate)}, limited by {by}"
