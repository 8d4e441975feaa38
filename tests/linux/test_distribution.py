"""Families of distributions, recognised by their own os-release files."""

import pytest

from aligntool.linux.system import DRACUT, FAMILIES, UPDATE_INITRAMFS, family_of, with_dracut
from aligntool.raid.boot import SYSTEMS


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n', "debian"),
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ("ID=fedora\nVERSION_ID=41\n", "fedora"),
        ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "opensuse"),
        ('ID="sles"\nID_LIKE="suse"\n', "opensuse"),
        ("ID=arch\n", "arch"),
        ("ID=manjaro\nID_LIKE=arch\n", "arch"),
        ("ID=nixos\n", None),
        ("", None),
        ("nonsense\n=\n", None),
    ],
)
def test_a_system_is_recognised_by_its_id_or_its_id_like(text: str, family: str | None) -> None:
    assert family_of(text) == family


OWN_SCRIPT = b'#!/bin/sh\nmkinitramfs ${OPTS} -o "${initramfs}.new" "${version}"\n'
STAND_IN = b'#!/bin/sh\nexec dracut --force --regenerate-all "$@"\n'


@pytest.mark.parametrize(
    ("family", "files", "found"),
    [
        ("debian", {}, "debian"),
        ("debian", {UPDATE_INITRAMFS: OWN_SCRIPT}, "debian"),
        ("debian", {UPDATE_INITRAMFS: OWN_SCRIPT, DRACUT: b"#"}, "debian"),  # dracut-core next to initramfs-tools
        ("debian", {UPDATE_INITRAMFS: STAND_IN, DRACUT: b"#"}, "debian-dracut"),
        ("debian", {DRACUT: b"#"}, "debian-dracut"),
        ("fedora", {DRACUT: b"#"}, "fedora"),
        (None, {DRACUT: b"#"}, None),
    ],
)
def test_debians_initramfs_is_made_by_dracut_where_initramfs_tools_makes_none(
    family: str | None, files: dict[str, bytes], found: str | None
) -> None:
    assert with_dracut(family, lambda path, most: files[path][:most] if path in files else None) == found


def test_every_family_has_files_and_commands() -> None:
    assert {*FAMILIES, "debian-dracut"} == set(SYSTEMS)
