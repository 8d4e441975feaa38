"""What the system keeps in its files so that arrays come back: mdadm.conf, fstab, the initramfs images."""

from dataclasses import dataclass

LATE_START = "mdadm-late-start.timer"  # aligntool's own: docs/decisions/0022
LATE_START_ENABLED = f"/etc/systemd/system/sysinit.target.wants/{LATE_START}"  # the link that `systemctl enable` makes


@dataclass(frozen=True, slots=True)
class ArrayLine:
    """An ARRAY line of mdadm.conf(5), continuation lines joined."""

    file: str
    text: str  # as it stands there; a line that is continued, joined by spaces
    device: str | None = None  # "/dev/md/data", "<ignore>"; None: the line names none
    uuid: str | None = None  # lower case, four words of eight digits
    name: str | None = None  # "host:data"
    pinned: tuple[str, ...] = ()  # what else it goes by: "devices", "super-minor"
    joined: bool = False  # it was spread over several lines


@dataclass(frozen=True, slots=True)
class MdadmConf:
    """All files of it together."""

    files: tuple[str, ...] = ()  # those that are there, the main one first
    arrays: tuple[ArrayLine, ...] = ()
    homehost: str | None = None  # "<system>", "<ignore>" or a name; None: not said


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of fstab(5), or of crypttab(5)."""

    text: str
    spec: str  # "UUID=...", "/dev/md0"
    place: str  # "/srv", "none"; of crypttab the name of the mapping
    kind: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Initramfs:
    """What one initramfs image has for starting arrays."""

    path: str
    maker: str = ""  # "initramfs-tools", "dracut", "mkinitcpio"; "": not told
    has_mdadm: bool = False
    conf: MdadmConf | None = None  # None: no mdadm.conf is inside
    arrays_asked: tuple[str, ...] = ()  # dracut: the UUIDs of rd.md.uuid= inside
    unseen: str = ""  # why nobody could look inside; "": it was looked into


@dataclass(frozen=True, slots=True)
class System:
    """Of the machine that was looked at. Lines are kept as they stand in their files."""

    family: str | None = None  # "debian", "debian-dracut", "fedora", "opensuse", "arch"
    hostname: str | None = None
    mdadm: MdadmConf = MdadmConf()
    fstab: tuple[TableLine, ...] = ()
    crypttab: tuple[TableLine, ...] = ()
    initramfs: tuple[Initramfs, ...] = ()
    command_line: tuple[str, ...] = ()  # words of the kernel's that have to do with arrays, root and resume
    unfinished: tuple[str, ...] = ()  # arrays whose making was begun and has not ended, a sentence each
    discards_on_parity: bool | None = None  # raid456's devices_handle_discard_safely
    late_start: bool = False  # LATE_START is enabled
