"""Controllers that change what can be seen of the drives behind them.

In: a `Tree`. Out: Adapters: AHCI controllers under which firmware RAID hides NVMe drives, and VMD controllers, which
put theirs into PCI domains of their own. Both exist on root buses only, so nothing deeper is looked at.
"""

from collections.abc import Iterator

from aligntool.inventory import Adapter
from aligntool.probe.pcie.names import PciNames
from aligntool.probe.tree import Tree
from aligntool.recipe import load_chipsets

_DEVICES = "/sys/devices"
_AHCI = "0x0106"  # PCI class: mass storage, SATA
_RAID = "0x0104"  # mass storage, RAID: VMD, and AHCI in RAID mode
_INTEL = "0x8086"
_MOST_REMAPPED = 3  # drivers/ata/ahci.h, AHCI_MAX_REMAP


def find_adapters(tree: Tree, names: PciNames | None = None) -> tuple[Adapter, ...]:
    names = names or PciNames()
    found = (_adapter(tree, path, names) for path in _on_root_buses(tree))
    return tuple(adapter for adapter in found if adapter is not None)


def _on_root_buses(tree: Tree) -> Iterator[str]:
    for bus in tree.names(_DEVICES):
        if not bus.startswith("pci"):
            continue
        domain_and_bus = bus.removeprefix("pci")
        for address in tree.names(f"{_DEVICES}/{bus}"):
            if address.startswith(f"{domain_and_bus}:"):
                yield f"{_DEVICES}/{bus}/{address}"


def _adapter(tree: Tree, path: str, names: PciNames) -> Adapter | None:
    kind = tree.text(f"{path}/class") or ""
    if not kind.startswith((_AHCI, _RAID)):
        return None
    vendor, device = tree.text(f"{path}/vendor") or "", tree.text(f"{path}/device") or ""
    remapped = tree.number(f"{path}/remapped_nvme") or 0  # drivers/ata/ahci.c, remapped_nvme_show
    vmd = kind.startswith(_RAID) and vendor == _INTEL and _is_vmd(tree, path, device)
    if not (vmd or 0 < remapped <= _MOST_REMAPPED):
        return None
    name = names.device(vendor.removeprefix("0x"), device.removeprefix("0x"))
    return Adapter(path.rpartition("/")[2], name, 0 if vmd else remapped, vmd)


def _is_vmd(tree: Tree, path: str, device: str) -> bool:
    """By its driver, by the domain that it has made, or by its number when no driver is bound (so no drive shows)."""
    driver = tree.link(f"{path}/driver") or ""
    if driver.rpartition("/")[2] == "vmd":
        return True
    if any(name.startswith("pci1") and ":" in name for name in tree.names(path)):
        return True
    return f"8086:{device.removeprefix('0x')}" in load_chipsets().vmd
