"""Arrays that lack a drive when the machine starts, and that nobody starts without it.

In: an array, the inventory it is of, its System. Out: whether it is one of these; a finding. Alone because such an
array is in order, and so are the files that name it: it shows at the start after a drive has failed.
docs/decisions/0022 tells what was seen.
"""

from collections.abc import Iterator

from aligntool.audit.arrays import REDUNDANT, tell
from aligntool.audit.codes import Code
from aligntool.audit.coming_back import assembles, is_native, starts_from
from aligntool.audit.report import Finding, Severity
from aligntool.inventory import Disk, Inventory, System

LEAVES_INACTIVE = "debian"  # the family with initramfs-tools; with dracut it was not tried


def stays_inactive(disk: Disk, inventory: Inventory, system: System, family: str | None) -> bool:
    """Whether it could do without a drive, and an initramfs that adds its members leaves it inactive then.

    scripts/local-block/mdadm starts what the root file system needs, and no other. Where no initramfs adds its members,
    mdadm-last-resort@.timer starts it.
    """
    facts = disk.array
    return (
        facts is not None
        and is_native(disk)
        and facts.level in REDUNDANT
        and family == LEAVES_INACTIVE
        and not system.late_start
        and not starts_from(disk, inventory)
    )


def incomplete_findings(inventory: Inventory) -> Iterator[Finding]:
    """Told only where somebody could look into an initramfs, and by its UUID it can be mended."""
    system = inventory.system
    if system is None:
        return
    for disk in inventory.disks:
        facts = disk.array
        if facts is None or facts.uuid is None or not stays_inactive(disk, inventory, system, system.family):
            continue
        seen = [image for image in system.initramfs if not image.unseen and assembles(image, disk, system)]
        if seen:
            yield tell(
                disk, Code.STARTS_ONLY_WHOLE, Severity.INFO,
                f"{facts.level} that lacks a drive at a start stays inactive and is not mounted",
                f"{seen[0].path} adds its members, and starts what the root file system lies on only",
                next_=f"sudo aligntool raid persist {disk.path}",
            )  # fmt: skip
