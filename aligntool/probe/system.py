"""The files of the system that make arrays come back, or keep them from it.

In: a `Tree`. Out: a System; None where the tree holds no files of a system. Alone because everything else in `probe` is
about disks, and because what is read here is only of interest where there is an array.
"""

import os
import re
from collections.abc import Iterator

from aligntool.inventory import LATE_START_ENABLED, Initramfs, MdadmConf, System
from aligntool.probe.config_files import (
    array_uuid,
    is_about_arrays,
    merge_confs,
    parse_crypttab,
    parse_fstab,
    parse_mdadm_conf,
)
from aligntool.probe.distribution import FILES, family_of, with_dracut
from aligntool.probe.initramfs import read_initramfs
from aligntool.probe.tree import Tree
from aligntool.probe.unfinished import read_unfinished

CAPTURED = "/aligntool/initramfs"  # where a snapshot keeps what was seen inside the images
MDADM_CONFS = (
    "/etc/mdadm/mdadm.conf",
    "/etc/mdadm.conf",
)  # Debian's mdadm reads the first that is there, others the last
MDADM_FOLDERS = ("/etc/mdadm/mdadm.conf.d", "/etc/mdadm.conf.d")
SAFELY = "/sys/module/raid456/parameters/devices_handle_discard_safely"
MOST_IMAGES, MOST_FILES = 16, 64
LONGEST_FILE = 1 << 20
_IMAGE = re.compile(r"initrd(\.img)?-.+|initramfs-.+\.img|initrd|initramfs")
_NOT_BOOTED = re.compile(r".*(kdump|rescue).*|.*[.-](bak|old|orig|dpkg-\w+|new|tmp)")
_MACHINE = re.compile(r"[0-9a-f]{32}|Default")  # a folder of the Boot Loader Specification


def read_system(tree: Tree) -> System | None:
    """Takes seconds where there are images to unpack. Images that only root may read are told as unseen."""
    release = next((text for file in FILES if (text := _text(tree, file))), None)
    fstab = _text(tree, "/etc/fstab")
    if release is None and fstab is None:
        return None
    family = with_dracut(family_of(release or ""), tree.content)
    words = (tree.text("/proc/cmdline") or "").split()
    return System(
        family=family,
        hostname=_known(tree.text("/proc/sys/kernel/hostname")),
        mdadm=_mdadm(tree, family),
        fstab=parse_fstab(fstab or ""),
        crypttab=parse_crypttab(_text(tree, "/etc/crypttab") or ""),
        initramfs=tuple(read_images(tree)),
        command_line=tuple(word for word in words if is_about_arrays(word)),
        unfinished=read_unfinished(tree),
        discards_on_parity={"Y": True, "N": False}.get(tree.text(SAFELY) or ""),
        late_start=tree.content(LATE_START_ENABLED) is not None,
    )


def _known(hostname: str | None) -> str | None:
    """The kernel's own is "(none)" until somebody gives it one."""
    return None if hostname in (None, "", "(none)") else hostname


def _mdadm(tree: Tree, family: str | None) -> MdadmConf:
    """Of the two places the first that is there, and every file of the folders: mdadm.conf(5), FILES."""
    mains = MDADM_CONFS if (family or "").startswith("debian") else MDADM_CONFS[::-1]
    files = [file for file in mains if tree.exists(file)][:1]
    for folder in MDADM_FOLDERS:
        files += [f"{folder}/{name}" for name in tree.names(folder)[:MOST_FILES] if name.endswith(".conf")]
    found = [(file, _text(tree, file)) for file in files]
    return merge_confs([parse_mdadm_conf(text, file) for file, text in found if text is not None])


def _text(tree: Tree, path: str) -> str | None:
    content = tree.content(path, LONGEST_FILE)
    return None if content is None else content.decode("utf-8", "replace")


def read_images(tree: Tree) -> Iterator[Initramfs]:
    """Those that a boot loader would find, and of a snapshot what was seen when it was made."""
    if not tree.live and tree.is_directory(CAPTURED):
        for name in tree.names(CAPTURED)[:MOST_IMAGES]:
            if (text := _text(tree, f"{CAPTURED}/{name}")) is not None:
                yield told_image(text)
        return
    for path in list(_image_paths(tree))[:MOST_IMAGES]:
        yield _image(tree, path)


def _image_paths(tree: Tree) -> Iterator[str]:
    """/boot, and what the Boot Loader Specification adds: /boot/ID/VERSION/initrd. Links lead to others of these."""
    for folder in ("/boot", "/efi", "/boot/efi"):
        below = [f"{folder}/{name}" for name in tree.names(folder) if _MACHINE.fullmatch(name)]
        places = [folder, *(f"{machine}/{name}" for machine in below for name in tree.names(machine))]
        for place in places:
            for name in tree.names(place)[:MOST_FILES]:
                path = f"{place}/{name}"
                if _IMAGE.fullmatch(name) and not _NOT_BOOTED.fullmatch(name) and tree.link(path) is None:
                    yield path


def _image(tree: Tree, path: str) -> Initramfs:
    descriptor = tree.open(path)
    if descriptor is None:
        why = "needs root" if tree.live and os.geteuid() != 0 else "cannot be opened"
        return Initramfs(path, unseen=why)
    try:
        return read_initramfs(descriptor, path)
    finally:
        os.close(descriptor)


def image_text(image: Initramfs) -> str:
    """As a snapshot keeps it: facts, and the ARRAY lines of the mdadm.conf inside."""
    lines = [f"path={image.path}", f"maker={image.maker}", f"mdadm={'yes' if image.has_mdadm else 'no'}"]
    lines += [f"asked={uuid}" for uuid in image.arrays_asked]
    lines += [f"unseen={image.unseen}"] if image.unseen else []
    if image.conf is not None:
        lines += ["conf:", *(line.text for line in image.conf.arrays)]
    return "\n".join(lines) + "\n"


def told_image(text: str) -> Initramfs:
    head, inside, conf = text.partition("conf:\n")
    fields: dict[str, str] = {}
    asked = []
    for line in head.splitlines():
        key, _, value = line.partition("=")
        fields[key] = value
        if key == "asked" and (uuid := array_uuid(value)):
            asked.append(uuid)
    return Initramfs(
        path=fields.get("path", ""),
        maker=fields.get("maker", ""),
        has_mdadm=fields.get("mdadm") == "yes",
        conf=parse_mdadm_conf(conf, "mdadm.conf") if inside else None,
        arrays_asked=tuple(asked),
        unseen=fields.get("unseen", ""),
    )
