"""Which family of distributions runs here: whose files and commands make an array permanent.

In: os-release(5). Out: a word. Alone because it is about the system, and everything else in `probe` is about disks.
"""

from pathlib import Path

FILES = ("/etc/os-release", "/usr/lib/os-release")
FAMILIES = {
    "debian": ("debian", "ubuntu"),
    "fedora": ("fedora", "rhel", "centos"),
    "opensuse": ("opensuse", "suse", "sles"),
    "arch": ("arch", "archlinux"),
}


def find_distribution() -> str | None:
    """Of this machine; None: of none that is known."""
    for file in FILES:
        try:
            return family_of(Path(file).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
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
