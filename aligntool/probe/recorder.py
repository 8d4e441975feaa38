"""A look at this machine that remembers everything it was told.

In: the questions that a look asks of a `Tree`. Out: the same answers, and a copy of each. Alone because this is how a
snapshot cannot forget anything: what was not read while looking is not needed to look again.
"""

import os
from dataclasses import dataclass, field

from aligntool.inventory import LATE_START_ENABLED
from aligntool.probe.tree import LONGEST_CONTENT, Tree, as_number, stripped

FILE, LINK, FOLDER = "file", "symlink", "directory"
_OPEN_TO_ALL = (
    "/sys/",
    "/proc/",
    "/run/udev/",
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/fstab",
    "/etc/mdadm/mdadm.conf",
    "/etc/mdadm.conf",
    LATE_START_ENABLED,
)
# /proc/self leads to a number that means nothing later, /etc/os-release to where nobody asks for it
_KEPT_AS_ASKED = ("/proc/", "/etc/", "/usr/lib/")


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to put into a snapshot."""

    path: str  # "sys/block/sda", without the leading slash
    kind: str
    content: bytes = b""  # of a file; of a symbolic link, where it leads


@dataclass(frozen=True, slots=True)
class Recorder(Tree):
    """Answers for this machine, and says it were a captured tree, so that nobody opens a disk."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    source: Tree = field(default_factory=lambda: Tree(""))

    @property
    def live(self) -> bool:
        return False

    def text(self, path: str) -> str | None:
        content = self.content(path, 4096)
        return None if content is None else stripped(content)

    def number(self, path: str) -> int | None:
        return as_number(self.text(path))

    def content(self, path: str, limit: int = LONGEST_CONTENT) -> bytes | None:
        if not path.startswith(_OPEN_TO_ALL):
            return None
        content = self.source.content(path, limit)
        if content is not None:
            self.files[self._place(path)] = content
        return content

    def names(self, path: str) -> list[str]:
        if not f"{path}/".startswith(_OPEN_TO_ALL) or not self.is_directory(path):
            return []
        names = self.source.names(path)
        for name in names:
            self._note(f"{path}/{name}")
        return names

    def exists(self, path: str) -> bool:
        return self.real(path) is not None

    def is_directory(self, path: str) -> bool:
        if not f"{path}/".startswith(_OPEN_TO_ALL) or not self.source.is_directory(path):
            return False
        self._note(path)
        return True

    def link(self, path: str) -> str | None:
        self._note(path)
        return self.source.link(path)

    def real(self, path: str) -> str | None:
        real = self.source.real(path)
        if real is not None:
            self._note(path)
            self._note(real)
            if not self.source.is_directory(real):
                self.content(real)
        return real

    def _note(self, path: str) -> None:
        place = self._place(path)
        if place not in self.links and self.source.is_directory(place):
            self.folders.add(place)

    def _place(self, path: str) -> str:
        """Where a path lies with no symbolic link before its last word; the links on the way are noted."""
        if path.startswith(_KEPT_AS_ASKED):
            return path
        here, words = "", [word for word in path.split("/") if word]
        for index, word in enumerate(words):
            place = f"{here}/{word}"
            if place not in self.links:
                target = self.source.link(place)
                if target is None:
                    here = place
                    continue
                self.links[place] = target
            if index == len(words) - 1:
                return place
            here = self.source.real(place) or place
        return here

    def entries(self) -> list[Entry]:
        found = [Entry(path[1:], FOLDER) for path in self.folders]
        found += [Entry(path[1:], LINK, os.fsencode(target)) for path, target in self.links.items()]
        found += [Entry(path[1:], FILE, content) for path, content in self.files.items()]
        return sorted(found, key=lambda entry: entry.path)
