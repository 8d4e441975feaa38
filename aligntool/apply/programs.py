"""Where the programs are that change things: mkfs and its kin, resize2fs, losetup.

In: a name. Out: a path. Alone because a plain user's PATH lacks the folders of the administrator, and every caller here
must look in the same places.
"""

import os
import shutil

_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


def find_program(name: str) -> str | None:
    """None: not installed."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + _SBIN)
