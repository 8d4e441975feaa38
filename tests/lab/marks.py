"""What the tests of a PC that boots a Debian of its own need, as marks.

Marks for `pytestmark`; most modules here need the same.
"""

import pytest

DEBIAN_PC = (
    pytest.mark.needs_root,
    pytest.mark.needs_tools("debootstrap", "qemu-system-x86_64", "qemu-img", "grub-install", "mksquashfs"),
    pytest.mark.needs_tools("mke2fs", "sfdisk", "partx", "losetup"),
)
