"""The numbers and structures of ioctls, as the C compiler of this machine has them: they depend on the processor."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aligntool.linux import block, commands, file_extents, lock, loops
from tests.conftest import run

NUMBERS = {
    "BLKSSZGET": block._BLKSSZGET,
    "BLKPG": lock._BLKPG,
    "BLKROSET": loops._BLKROSET,
    "BLKFLSBUF": loops._BLKFLSBUF,
    "FS_IOC_FIEMAP": file_extents._FIEMAP,
    "LOOP_CTL_GET_FREE": loops.GET_FREE,
    "LOOP_CONFIGURE": loops.CONFIGURE,
    "LOOP_GET_STATUS64": loops.GET_STATUS,
    "NVME_IOCTL_ID": commands.NVME_IOCTL_ID,
    "NVME_IOCTL_ADMIN_CMD": commands.NVME_IOCTL_ADMIN_CMD,
    "SG_IO": commands.SG_IO,
}
SIZES = {
    "struct blkpg_ioctl_arg": lock._BLKPG_REQUEST.size,
    "struct loop_info64": loops._LOOP_INFO.size,
    "struct nvme_passthru_cmd": commands._COMMAND.size,
    "struct sg_io_hdr": commands._REQUEST.size,
}
HEADERS = ("stdio.h", "sys/ioctl.h", *(f"linux/{name}.h" for name in ("fs", "fiemap", "blkpg", "loop", "nvme_ioctl")))


def _program() -> Iterator[str]:
    yield from (f"#include <{header}>" for header in (*HEADERS, "scsi/sg.h"))
    yield "int main(void) {"
    yield from (f'printf("%lu\\n", (unsigned long){number} & 0xFFFFFFFFul);' for number in NUMBERS)
    yield from (f'printf("%lu\\n", (unsigned long)sizeof({name}));' for name in SIZES)
    yield "}"


@pytest.mark.needs_tools("cc")
def test_every_ioctl_has_the_number_and_the_size_of_the_kernel_s_headers(tmp_path: Path) -> None:
    (tmp_path / "numbers.c").write_text("\n".join(_program()))
    run("cc", "-o", tmp_path / "numbers", tmp_path / "numbers.c")
    computed = map(int, run(tmp_path / "numbers").split())
    assert dict(zip((*NUMBERS, *SIZES), computed, strict=True)) == NUMBERS | SIZES
