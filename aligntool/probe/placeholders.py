"""What stands in a snapshot in place of a secret: the same everywhere for the same value.

In: serial numbers, UUIDs, names, places. Out: placeholders of the same length and shape, so that what refers to each
other still does. Alone because every kind of file that is masked draws on one set of them.
"""

import re
from dataclasses import dataclass, field

_UUID = re.compile(r"(?<![0-9A-Fa-f-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f-])")
_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_ARRAY_UUID = re.compile(r"[0-9a-f]{32}")
_DM_OWNER = re.compile(r"((?:part\d+-)?(?:LVM|mpath|DMRAID|CRYPT-[A-Z0-9]+|[A-Za-z]+)-)(.+)", re.DOTALL)
_NUMBERED_ID = re.compile(r"(.{8})(-\d\d)")  # an MBR partition's PARTUUID ends in its number
_PREFIXED = re.compile(r"(naa\.|eui\.|uuid\.|t10\.|nvme\.|nqn\.|0x)(.+)", re.DOTALL)
_COMMON_PLACES = frozenset(
    [
        "/",
        "/boot",
        "/boot/efi",
        "/efi",
        "/home",
        "/var",
        "/var/log",
        "/var/lib",
        "/usr",
        "/opt",
        "/srv",
        "/tmp",
        "/root",
        "/mnt",
        "/media",
    ]
)

_OF_THE_SYSTEM = ("/home", "/var", "/usr", "/boot", "/opt", "/root", "/etc")


@dataclass(slots=True)
class Masks:
    """The placeholders given so far."""

    _given: dict[str, int] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)

    def value(self, secret: str) -> str:
        """A placeholder as long as the secret; hexadecimal where that is, with its dashes and prefix."""
        plain = secret.strip()
        if not plain.strip("0-:.x"):
            return secret  # zeros: no identity at all
        prefixed, numbered = _PREFIXED.fullmatch(plain), _NUMBERED_ID.fullmatch(plain)
        if prefixed:
            masked = prefixed.group(1) + self._placeholder(prefixed.group(2))
        elif numbered:
            masked = self._placeholder(numbered.group(1)) + numbered.group(2)
        else:
            masked = self._placeholder(plain)
        return secret.replace(plain, masked, 1)

    def name(self, name: str) -> str:
        """A device-mapper name, whose hyphens LVM reads."""
        parts = name.replace("--", "\0").split("-")
        return "-".join(self._placeholder(part.replace("\0", "--")) for part in parts)

    def array_name(self, name: str) -> str:
        """ "host:name" of md; what is said of every host, and numbers, are nobody's."""
        words = [word if word == "any" or word.isdecimal() else self.name(word) for word in name.split(":")]
        return ":".join(words)

    def mapping_uuid(self, uuid: str) -> str:
        """ "LVM-…" and "CRYPT-LUKS2-…" say who made the mapping; the rest is whose it is."""
        owner = _DM_OWNER.fullmatch(uuid)
        return owner.group(1) + self._placeholder(owner.group(2)) if owner else self.value(uuid)

    def place(self, path: str) -> str:
        if path in _COMMON_PLACES or path == "[SWAP]":
            return path
        above = f"/{path.split('/')[1]}" if path.startswith("/") else ""
        kept = above if above in _OF_THE_SYSTEM else ""  # whether the system needs it is no secret
        return self._places.setdefault(path, f"{kept}/masked/{len(self._places) + 1}")

    def anywhere(self, text: str) -> str:
        """UUIDs and network addresses, wherever they turn up."""
        text = _UUID.sub(lambda found: self.value(found.group()), text)
        return _MAC.sub(lambda found: self.value(found.group()), text)

    def _placeholder(self, secret: str) -> str:
        if not secret:
            return secret
        key = secret.lower()
        digits = key.replace("-", "").replace(":", "")
        if _ARRAY_UUID.fullmatch(digits):  # mdadm, blkid and the kernel each write it in their own way
            key = digits
        return _shaped(secret, self._given.setdefault(key, len(self._given) + 1))


def _shaped(secret: str, number: int) -> str:
    """Digits from the right, where there were letters and digits; a "0" or "x" everywhere else of that kind."""
    hexadecimal = all(letter in "0123456789abcdefABCDEF-:." for letter in secret)
    digits = f"{number:x}" if hexadecimal else f"{number}"
    shaped: list[str] = []
    for letter in reversed(secret):
        if letter in "-:.":
            shaped.append(letter)
        elif digits:
            shaped.append(digits[-1])
            digits = digits[:-1]
        else:
            shaped.append("0" if hexadecimal else "x")
    return "".join(reversed(shaped))
