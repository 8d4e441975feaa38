"""A command that a message asks the user to type, as a value: what it does is decided here, and it is quoted
here.

Users paste a suggested command without reading it. So only three kinds are ever printed in full: those that
only look, those that release what is in use, and aligntool's own, which ask before they write. For everything
else a message names the program and a section of docs/by-hand.md, which explains the case, what to save
first, and how to check the result.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

PAGE = "docs/by-hand.md"
LISTS_DISKS = "the disks of this machine: aligntool audit"


class Effect(StrEnum):
    """What a command does to the machine."""

    LOOKS = "looks"  # writes to no disk and to no file that exists
    RELEASES = "releases"  # ends a use of a device: nothing on it changes
    OWN = "own"  # a command of aligntool
    CHANGES = "changes"  # everything else, also what is not known


class ByHand(StrEnum):
    """The sections of docs/by-hand.md, by the anchors of their headings."""

    SAVING = "save-first"
    ATTACHING = "a-partition-without-a-device"
    SIGNATURES = "a-remnant-of-another-content"
    TABLE = "a-damaged-partition-table"
    LOST_JOURNAL = "a-parked-partition-without-its-journal"
    KERNEL_TABLE = "the-kernel-has-an-older-table"
    READ_ONLY = "a-disk-or-file-is-read-only"
    UNCLEAN = "a-file-system-that-was-not-unmounted"
    BAD_BLOCKS = "a-list-of-bad-blocks"
    SHARED = "a-content-marked-as-shared"
    LUKS = "an-encrypted-partition"
    SHRINKING = "make-a-content-shorter"
    GROWING = "make-a-partition-longer"
    DELETING = "delete-a-partition"
    TABLE_KIND = "another-kind-or-length-of-table"
    EMPTYING = "overwrite-what-is-not-needed"
    SECTOR_SIZE = "another-sector-size"
    RECREATING = "make-a-file-system-anew"
    FILLING = "fill-a-new-partition"
    VOLUMES = "move-lvm-volumes"
    MEMBERS = "members-of-an-array"
    ARRAY_SETTINGS = "settings-of-an-array"
    RECORDS = "an-array-that-cannot-be-finished"
    REMOVING = "remove-an-array"
    SYSTEM_FILES = "files-of-the-system"
    VIRTUAL_DISKS = "virtual-disks"
    MAPPINGS = "a-suspended-mapping"
    BOOT_PROGRAMS = "a-boot-program"


# One pattern a line, for all words of a command: "*" is a word or a part of one, and "..." any number of
# words. They do not begin with a hyphen, so that no value becomes an option. Files are written by some: dd
# writes to none that exists, because of conv=excl, and qemu-img and sgdisk get the name of a new one.
_LOOKS = """
blkid *
blkid -p *
blkid -p -O * *
blkzone report *
blockdev --getro *
blockdev --getsize64 *
btrfs check --readonly *
bzip2 -dc *
bzip2 -t *
cat ...
cryptsetup luksDump *
df -h *
dmesg
e2fsck -f -n *
efibootmgr -v
ewfmount * /mnt
fdasd -p *
file *
fsck.exfat -n *
fsck.f2fs --dry-run *
fsck.fat -n *
fuser -v *
grep -rsw * ...
gzip -dc *
gzip -t *
hdparm -I *
losetup -r -f --show *
losetup -r -f --show --sector-size * *
losetup -r -f --show -o * --sizelimit * *
ls ...
lsattr *
lsblk -d
lsblk -o * ...
lsblk ...
lsinitcpio *
lsinitramfs *
lsinitrd *
lz4 -dc *
lz4 -t *
mdadm --detail *
mdadm --detail-platform
mdadm --examine *
mdadm --examine-badblocks *
modprobe *
mount -t debugfs debugfs *
mount -t proc proc /proc
mount -t sysfs sysfs /sys
ntfsresize --info --bad-sectors --no-progress-bar *
nvme id-ns -H *
nvme list-ns --all *
nvme list-subsys *
od -A d -c -j * -N * *
od -A d -t x1z -N 512 -j * *
ps *
qemu-img check *
qemu-img convert --object secret,id=key,file=KEYFILE -O raw --image-opts * *
qemu-img convert -f * -O * * *
qemu-img snapshot -l *
sfdisk --dump *
sfdisk --verify *
sgdisk -v *
smartctl -a *
uname -r
wipefs --no-act *
xfs_repair -n *
xz -dc *
xz -t *
zstd -dc *
zstd -t *
"""
_RELEASES = """
blktrace -k -d *
cryptsetup close *
dmsetup remove *
drbdadm down *
losetup -d *
mdadm --stop *
multipath -f *
swapoff *
tee */bcache/set/unregister
tee */bcache/stop
umount *
vgchange -an *
zpool export *
"""


_BY_ANYBODY = frozenset(["bzip2", "df", "file", "gzip", "lsblk", "lz4", "qemu-img", "xz", "zstd"])
_PATTERNS = {
    effect: tuple(tuple(line.split(" ")) for line in patterns.strip().split("\n"))
    for effect, patterns in ((Effect.LOOKS, _LOOKS), (Effect.RELEASES, _RELEASES))
}


def _is_like(words: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if pattern[-1] == "...":
        fixed = len(pattern) - 1
        return _is_like(words[:fixed], pattern[:fixed]) and not any(
            word.startswith("-") for word in words[fixed:]
        )
    return len(words) == len(pattern) and all(map(_word_is_like, words, pattern))


def _word_is_like(word: str, pattern: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return word == pattern
    is_option = word.startswith("-") and not before
    filled = len(word) > len(before) + len(after)
    return filled and not is_option and word.startswith(before) and word.endswith(after)


_PLACEHOLDERS = frozenset(["FILE", "N", "NEW"])  # stand for what only the user knows

DISK = ""  # an argument in place of a disk, whose name only a caller knows as the user typed it


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments. Its effect follows from them: what is not known to be harmless is a
    change.
    """

    program: str
    arguments: tuple[str, ...] = ()
    sudo: bool = True
    options: tuple[str, ...] = ()  # of aligntool, as they are typed
    section: ByHand | None = None  # where a change is explained
    detail: str = ""  # of what is changed
    stdin: str = ""  # a line that is piped into it
    output: str = ""  # the new file that gets what it prints

    @property
    def effect(self) -> Effect:
        if self.section or self.output.startswith("/"):  # it may be a device
            return Effect.CHANGES
        if self.program == "aligntool":
            return Effect.OWN
        words = (self.program, *(word or "DISK" for word in self.arguments), *self.options)
        for effect, patterns in _PATTERNS.items():
            if any(_is_like(words, pattern) for pattern in patterns):
                return effect
        return Effect.CHANGES

    def __str__(self) -> str:
        """Return the command to paste, after the words that the user has to fill in; of one that changes
        anything only the program, and the page that explains it.
        """
        words = [shell_word(word or "DISK") for word in self.arguments]
        if self.effect is Effect.CHANGES:
            on = " ".join(words) + self.detail if self.section else ""
            return f"by hand, with {self.program}{on and ' on '}{on}: {PAGE}#{self.section or ByHand.SAVING}"
        sudo = self.sudo and self.program not in _BY_ANYBODY
        words = [*["sudo"] * sudo, self.program, *words, *self.options]
        before = f"echo {shell_word(self.stdin)} | " if self.stdin else ""
        open_ = [word for option in self.options for word in option.split() if word in _PLACEHOLDERS]
        if open_:
            before = f"fill in {' and '.join(open_)}: {before}"
        after = f" > {shell_word(self.output)}" if self.output else ""
        return f"{before}{' '.join(words)}{after}"

    def on(self, disk: str, raw_copy: str, typed: Iterable[str]) -> "str | Command":
        """Return the command on the disk with this path.

        `raw_copy`: the command that makes a raw image of a virtual disk. Another program would take that for
        a raw image, and destroy it. `typed`: the options of the user. They belong to the same command with
        another option: without -p, for example, --shrink would shrink and move other partitions.
        """
        is_own = self.program == "aligntool"
        if DISK in self.arguments:
            if raw_copy and not is_own:
                return raw_first(raw_copy)
            return replace(self, arguments=tuple(word or disk for word in self.arguments), sudo=is_node(disk))
        if is_own and self.options and self.arguments[-2] in ("realign", "partition"):
            names = {option.split()[0] for option in self.options}
            added = (option for option in typed if option.split()[0] not in names)
            return replace(self, options=(*added, *self.options))
        return self


class Hint(str):
    """What to do next, a line each: text that keeps its commands as values, so that a caller can complete
    them.
    """

    parts: tuple[str | Command, ...]

    def __new__(cls, *parts: str | Command) -> "Hint":
        found = super().__new__(cls, "".join(map(str, parts)))
        found.parts = parts
        return found

    def __reduce__(self) -> tuple[type["Hint"], tuple[str | Command, ...]]:
        return Hint, self.parts

    def on(self, disk: str, raw_copy: str, typed: Iterable[str]) -> "Hint":
        """Return the hint with each command as `Command.on` returns it."""
        found = (
            part.on(disk, raw_copy, typed) if isinstance(part, Hint | Command) else part
            for part in self.parts
        )
        return Hint(*found)

    def renamed(self, name: str, other: str) -> "Hint":
        """Return the hint with the command `other` of aligntool in place of the command `name`."""

        def rename(part: str | Command) -> str | Command:
            if isinstance(part, Hint):
                return part.renamed(name, other)
            if isinstance(part, Command) and part.program == "aligntool" and part.arguments[0] == name:
                return replace(part, arguments=(other, *part.arguments[1:]))
            return part

        return Hint(*map(rename, self.parts))


def is_node(path: str) -> bool:
    """Return whether a path is below /dev, except /dev/shm, which contains files."""
    return path.startswith("/dev/") and not path.startswith("/dev/shm/")


def raw_first(raw_copy: str) -> str:
    return f"make it a raw image first: {raw_copy}"


def command(name: str, disk: str = DISK, *options: str) -> str:
    """Return an aligntool command on the disk or image file with this path, with sudo for a device."""
    return Hint(Command("aligntool", (*name.split(), disk), is_node(disk), options))


def typed(words: str, *values: str | int, sudo: bool = True) -> str:
    """Return the command to paste that these words begin, split at spaces, and these values end."""
    program, *fixed = words.split()
    return Hint(Command(program, (*fixed, *map(str, values)), sudo))


def typed_on_loop(words: str, path: str, *options: str) -> str:
    """Return the command that looks at a loop device, read-only, that losetup makes with these options."""
    program, *fixed = words.split()
    attach = Command("losetup", ("-r", "-f", "--show", *options, path))
    look = Command(program, (*fixed, "LOOP"))
    if {attach.effect, look.effect} != {Effect.LOOKS}:
        return by_hand(ByHand.ATTACHING, program, path)
    return f'loop=$({attach}) && {str(look).removesuffix("LOOP")}"$loop"; sudo losetup -d "$loop"'


def by_hand(section: ByHand, program: str, on: str = "") -> str:
    """Return where the user finds how to make a change with another program. `on`: what it is to change, in
    words.
    """
    return Hint(Command(program, section=section, detail=on))


def is_by_hand(hint: str) -> bool:
    """Return whether a hint leads to a page instead of being a command."""
    return f": {PAGE}#" in hint


def split_step(step: str) -> tuple[str, str, str]:
    """Return the words before a command, the command, and the words behind it: "if it is not needed: ",
    "aligntool ...", "; then the same command again". Without a command, all of it are words before it.
    """
    found = None if is_by_hand(step) else _WITH_COMMAND.fullmatch(step)
    return (found[1] or "", found[2], found[3] or "") if found else (step, "", "")


def commands_in(steps: Iterable[str]) -> list[str]:
    """Return the commands of steps, without the words around them; a step in words has none."""
    return [command for _, command, _ in map(split_step, steps) if command]


_WITH_COMMAND = re.compile(
    rf"(.*?: )?((?:loop=|(?:sudo|aligntool|echo|{'|'.join(sorted(_BY_ANYBODY))}) )\S.*?)([;,] then .*)?"
)


def shell_word(text: str) -> str:
    r"""Return a path quoted for a shell. Control characters are written as escapes.

    Backslashes and quotation marks stand outside of the quotes: in those of fish, \\ and \' are escapes as
    well.
    """
    if text and text[0] != "=" and all(char.isalnum() or char in "/._-+:,@%=" for char in text):
        return text
    if all(char.isprintable() for char in text):
        return "'" + re.sub(r"[\\']", r"'\\\g<0>'", text) + "'"
    octal = {
        char: "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape")) for char in text
    }
    escaped = "".join(char if char.isprintable() and char not in "'\\" else octal[char] for char in text)
    return f"$'{escaped}'"


def joined_commands(hints: Iterable[str]) -> str:
    """Return one command line that runs all the commands of these hints, each once."""
    commands = dict.fromkeys(
        part for hint in hints for part in getattr(hint, "parts", (hint,)) if part != _AND
    )
    return Hint(*[part for command in commands for part in (_AND, command)][1:])


_AND = " && "
