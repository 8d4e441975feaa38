"""Families of distributions by their os-release, as those print it."""

import pytest

from aligntool.probe.distribution import FAMILIES, family_of
from aligntool.raid import SYSTEMS


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
def test_a_system_is_told_by_its_id_or_by_what_it_is_like(text: str, family: str | None) -> None:
    assert family_of(text) == family


def test_every_family_has_its_files_and_commands() -> None:
    assert set(FAMILIES) == set(SYSTEMS)
