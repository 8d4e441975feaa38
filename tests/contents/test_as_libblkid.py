"""Every kind of content that aligntool names has the name that libblkid gives it.

The specimens are those of `tests/mover/specimens.py`: made by their own tools, or by hand with what libblkid requires.
"""

import pytest

from aligntool.contents.layers import read_layers
from aligntool.units import MIB, Extent
from tests.in_memory import BytesReader
from tests.mover.libblkid import ProbedImage, find_library, known_kinds
from tests.mover.specimens import SPECIMENS
from tests.mover.superblocks import Specimen

pytestmark = pytest.mark.skipif(find_library() is None, reason="libblkid.so.1 is not here")
LONGEST = 66 * MIB  # for XFS and btrfs, test_linux_file_systems.py asks blkid
# Kinds that the audit calls unknown content: libblkid recognises them, and a move hides them (test_recognition.py).
UNNAMED = {
    "LVM1_member", "bfs", "drbdmanage_control_volume", "drbdproxy_datalog", "exfs", "gfs", "hpfs", "minix",
    "mpool", "nss", "ocfs", "sysv", "ubifs", "vxfs", "xenix",
}  # fmt: skip
TABLES = {"PMBR", "aix", "atari", "dos", "gpt", "mac", "sgi", "solaris", "sun", "ultrix", "unixware"}
# By hand with less than aligntool requires: UFS without a fragment size, BFS as it is not written on PCs, the first
# format of CD-ROMs (High Sierra); and the header of an XFS log far behind the start, as after a turn of the log.
TOO_LITTLE = ("ufs 0K", "ufs 8K", "ufs 64K", "ufs 256K", "befs 0", "high sierra", "xfs head", "xfs log 204800")
NAMED = [
    pytest.param(one, id=one.name, marks=pytest.mark.needs_tools(one.tool) if one.tool else ())
    for one in SPECIMENS
    if one.length <= LONGEST and one.seen not in UNNAMED | TABLES and one.name not in TOO_LITTLE
]


@pytest.mark.parametrize("specimen", NAMED)
def test_a_content_is_named_as_by_libblkid(specimen: Specimen) -> None:
    image = bytearray(specimen.length)
    for at, raw in specimen.make(specimen.length):
        image[at : at + len(raw)] = raw
    if specimen.seen in known_kinds():  # another libblkid may be older
        with ProbedImage(bytes(image)) as witness:
            assert witness.see(0, len(image))["TYPE"] == specimen.seen
    assert specimen.seen in [layer.kind for layer in read_layers(BytesReader(bytes(image)), Extent(0, len(image)))]


@pytest.mark.parametrize("name", ["luks1", "bitlocker"])
def test_encryption_is_named_in_less_than_a_floppy(name: str) -> None:
    """libblkid looks for no RAID in so little, but for encryption."""
    specimen = next(one for one in SPECIMENS if one.name == name)
    image = bytearray(MIB)
    for at, raw in specimen.make(len(image)):
        image[at : at + len(raw)] = raw
    with ProbedImage(bytes(image)) as witness:
        assert witness.see(0, len(image))["TYPE"] == specimen.seen
    assert specimen.seen in [layer.kind for layer in read_layers(BytesReader(bytes(image)), Extent(0, len(image)))]
