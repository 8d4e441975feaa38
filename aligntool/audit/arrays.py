"""Judge running md arrays: degraded, chunk, stripe cache, bitmap, discards, members that differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aligntool.audit.drives import disk_finding, disk_note
from aligntool.audit.report import Code, Finding, Grid, GridKind, Judged, Severity
from aligntool.audit.wording import change_by_hand, look_at
from aligntool.commands import ByHand
from aligntool.contents.md import MD
from aligntool.inventory import ArrayFacts, Disk, DiskKind, Inventory, Layer, Partition
from aligntool.system import System
from aligntool.units import GIB, KIB, MIB, Extent, counted, format_about, format_size

# Running arrays: state, chunk, bitmap, members. An array made as `aligntool raid plan` recommends causes no
# error or warning here, except AT605 if it has no bitmap.

LEAST_CHUNK = 16 * KIB
FULL_STRIPE = MIB  # RAID5_MAX_REQ_STRIPES: 256 pages of 4 KiB in one request, drivers/md/raid5.c
PARITY_BITMAP = GIB
NEEDS_BITMAP = 100 * GIB  # from this member size on mdadm creates a bitmap, or asks (Create.c, mdadm.c)
PARITY = {"raid4": 1, "raid5": 1, "raid6": 2}
FAULTY = "faulty"  # the state of a failed member that was not removed yet
IN_SYNC = "in_sync"  # the state of a member with all its data: Documentation/admin-guide/md.rst
BROKEN = "broken"  # an array that has lost more members than it can lose; a RAID0 has no other sign of that
_OF_MDMON = "external_bbl"  # mdmon keeps the list of bad blocks, as for every firmware array
BEING_REBUILT = "being rebuilt"
_BUILT_AS_REBUILD = ("raid4", "raid5")
_NOT_WRITTEN_YET = "read-auto"  # since it was assembled: md.rst, array_state
_FIRST_BUILD = "its parity is being written for the first time"
_UNTIL_BUILT = "until it is done, the failure of a member loses everything on the array"
REDUNDANT = ("raid1", "raid4", "raid5", "raid6", "raid10")
_BUSY = {
    "resync": "its copies are being synchronised",
    "recover": "a member is being rebuilt",
    "check": "its copies are being compared",
    "repair": "its copies are being compared and synchronised",
    "reshape": "it is being reshaped",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A drive or a partition, with the verdict on its drive."""

    judged: Judged
    partition: Partition | None = None

    @property
    def disk(self) -> Disk:
        return self.judged.disk

    @property
    def name(self) -> str:
        """Return the kernel's name of the drive or partition."""
        if self.partition is None:
            return self.disk.name
        return self.partition.node or partition_node(self.disk.name, self.partition.number)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Return the grids that decide whether a start is aligned: all but the informational ones."""
        return tuple(grid for grid in self.judged.grids if grid.severity is not Severity.INFO)

    @property
    def start(self) -> int:
        """Return the first byte of the member on its drive."""
        return self.partition.extent.start if self.partition else 0


Members = Mapping[str, Member]
"""Every drive and partition that could be a member, by kernel name."""


def members_of(judged: Sequence[Judged]) -> Members:
    members = {drive.disk.name: Member(drive) for drive in judged}
    for drive in judged:
        members.update((part.node, Member(drive, part)) for part in drive.disk.partitions if part.node)
    return members


def has_data_on_grids(member: Member, offset: int | None) -> bool:
    """Return whether the data of a member begin on all its grids; False if either is unknown. `offset`:
    of the data, in bytes from the start of the member.
    """
    if offset is None or not member.grids:
        return False
    return not any(grid.off_by(member.start + offset) for grid in member.grids)


def partition_node(disk: str, number: int) -> str:
    """Return the name or path of a partition by the kernel's rule: a "p" after a trailing digit
    (block/partitions/core.c, disk_name).
    """
    return f"{disk}p{number}" if disk[-1:].isdigit() else f"{disk}{number}"


def is_flash(disk: Disk) -> bool:
    return disk.kind is DiskKind.NVME or disk.rotational is False


def chunk_units(grids: Sequence[Grid]) -> tuple[Grid, ...]:
    """Return the grids of a member whose units a chunk must not cut."""
    kinds = (GridKind.PHYSICAL, GridKind.MINIMUM_IO, GridKind.PAGE, GridKind.UNIT)
    return tuple(grid for grid in grids if grid.kind in kinds)


def array_findings(disk: Disk, members: Members, system: System | None) -> Iterator[Finding]:
    facts = disk.array
    if facts is None or facts.level == "container":
        return
    known = [members[name] for name in facts.members if name in members]
    loaded = [member for member in known if member.name not in facts.spares]  # the others have no chunks
    yield from _state_findings(disk, facts, first_build=_builds_first(facts, known))
    yield from _chunk_findings(disk, facts, loaded)
    yield from _stripe_findings(disk, facts)
    yield from _bitmap_findings(disk, facts, loaded)
    yield from _discard_findings(disk, facts, known, system.discards_on_parity if system else None)
    sizes = {member.name: member.disk.limits.logical_block_size for member in known}
    if len(set(sizes.values()) - {None}) > 1:
        yield disk_finding(
            disk,
            Code.MIXED_SECTORS,
            Severity.WARNING,
            "its members have logical sectors of different sizes; it uses the largest, and another size"
            " without that member",
            ", ".join(f"{name}: {size}B" for name, size in sizes.items() if size),
        )


def _state_findings(disk: Disk, facts: ArrayFacts, *, first_build: bool | None) -> Iterator[Finding]:
    text = "" if first_build else _loss(facts)
    if text:
        states = {name: member_state(facts, name) for name in facts.members}
        listed = [name if state in (None, IN_SYNC) else f"{name} ({state})" for name, state in states.items()]
        evidence = [f"members: {', '.join(listed) or 'none'}"]
        if first_build is None:
            evidence.append("whether it is built for the first time is unknown: no bitmap of it was read")
        evidence.append(f"replace a member {change_by_hand(disk, ByHand.MEMBERS, 'mdadm')}")
        detail = look_at(disk, "mdadm --detail")
        yield disk_finding(disk, Code.ARRAY_DEGRADED, Severity.ERROR, text, *evidence, next_=detail)
    elif failed := [name for name, state in facts.member_states if FAULTY in state.split(",")]:
        text = (
            f"has failed members: {', '.join(failed)}; it is complete: they were spares, or spares replaced"
            " them"
        )
        # failed: no slot either
        spares = [name for name in facts.spares if member_state(facts, name) == "spare"]
        left = f"spares that are left: {', '.join(spares) or 'none'}"
        remove = change_by_hand(disk, ByHand.MEMBERS, "mdadm")
        if (facts.metadata or "").startswith("external"):  # removed by mdmon, and from the container
            remove = look_at(disk, "mdadm --detail")
        yield disk_finding(disk, Code.FAILED_MEMBER, Severity.WARNING, text, left, next_=remove)
    action = facts.sync_action or ""
    what = _FIRST_BUILD if first_build else _BUSY.get(action)
    if what:
        text = f"{what} ({action}{sync_words(facts)})"
        if action not in _BUSY:
            text = f"{what}, which goes on at the first write ({facts.state})"
        evidence = [
            "measurements are not valid until it is done; all reads of a mirror go to its first member"
        ]
        if first_build:
            evidence = [_UNTIL_BUILT, "measurements are not valid until it is done"]
        yield disk_note(disk, Code.ARRAY_BUSY, text, *evidence, next_="cat /proc/mdstat")


def _builds_first(facts: ArrayFacts, known: Sequence[Member]) -> bool | None:
    """Return whether md is still writing the parity of a new array; None if that is unknown.

    mdadm makes a RAID4 or RAID5 with its last member as a spare that is rebuilt (Create.c), which looks like
    the rebuild of a replaced member. md clears a bit of the bitmap only while no member is missing, and
    counts when (md-bitmap.c, events_cleared): 0 on every member means that the array was never complete
    while it was written to.
    """
    states = [member_state(facts, name) for name in facts.members]
    built = states.count(BEING_REBUILT)
    if facts.level not in _BUILT_AS_REBUILD or facts.degraded != 1 or facts.state == BROKEN:
        return False
    if facts.sync_action != "recover" and facts.state != _NOT_WRITTEN_YET:
        return False
    if built != 1 or states.count(IN_SYNC) != len(states) - 1 or facts.devices != len(states):
        return False
    cleared = [_events_cleared(member) for member in known]
    if len(known) != len(facts.members) or None in cleared:
        return False if any(cleared) else None
    return not any(cleared)


def _events_cleared(member: Member) -> int | None:
    content = member.partition.content if member.partition else member.disk.content
    return next((layer.raid_cleared for layer in content if layer.kind == MD.name), None)


def _loss(facts: ArrayFacts) -> str:
    """Return a sentence on lost members, or "". md does not count a failed journal, without which it fails
    all writes (raid5.c, handle_stripe: log_failed).
    """
    if facts.state == BROKEN:
        return f"{facts.level} has failed: it has lost more members than it can lose"
    if facts.degraded:
        count = (
            f"{facts.degraded} of {facts.devices} members"
            if facts.devices
            else counted(facts.degraded, "member")
        )
        which = "missing or being rebuilt" if facts.sync_action == "recover" else "missing"
        which = BEING_REBUILT if is_rebuilt(facts) else which
        return f"{facts.level} is degraded: {count} {which}"
    failed = [name for name, state in facts.member_states if {"journal", FAULTY} <= set(state.split(","))]
    return f"{facts.level} cannot be written: its journal {failed[0]} has failed" if failed else ""


def is_rebuilt(facts: ArrayFacts) -> bool:
    """Return whether every member that a degraded array lacks is being rebuilt."""
    states = [member_state(facts, name) for name in facts.members]
    is_active = facts.sync_action == "recover" and facts.state != BROKEN
    return is_active and 0 < (facts.degraded or 0) <= states.count(BEING_REBUILT)


def member_state(facts: ArrayFacts, name: str) -> str | None:
    """Return the state of a member in md's words, or "being rebuilt"; None if unknown."""
    words = [word for word in dict(facts.member_states).get(name, "").split(",") if word != _OF_MDMON]
    if words == ["spare"] and name not in facts.spares:  # it has a place in the array: md.rst, slot
        return BEING_REBUILT
    return ", ".join(words) or None


def sync_words(facts: ArrayFacts) -> str:
    """Return progress, rate and time left of a resync as text, or "" if unknown."""
    done = facts.sync_done
    total = facts.sync_total
    rate = facts.sync_rate
    if done is None or not total:
        return ""
    left = (
        f", {format_about(rate)}/s, about {max(total - done, 0) // rate // 60 + 1} min left" if rate else ""
    )
    return f", {100 * done / total:.1f} %{left}"


def _chunk_findings(disk: Disk, facts: ArrayFacts, known: list[Member]) -> Iterator[Finding]:
    """Yield the finding on the chunk. Of several units that it cuts, report only the largest."""
    chunk = facts.chunk
    if not chunk:
        return
    text = f"its chunk of {format_size(chunk)}"
    longer = _longer_chunk(disk, facts, known)
    cut = [
        (member, grid) for member in known for grid in chunk_units(member.judged.grids) if chunk % grid.size
    ]
    if cut:
        member, grid = max(cut, key=lambda pair: pair[1].size)
        below = "is smaller than" if chunk < grid.size else "is not a multiple of"
        its = f"the {grid.kind} of {member.name}, {format_size(grid.size)} ({grid.source}: {grid.by})"
        yield disk_finding(disk, Code.CHUNK_CUTS_UNITS, Severity.WARNING, f"{text} {below} {its}", *longer)
    elif chunk < LEAST_CHUNK:
        text += f" is smaller than {format_size(LEAST_CHUNK)}, which splits most requests"
        published = (
            "published: with 4KiB a database on four NVMe drives reached 0.79 of the throughput of one drive"
        )
        yield disk_finding(disk, Code.CHUNK_CUTS_UNITS, Severity.WARNING, text, published, *longer)


def _longer_chunk(disk: Disk, facts: ArrayFacts, known: list[Member]) -> tuple[str, ...]:
    """Return advice on a change of the chunk in place, or () if no chunk size fits, or if the level or
    a log of the stripes, PPL or a journal, does not allow it (raid5.c, check_reshape).
    """
    units = {grid.size for member in known for grid in chunk_units(member.judged.grids)}
    fits = (
        chunk for chunk in (LEAST_CHUNK << at for at in range(8)) if not any(chunk % unit for unit in units)
    )
    chunk = next((chunk for chunk in fits if facts.each and facts.each % chunk == 0), 0)
    if facts.level not in PARITY or not chunk or facts.policy in ("ppl", "journal"):
        return ()
    grow = change_by_hand(disk, ByHand.ARRAY_SETTINGS, "mdadm")
    return (f"a chunk of {format_size(chunk)} fits; to change it in place, with a full backup: {grow}",)


def _stripe_findings(disk: Disk, facts: ArrayFacts) -> Iterator[Finding]:
    parity = PARITY.get(facts.level)
    count = facts.devices or len(facts.members)
    if parity is None or not facts.chunk or count <= parity:
        return
    whole = facts.chunk * (count - parity)
    if whole > FULL_STRIPE:
        stripe = f"{format_size(whole)} ({format_size(facts.chunk)} × {count - parity} data members)"
        most = (
            f"more than the {format_size(FULL_STRIPE)} that md takes in one request, so it is never written"
            " at once"
        )
        cache = facts.stripe_cache
        room = f"room for {(cache or 0) * 4 * KIB // facts.chunk} stripes, in which writes are collected"
        evidence = () if cache is None else (f"stripe_cache_size is {cache} pages a member: {room}",)
        yield disk_note(disk, Code.STRIPE_TOO_LONG, f"a full stripe is {stripe}, {most}", *evidence)


def _bitmap_findings(disk: Disk, facts: ArrayFacts, known: list[Member]) -> Iterator[Finding]:
    if facts.level not in REDUNDANT or (facts.metadata or "").startswith("external"):
        return
    if facts.policy == "resync" or (facts.policy is None and facts.bitmap == "none"):
        small = facts.each is not None and facts.each <= NEEDS_BITMAP
        each = f"{format_about(facts.each)} a member" if facts.each else "all of it"
        severity = Severity.INFO if small else Severity.WARNING
        text = (
            f"has no bitmap: after a crash {each} is resynchronised, and until then a second failure can lose"
            " data"
        )
        yield _bitmap_finding(disk, facts, Code.BITMAP_MISSING, severity, text)
    elif facts.level in PARITY and facts.bitmap != "external" and _all_flash(known):
        yield from _fine_bitmap_findings(disk, facts)


def _fine_bitmap_findings(disk: Disk, facts: ArrayFacts) -> Iterator[Finding]:
    """Yield a finding if a bit of the bitmap covers less than PARITY_BITMAP, or for small members less than
    the largest power of two that fits into a member, which `raid plan` uses.
    """
    chunk = facts.bitmap_chunk
    most = PARITY_BITMAP
    while facts.each is not None and most > facts.each and most > MIB:
        most //= 2
    if chunk and chunk < most:
        text = (
            f"each bit of its bitmap covers {format_size(chunk)}, which slows small writes to {facts.level}"
        )
        enough = f"a bit for each {format_size(most)} is enough"
        published = "published, one tester, five NVMe drives: 20600 small writes a second without a bitmap"
        published += ", 174 with 64MiB per bit, 285 with 512MiB, 10300 with 1GiB"
        yield _bitmap_finding(
            disk, facts, Code.BITMAP_TOO_FINE, Severity.WARNING, f"{text} on flash", enough, published
        )


def _bitmap_finding(
    disk: Disk, facts: ArrayFacts, code: Code, severity: Severity, text: str, *evidence: str
) -> Finding:
    """Return a finding with how to change the bitmap, or that one has to wait: during a resync or similar, md
    refuses to change the bitmap with EBUSY (md.c, update_array_info).
    """
    grow = change_by_hand(disk, ByHand.ARRAY_SETTINGS, "mdadm")
    if facts.sync_action in (None, "idle"):
        return disk_finding(disk, code, severity, text, *evidence, next_=grow)
    later = f"the bitmap cannot be changed while sync_action is {facts.sync_action}; once it is idle: {grow}"
    return disk_finding(disk, code, severity, text, *evidence, later, next_="cat /proc/mdstat")


_WHY_NO_DISCARDS = {
    True: "raid456's devices_handle_discard_safely is on; the array was assembled before that, or a stripe is"
    " longer than the largest discard of a member",
    False: "raid456's devices_handle_discard_safely is off",
    None: "by default raid456's devices_handle_discard_safely is off",
}


def _discard_findings(
    disk: Disk, facts: ArrayFacts, known: list[Member], safely: bool | None
) -> Iterator[Finding]:
    """Yield a note if a parity array on flash does not pass on discards. That is md's default and not a
    fault: stale parity loses data if a drive does not return zeros after a discard.
    """
    if facts.level not in PARITY or disk.limits.discard_max != 0 or not known:
        return
    if all((member.disk.limits.discard_max or 0) > 0 for member in known) and _all_flash(known):
        text = (
            f"{facts.level} does not forward discards: fstrim has no effect, and the drives keep all deleted"
            " blocks"
        )
        yield disk_note(disk, Code.DISCARDS_OFF, text, _WHY_NO_DISCARDS[safely])


def _all_flash(known: Sequence[Member]) -> bool:
    return bool(known) and all(is_flash(member.disk) for member in known)


# Members of running md arrays whose superblocks could not be read. Their data offsets are in sysfs, also
# without root.


def with_members(inventory: Inventory) -> Inventory:
    offsets = {
        member: (disk.array, offset)
        for disk in inventory.disks
        if disk.array
        for member, offset in disk.array.member_data_offsets
    }

    def content(on: Disk | Partition, name: str | None, extent: Extent) -> tuple[Layer, ...]:
        if name not in offsets or on.content_read or not extent.length:
            return on.content
        array, offset = offsets[name]
        layer = Layer(
            MD.name,
            extent,
            array.metadata,
            data_start=extent.start + offset,
            raid_level=array.level,
            raid_chunk=array.chunk or 0,
            raid_members=len(array.members),
        )
        return (layer,)

    def filled(disk: Disk) -> Disk:
        parts = tuple(
            replace(part, content=content(part, part.node, part.extent)) for part in disk.partitions
        )
        return replace(disk, content=content(disk, disk.name, Extent(0, disk.size or 0)), partitions=parts)

    return replace(inventory, disks=tuple(map(filled, inventory.disks))) if offsets else inventory


# Whole drives without a partition table as members of md arrays. Firmware that mistakes such a drive for one
# with a damaged GPT "repairs" the GPT and overwrites the array's superblock, 4 KiB into the drive.

_VIRTUAL = (DiskKind.LOOP, DiskKind.MD, DiskKind.DM, DiskKind.BCACHE, DiskKind.MEMORY, DiskKind.NETWORK)


def whole_member_findings(disk: Disk) -> Iterator[Finding]:
    """Yield findings on a whole drive as member, if firmware can see it: not for a volume or a loop device.

    If the array's data start at byte 0, a table seen on the drive, with its partitions, belongs to the array.
    """
    layer = next((layer for layer in disk.content if layer.kind == MD.name), None)
    if layer is None or disk.kind in _VIRTUAL or layer.extent.start != 0:
        return
    stale = [copy for copy in disk.gpt_headers if layer.data_start or copy.name == "backup"]
    if stale and not (layer.data_start == 0 and disk.table):
        where = " and ".join(f"the {copy.name} header at byte {copy.at}" for copy in stale)
        text = f"the whole drive is a member of an md array, but {where} of a GPT is still on it"
        seen = (
            "such firmware wiped bytes 4096 to 16384 at every boot, and with them the superblock of metadata"
            " 1.2"
        )
        not_redundant = layer.raid_level in ("raid0", "linear")  # mdadm(8), --add and --re-add
        remedy = (
            f"no member can be removed from a {layer.raid_level}: copy the data elsewhere and recreate the"
            " array"
        )
        evidence = (f"published: {seen}", *([remedy] if not_redundant else []))
        look = "" if not_redundant else look_at(disk, "wipefs --no-act")
        yield replace(
            disk_finding(disk, Code.MEMBER_WITH_GPT, Severity.ERROR, text, *evidence, next_=look), layer="md"
        )
    elif disk.kind is not DiskKind.IMAGE:  # an image may also be of a partition
        text = "the whole drive is a member of an md array, without a partition table"
        yield replace(disk_note(disk, Code.WHOLE_DRIVE_MEMBER, text), layer="md")
