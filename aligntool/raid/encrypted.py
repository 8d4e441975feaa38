"""Plan the re-encryption of LUKS2 in place, with sectors as large as the drive's."""

from collections.abc import Iterator, Sequence
from math import ceil

from aligntool import steps
from aligntool.audit.report import Judged
from aligntool.audit.wording import audit_command, change_by_hand, next_command, next_look
from aligntool.change import ENCRYPTION_RATES, ArrayPlan, Estimate
from aligntool.commands import ByHand
from aligntool.contents.luks import LUKS, REENCRYPTING
from aligntool.errors import Refusal, refuse
from aligntool.inventory import Disk, Layer, Partition
from aligntool.realign.partition_selection import small_sectors
from aligntool.realign.refusals import disk_reasons, partition_reasons
from aligntool.realign.suspended import suspension_attention
from aligntool.units import format_size

_BACKUP = (
    "do not restore header backups made before the change; make a new one with cryptsetup luksHeaderBackup"
)
_MD = (
    "md's chunk and data offset stay: a power cut while they change would lose data; see aligntool explain"
    " AT603"
)


def plan_layers(judged: Judged, partitions: tuple[int, ...]) -> ArrayPlan:
    """Return the plan that gives every LUKS2 on these partitions (empty: on all) sectors of the drive's size.
    It has no steps if all of them already have that size. Raises Refused with every reason.
    """
    disk = judged.disk
    sector, found = small_sectors(judged, partitions)
    reasons = [reason for part, layer in found for reason in _unfit(disk, part, layer, sector)]
    existing = {part.number for part in disk.partitions}
    for number in (wanted for wanted in partitions if wanted not in existing):
        text = f"there is no partition {number} on {disk.name}"
        reasons.append(Refusal("no-partition", f"partition {number}", text, audit_command(disk)))
    if any(layer.kind == LUKS.name for layer in disk.content):
        text = f"{disk.name} as a whole is a LUKS; only LUKS2 volumes in partitions are changed"
        reasons.append(Refusal("layer-fixed", disk.name, text, "cryptsetup(8), reencrypt --sector-size"))
    if found:
        # Only cryptsetup can judge a LUKS2 that is being re-encrypted: it may be this same change, without
        # its record.
        begun = {
            f"partition {part.number}"
            for part, layer in found
            if (layer.unclean or "").startswith(REENCRYPTING)
        }
        by_partition = partition_reasons(disk, [part for part, _ in found])
        against = [reason for group in by_partition.values() for reason in group]
        against = [reason for reason in against if reason.code != "unclean" or reason.subject not in begun]
        reasons = [*disk_reasons(judged), *against, *reasons]
    refuse(reasons)
    planned = tuple(
        steps.ReencryptSectors(part.number, part.extent, layer.uuid or "", layer.data_unit or 0, sector)
        for part, layer in found
    )
    total = sum(part.extent.end - (layer.data_start or 0) for part, layer in found)
    rate = ENCRYPTION_RATES.flash if disk.rotational is False else ENCRYPTION_RATES.rotational
    cost = Estimate(total, ceil(total / rate) if disk.rotational is not None else None)
    goal = f"LUKS2 in sectors of {format_size(sector)}"
    notes = (*_notes(found), *([_MD] if disk.array else []))
    attention = (*suspension_attention(disk), _BACKUP) if found else ()
    return ArrayPlan("layers", steps.subject(disk), goal, (), planned, attention, notes, cost)


def _unfit(disk: Disk, part: Partition, layer: Layer, sector: int) -> Iterator[Refusal]:
    subject = f"partition {part.number}"
    start = layer.data_start
    if start is None:
        text = f"{subject}: the data of its LUKS header are on another device, or their start is unknown"
        yield Refusal("layer-fixed", subject, text, next_look(disk))
        return
    if layer.version != "LUKS2" or not layer.uuid:
        text = f"{subject}: {layer.version or 'this header'} supports only sectors of 512 bytes"
        yield Refusal("layer-fixed", subject, text, change_by_hand(disk, ByHand.LUKS, "cryptsetup", part))
        return
    past = start % sector
    if past:
        text = (
            f"{subject}: the data of {layer.version} begin {past} bytes past a boundary of"
            f" {format_size(sector)}"
        )
        yield Refusal("layer-fixed", subject, text, next_command(disk, "realign"), lasting=False)
    over = (part.extent.end - start) % sector
    if over:
        text = (
            f"{subject}: the data of {layer.version} end {over} bytes past a whole sector of"
            f" {format_size(sector)}"
        )
        yield Refusal("layer-fixed", subject, text, next_look(disk))


def _notes(found: Sequence[tuple[Partition, Layer]]) -> Iterator[str]:
    for part, layer in found:
        size = format_size(part.extent.end - (layer.data_start or 0))
        yield f"partition {part.number}: {size} of LUKS2 are re-encrypted by cryptsetup with the same key"
    if found:
        yield "key slots, passphrases and tokens are kept"
        yield (
            "cryptsetup keeps a journal in the header: a power cut loses nothing; aligntool resume continues"
        )
        yield "the content is opened read-only first; if it needs smaller sectors, nothing is written"
