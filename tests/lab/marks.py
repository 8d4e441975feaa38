"""Requirements of tests that boot a PC with its own Debian, as marks for `pytestmark`."""

import pytest

DEBIAN_PC = (
    pytest.mark.needs_root,
    pytest.mark.needs_tools("debootstrap", "qemu-system-x86_64", "qemu-img", "grub-install", "mksquashfs"),
    pytest.mark.needs_tools("mke2fs", "sfdisk", "partx", "losetup"),
)
