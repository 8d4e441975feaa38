"""NvmeFacts and AtaFacts of one disk, from wherever they can be had.

In: sysfs, captured pages, and the open disk if there is one. Out: facts, and the names that ATA gives in full. Alone
because it decides whom to ask: a file that the kernel keeps goes before a command to the drive.
"""

from dataclasses import replace

from aligntool.inventory import AtaFacts, DiskKind, NvmeFacts
from aligntool.probe.ata import AtaNames, decode_identify, decode_names, identify_in_vpd
from aligntool.probe.devices import Block
from aligntool.probe.nvme import PAGE, combine, decode_controller, decode_hmb, decode_namespace
from aligntool.probe.tree import Tree

CAPTURED = "/aligntool/identify"  # where a snapshot keeps the pages: NAME.ctrl, NAME.ns, NAME.hmb


def nvme_controllers(tree: Tree, block: Block) -> tuple[str, ...]:
    """Paths of the controllers that lead to a namespace: its own, or those of the subsystem of a multipath device."""
    above = block.device
    if not above.rpartition("/")[2].startswith("nvme-subsys"):
        return (above,)
    paths = [tree.real(f"{block.path}/multipath/{name}") for name in tree.names(f"{block.path}/multipath")]
    found = [path.rpartition("/")[0] for path in paths if path]
    if (
        not found
    ):  # before Linux 6.15 sysfs does not say which of the subsystem's controllers have the namespace
        names = [name for name in tree.names(above) if name[4:].isdigit() and name.startswith("nvme")]
        found = [real for name in names if (real := tree.real(f"{above}/{name}"))]
    return tuple(dict.fromkeys(found))


def read_nvme(
    tree: Tree, block: Block, controllers: tuple[str, ...], descriptor: int | None
) -> tuple[NvmeFacts, bool]:
    """The facts, and whether Identify itself was read."""
    pages = _captured(tree, block) if descriptor is None else _asked(tree, block, descriptor)
    controller, namespace = decode_controller(pages[0] or b""), decode_namespace(pages[1] or b"")
    granted = decode_hmb(*pages[2]) if pages[2] is not None else None
    if granted is None and controller is not None and controller.hmb_preferred == 0:
        granted = 0  # a drive that wants none gets none
    enabled = tree.text(f"{controllers[0]}/hmb") if controllers else None
    facts = replace(
        combine(controller, namespace, hmb_granted=granted),
        hmb_enabled=None if enabled not in ("0", "1") else enabled == "1",
        multipath=block.device.rpartition("/")[2].startswith("nvme-subsys"),
        controllers=tuple(path.rpartition("/")[2] for path in controllers),
    )
    return facts, namespace is not None


Pages = tuple[bytes | None, bytes | None, tuple[int, bytes] | None]


def _asked(tree: Tree, block: Block, descriptor: int) -> Pages:
    from aligntool.probe.nvme_commands import get_host_memory_buffer, identify_controller, identify_namespace

    controller = identify_controller(descriptor)
    namespace = identify_namespace(descriptor, tree.number(f"{block.path}/nsid"))
    decoded = decode_controller(controller or b"")
    wants = decoded is not None and decoded.hmb_preferred > 0
    return controller, namespace, get_host_memory_buffer(descriptor) if wants else None


def _captured(tree: Tree, block: Block) -> Pages:
    if tree.live:
        return None, None, None
    place = f"{CAPTURED}/{block.sysname}"
    hmb = tree.content(f"{place}.hmb", 4 + PAGE)
    return (
        tree.content(f"{place}.ctrl", PAGE),
        tree.content(f"{place}.ns", PAGE),
        (int.from_bytes(hmb[:4], "little"), hmb[4:]) if hmb and len(hmb) >= 4 else None,
    )


def read_ata(
    tree: Tree, block: Block, kind: DiskKind, descriptor: int | None
) -> tuple[AtaFacts, AtaNames] | None:
    """VPD page 89h is what the kernel read at boot: no command, no root, in captured trees too. Else SG_IO."""
    data = identify_in_vpd(tree.content(f"{block.device}/vpd_pg89", 4096))
    if data is None and descriptor is not None and kind is DiskKind.ATA:
        from aligntool.probe.ata_commands import identify_device

        data = identify_device(descriptor)
    facts = decode_identify(data) if data is not None else None
    return (facts, decode_names(data)) if facts is not None and data is not None else None
