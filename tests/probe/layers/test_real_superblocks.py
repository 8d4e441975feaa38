"""The images of util-linux's own tests of libblkid: real superblocks, and what libblkid must say of each."""

import lzma
import re
from pathlib import Path

import pytest

from aligntool.probe.layers import read_layers
from aligntool.probe.reader import BytesReader
from aligntool.units import Extent
from tests.probe.layers.placed import as_blkid

# Recognised by libblkid alone: rare today, and nothing about them is needed for alignment.
NOT_READ = {"befs", "bfs", "cs_fvault2", "drbdmanage_control_volume", "hpfs", "minix", "mpool", "nss", "scoutfs_data",
            "scoutfs_meta", "ubifs", "vxfs"}  # fmt: skip
# Recognised, without all of libblkid's names and numbers.
KIND_ONLY = {"drbd", "gfs2", "ocfs2", "ubi", "udf", "VMFS", "VMFS_volume_member", "ddf_raid_member"}
# Bytes above 127 in a label: read here in the code page of DOS, left as they are by libblkid.
OTHER_LABEL = {"fat32_cp850_O_tilde"}


def test_every_image_of_libblkids_tests_is_read_as_libblkid_reads_it(shared_data: Path) -> None:
    folder = shared_data / "superblocks"
    images = sorted(folder.glob("*.img.xz"))
    if not images:
        pytest.skip("the images of util-linux's tests are not among the shared data")
    wrong = []
    for image in images:
        name = image.name.removesuffix(".img.xz")
        said = expected(folder / f"{name}.expected")
        content = lzma.decompress(image.read_bytes())
        layers = read_layers(BytesReader(content), Extent(0, len(content)))
        ours = as_blkid(layers[0]) if layers else {}
        if said["TYPE"] in KIND_ONLY:
            ours, said = {"TYPE": ours.get("TYPE", "")}, {"TYPE": said["TYPE"]}
        if name in OTHER_LABEL:
            del ours["LABEL"], said["LABEL"]
        if said["TYPE"] not in NOT_READ and ours != said:
            wrong.append((name, ours, said))
    assert wrong == []
    assert len(images) > 100


def expected(path: Path) -> dict[str, str]:
    pairs = dict(line.split("=", 1) for line in path.read_text().splitlines() if line.startswith("ID_FS_"))
    names = {
        "TYPE": "ID_FS_TYPE",
        "VERSION": "ID_FS_VERSION",
        "LABEL": "ID_FS_LABEL_ENC",
        "UUID": "ID_FS_UUID_ENC",
    }
    return {key: _plain(pairs[name]) for key, name in names.items() if name in pairs}


def _plain(encoded: str) -> str:
    raw = re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes([int(match.group(1), 16)]), encoded.encode())
    return raw.decode("utf-8", "replace").strip()
