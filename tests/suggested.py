"""Find commands in a text that aligntool prints, and their effects."""

import re
import shlex
from collections.abc import Iterator

from aligntool.commands import Command, Effect

# Programs that can change a disk, an array or the system.
PROGRAMS = (
    "addpart", "apt-get", "badblocks", "bcache", "blkdiscard", "blockdev", "btrfs", "btrfstune", "chattr", "chmod",
    "cp", "cryptsetup", "dd", "debugfs", "delpart", "dmsetup", "dnf", "dracut", "drbdadm", "e2fsck", "e2label",
    "efibootmgr", "extlinux", "fatlabel", "fdasd", "fdisk", r"fsck(?:\.\w+)?", "gdisk", "growpart", "grub-install",
    "hdparm", "kpartx", "lilo", "losetup", "lvchange", "lvextend", "lvm", "lvreduce", "lvresize", "mdadm", "mke2fs",
    "mkinitcpio", r"mkfs(?:\.\w+)?", "mkswap", "modprobe", "mount", "multipath", "mv", "ntfsfix", "ntfsresize",
    "nvme", "pacman", "parted", "partprobe", "partx", "pvcreate", "pvmove", "pvresize", "qemu-img", "qemu-nbd",
    "resize2fs", "resizepart", "rm", "sed", "sfdisk", "sg_format", "sgdisk", "sudoedit", "swaplabel", "swapoff",
    "swapon", "tee", "truncate", "tune2fs", r"tunefs\.\w+", "tunegfs2", "umount", "update-grub", "update-initramfs",
    "vgcfgrestore", "vgchange", "vgreduce", "wipefs", "xfs_admin", "xfs_growfs", "xfs_repair", "zfs", "zpool",
    "zypper",
)  # fmt: skip
# A program is meant as a command if an option, a path, a placeholder or one of these words follows.
_SUBCOMMANDS = (
    "balance", "check", "convert", "erase", "export", "filesystem", "format", "import", "install", "labelclear",
    "luksFormat", "mkpart", "open", "reencrypt", "remove", "repair", "rescue", "resize", "resizepart", "resume", "rm",
    "suspend",
)  # fmt: skip
GAP = "\0"  # a value in a text of the source
_ARGUMENT = rf"(?:-{{1,2}}\w|[/'\"$\0]|[A-Z]{{2,}}\b|[io]f=|(?:{'|'.join(_SUBCOMMANDS)})\b)"
_COMMAND = re.compile(rf"(?<![\w/.\-])({'|'.join(PROGRAMS)}) (?={_ARGUMENT})([^\n;|&`“”()]*)")
_MOST_VALUES = 5


def changing_commands(text: str, *, begun: bool = False) -> Iterator[str]:
    """Yield each command in a text that is not known to look or to release something. `begun`: values may follow."""
    for match in _COMMAND.finditer(text):
        command = re.split(r"[,.:](?:\s|$)", match[2])[0]  # prose may follow a command
        words = _words(command)
        ends = [_words(match[2]), *(words[:count] for count in range(len(words), 0, -1))]
        if begun:
            ends += [(*words, *(["value"] * count)) for count in range(1, _MOST_VALUES)]
        if all(_changes(match[1], end) for end in ends):
            yield f"{match[1]} {command.strip()}"


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:  # a quotation mark of prose, or a name that the search has cut
        return tuple(re.sub(r"""["'\\]""", "", command).split())


def _changes(program: str, arguments: tuple[str, ...]) -> bool:
    return Command(program, arguments).effect is Effect.CHANGES
