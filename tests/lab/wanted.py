"""What the tests of a PC that boots a Debian of its own need, and which of them run when they are asked for only.

In: a reason. Out: marks for `pytestmark`. Alone because most modules here need the same.
"""

import os

import pytest

THOROUGH = os.environ.get("ALIGNTOOL_THOROUGH") == "1"
DEBIAN_PC = (
    pytest.mark.needs_root,
    pytest.mark.needs_tools("debootstrap", "qemu-system-x86_64", "qemu-img", "grub-install", "mksquashfs"),
    pytest.mark.needs_tools("mke2fs", "sfdisk", "partx", "losetup"),
)


def when_thorough(why: str) -> pytest.MarkDecorator:
    """`why`: what makes it long."""
    return pytest.mark.skipif(not THOROUGH, reason=f"{why}; ALIGNTOOL_THOROUGH=1 runs it")
