"""Partition types of GPT and MBR: their names, and the types for the role of a new partition."""

from dataclasses import dataclass
from functools import cache
from pkgutil import get_data

BASIC_DATA = "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"
LDM_TYPES = frozenset({"5808C8AA-7E8F-42E0-85D2-E1E90434CFB3", "AF9B60A0-1431-4F62-BC68-3311714A69AD"})
_LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"

EFI_SYSTEM = ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "0xef")
EXTENDED_TYPES = frozenset({0x05, 0x0F, 0x85})  # DOS, Windows with LBA, Linux
GPT_PROTECTIVE = 0xEE
LDM = 0x42

WITHOUT_SUPERBLOCK = frozenset(
    {
        "21686148-6449-6E6F-744E-656564454649",  # BIOS boot: a program
        "9E1A2D38-C612-4316-AA26-8B49521E5A8B",  # PReP boot: a program
        "0x41",  # the same in an MBR
        "E3C9E316-0B5C-4DB8-817D-F92DF00215AE",  # Microsoft reserved: remains of what was there before
        # Linux swap, which may be encrypted with a new key at each start
        "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F",
        "0x82",  # the same in an MBR
    }
)
"""Types of partitions whose use is known although nothing is recognised in them."""

# The names are in part_types.txt in this package, with their sources.


@cache
def _names() -> dict[str, str]:
    """Return the name of each type by its code, a GUID or two hexadecimal digits."""
    text = (get_data("aligntool.formats", "part_types.txt") or b"").decode()
    pairs = (line.partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {code: name for code, _, name in pairs}


def numbered_types(packed: str) -> dict[int, str]:
    """Return the names by code of a list "code name; code name" with hexadecimal codes."""
    pairs = (entry.strip().partition(" ") for entry in packed.split(";"))
    return {int(code, 16): name for code, _, name in pairs}


def gpt_type_name(guid: str) -> str:
    """Return the name of a type GUID, which is in upper case, or "" if it is not listed."""
    return _names().get(guid, "")


def mbr_type_name(code: int) -> str:
    """Return the name of a type byte, or "" if it is not listed."""
    return _names().get(f"{code:02X}", "")


# Roles of a new partition: a word for the user, and the type codes for firmware and systems. GUIDs from the
# UEFI specification (5.3.3), the Discoverable Partitions Specification, the GRUB manual ("BIOS
# installation"), Microsoft's PARTITION_INFORMATION_GPT; bytes from Andries Brouwer's list, 0xEA from the UAPI
# group's Boot Loader Specification.


@dataclass(frozen=True, slots=True)
class PartRole:
    """The purpose of a new partition, and its type in each table."""

    word: str
    title: str  # saved layout plans with another one are refused (realign.layout.refuse_unsound)
    gpt: str  # type GUID in upper case
    mbr: str | None  # type byte, "0x83"; None: an MBR has no type for it
    active: bool = False  # marked active in an MBR


ROLES = {
    role.word: role
    for role in (
        PartRole("esp", "EFI System", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "0xef"),
        PartRole("xbootldr", "Linux extended boot", "BC13C2FF-59E6-4262-A352-B275FD6F7172", "0xea"),
        PartRole("bios-boot", "BIOS boot", "21686148-6449-6E6F-744E-656564454649", None),
        # Some BIOSes boot only from a disk whose MBR has an active entry, whatever the boot loader needs.
        PartRole("boot", "Linux /boot", _LINUX, "0x83", active=True),
        PartRole("linux", "Linux file system", _LINUX, "0x83"),
        PartRole("root-x86-64", "Linux root (x86-64)", "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "0x83"),
        PartRole("root-arm64", "Linux root (ARM-64)", "B921B045-1DF0-41C3-AF44-4C6F280D3FAE", "0x83"),
        PartRole("home", "Linux home", "933AC7E1-2EB4-4F13-B844-0E14E2AEF915", "0x83"),
        PartRole("srv", "Linux server data", "3B8F8425-20E0-4F3B-907F-1A25A76F98E8", "0x83"),
        PartRole("swap", "Linux swap", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "0x82"),
        PartRole("linux-raid", "Linux RAID", "A19D880F-05FC-4D3B-A006-743F0F84911E", "0xfd"),
        PartRole("lvm", "Linux LVM", "E6D6D379-F507-44C2-A23C-238F2A3DF928", "0x8e"),
        # Installers give an encrypted file system the type of a plain one, and cryptsetup ignores the type.
        PartRole("luks", "Linux, encrypted", _LINUX, "0x83"),
        PartRole("fat", "FAT", BASIC_DATA, "0x0c"),
        PartRole("windows", "Windows data", BASIC_DATA, "0x07"),
        PartRole("msr", "Microsoft reserved", "E3C9E316-0B5C-4DB8-817D-F92DF00215AE", None),
    )
}


def role_list() -> str:
    """Return the words of all roles, for a hint."""
    return f"roles: {', '.join(ROLES)}"
