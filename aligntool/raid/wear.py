"""How worn and how warm the members are, in words, and where that is a reason to think twice.

In: what each drive says of its health. Out: sentences. Alone because a drive that says nothing of it is judged all the
same, by everything else; that it said nothing is told.
"""

from collections.abc import Iterator, Mapping, Sequence

from aligntool.inventory import Disk, DiskKind, Health

NEARLY_WORN = 80  # per cent of the rated endurance
UNEVEN = 20  # per cent between the least and the most worn


_ASKED = (
    DiskKind.ATA,
    DiskKind.SCSI,
    DiskKind.NVME,
    DiskKind.USB,
)  # what else there is has no health of its own


def unasked(disks: Sequence[Disk]) -> Iterator[str]:
    """Drives of which nobody knows whether they fail, in a sentence."""
    names = [disk.name for disk in disks if disk.kind in _ASKED and disk.health is None and not disk.failing]
    if names:
        yield (
            f"health not looked at: {', '.join(names)}; nobody asked whether they fail. As root, and with smartctl "
            "(smartmontools), it is asked"
        )


def health_words(health: Health) -> str:
    """ "3 % of its rated endurance used, 100 % of its spare blocks left (warns below 10 %), 41 °C"."""
    said = []
    if health.used_percent is not None:
        said.append(f"{health.used_percent} % of its rated endurance used")
    if health.spare_percent is not None:
        warns = "" if health.spare_threshold is None else f" (warns below {health.spare_threshold} %)"
        said.append(f"{health.spare_percent} % of its spare blocks left{warns}")
    if health.media_errors is not None:
        said.append(f"{health.media_errors} media errors" if health.media_errors else "no media errors")
    if health.temperature_c is not None:
        said.append(f"{health.temperature_c} °C")
    if health.too_hot:
        said.append("TOO HOT by its own threshold")
    return ", ".join(said)


def wear_of(members: Mapping[str, Health | None]) -> Iterator[str]:
    """What needs the user, a sentence each."""
    known = {name: health for name, health in members.items() if health}
    worn = {name: used for name, health in known.items() if (used := health.used_percent) is not None}
    old = [f"{name} {used} %" for name, used in worn.items() if used >= NEARLY_WORN]
    if old:
        yield (
            f"little is left of the rated endurance: {', '.join(old)} used; members that wear alike end together, "
            "and then redundancy does not help"
        )
    if worn and max(worn.values()) - min(worn.values()) >= UNEVEN:
        told = ", ".join(f"{name} {used} %" for name, used in worn.items())
        yield f"the members are unevenly worn: {told}; the most worn one will be the first to be replaced"
    for name, health in known.items():
        if health.media_errors:
            yield (
                f"{name} could not give back what was written to it {health.media_errors} times (media errors): "
                "replace it before an array depends on it"
            )
        if health.too_hot:
            yield f"{name} is too hot by its own threshold, and slows down to cool: give it air first"
