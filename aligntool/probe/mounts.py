r"""Where devices are mounted or swapped to.

In: a `Tree`. Out: mount points by device number and by node. Alone because /proc/self/mountinfo escapes its words
(a space is \040) and because file systems of several devices show a number there that no device has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aligntool.probe.tree import Tree

SWAP = "[SWAP]"  # as lsblk writes it


@dataclass(frozen=True, slots=True)
class Mounts:
    by_number: Mapping[str, tuple[str, ...]]
    by_node: Mapping[str, tuple[str, ...]]  # "/dev/sda1": btrfs, ZFS and overlay have anonymous numbers

    def of(self, number: str | None, *nodes: str) -> tuple[str, ...]:
        found = list(self.by_number.get(number or "", ()))
        for node in nodes:
            found += self.by_node.get(node, ())
        return tuple(dict.fromkeys(found))


def read_mounts(tree: Tree) -> Mounts:
    by_number: dict[str, list[str]] = {}
    by_node: dict[str, list[str]] = {}
    for number, node, place in _mounted(tree.content("/proc/self/mountinfo") or b""):
        by_number.setdefault(number, []).append(place)
        if node.startswith("/dev/"):
            by_node.setdefault(node, []).append(place)
    for node in _swapped(tree.content("/proc/swaps") or b""):
        by_node.setdefault(node, []).append(SWAP)
    return Mounts(_frozen(by_number), _frozen(by_node))


def _frozen(found: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(dict.fromkeys(places)) for key, places in found.items()}


def _mounted(content: bytes) -> Iterator[tuple[str, str, str]]:
    """(device number, source, mount point) of each line; proc_pid_mountinfo(5)."""
    for line in content.split(b"\n"):
        before, found, after = line.partition(b" - ")
        words, rest = before.split(b" "), after.split(b" ")
        if found and len(words) >= 5 and len(rest) >= 2:
            yield words[2].decode("ascii", "replace"), unescape(rest[1]), unescape(words[4])


def _swapped(content: bytes) -> Iterator[str]:
    for line in content.split(b"\n")[1:]:
        words = line.split()
        if len(words) >= 2 and words[0].startswith(b"/dev/"):
            yield unescape(words[0])


def unescape(word: bytes) -> str:
    r"""Octal escapes of the kernel: \040, \011, \012, \134, \043 (fs/proc_namespace.c, mangle)."""
    if b"\\" not in word:
        return word.decode("utf-8", "replace")
    raw, at = bytearray(), 0
    while at < len(word):
        digits = word[at + 1 : at + 4]
        if word[at : at + 1] == b"\\" and len(digits) == 3 and not digits.strip(b"01234567"):
            raw.append(int(digits, 8) & 0xFF)
            at += 4
        else:
            raw.append(word[at])
            at += 1
    return raw.decode("utf-8", "replace")
