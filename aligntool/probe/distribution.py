"""Which family of distributions runs here: whose files and commands make an array permanent.

In: os-release(5), and of Debian's family which program makes its initramfs. Out: a word. Alone because it is about the
system, and everything else in `probe` is about disks.
"""

from collections.abc import Callable
from pathlib import Path

FILES = ("/etc/os-release", "/usr/lib/os-release")
FAMILIES = {
    "debian": ("debian", "ubuntu"),
    "fedora": ("fedora", "rhel", "centos"),
    "opensuse": ("opensuse", "suse", "sles"),
    "arch": ("arch", "archlinux"),
}
UPDATE_INITRAMFS = "/usr/sbin/update-initramfs"
DRACUT = "/usr/bin/dracut"
LONGEST_SCRIPT = 1 << 20


def find_distribution() -> str | None:
    """Of this machine; None: of none that is known."""
    for file in FILES:
        try:
            family = family_of(Path(file).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        return with_dracut(family, _content)
    return None


def with_dracut(family: str | None, content: Callable[[str, int], bytes | None]) -> str | None:
    """Debian's packages dracut and initramfs-tools exclude each other. What is called update-initramfs then is missing,
    or a script that does not call mkinitramfs, as the one of initramfs-tools does.

    `content` reads a file up to a length; None: it is not there.
    """
    if family != "debian" or content(DRACUT, 1) is None:
        return family
    script = content(UPDATE_INITRAMFS, LONGEST_SCRIPT)
    return family if script is not None and b"mkinitramfs" in script else "debian-dracut"


def _content(path: str, most: int) -> bytes | None:
    try:
        with Path(path).open("rb") as file:
            return file.read(most)
    except OSError:
        return None


def family_of(text: str) -> str | None:
    """By ID, else by ID_LIKE, which names the nearest relative first."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    words = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', " ").replace("'", " ").split()
    for word in words:
        for family, ids in FAMILIES.items():
            if word.lower() in ids or word.lower().startswith(f"{family}-"):
                return family
    return None
