"""An image whose header is exchanged after it was checked makes QEMU reach no other file.

The exchange happens at the worst moments: in the running program, after the check of the header, and again after QEMU's
own check. Without confinement each of them succeeds, so what is tested is the confinement.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import digest, run

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tools("qemu-img", "qemu-storage-daemon", "unshare", "sfdisk", "mkfs.ext4"),
]
LABEL = "of-root-alone"
START = 35 * 512
SIZE = 48 << 20

# Run the command line, but exchange the content of the image when this function of the program is called.
EXCHANGE = """
import sys
from aligntool.cli.app import main
from aligntool.linux import virtual
moment, image, other = sys.argv[1:4]
del sys.argv[1:4]
function = getattr(virtual, moment)
def exchanging(*words, **named):
    if moment == "_serve":
        exchange()
    result = function(*words, **named)
    if moment != "_serve":
        exchange()
    return result
def exchange():
    with open(other, "rb") as source, open(image, "r+b") as target:
        target.write(source.read())
        target.truncate()
setattr(virtual, moment, exchanging)
main()
"""
MOMENTS = ("_refuse_other_files", "_serve")


def disk(path: Path, label: str) -> Path:
    with path.open("wb") as file:
        file.truncate(SIZE)
    run("sfdisk", "-q", path, stdin="label: gpt\nfirst-lba: 34\nstart=35, size=30000\n")
    run("mkfs.ext4", "-q", "-L", label, "-E", f"offset={START}", path, "15000k")
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Make a disk image that only root may read."""
    path = disk(tmp_path / "secret.img", LABEL)
    path.chmod(0o600)
    return path


@pytest.fixture
def qcow2(tmp_path: Path) -> Path:
    image = tmp_path / "disk.qcow2"
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk(tmp_path / "disk.img", "of-anyone"), image)
    return image


@pytest.fixture
def hostile(tmp_path: Path, secret: Path) -> Path:
    """Make a qcow2 whose data are in the secret file."""
    path, content = tmp_path / "hostile", secret.read_bytes()
    run("qemu-img", "create", "-q", "-f", "qcow2", "-o", f"data_file={secret},data_file_raw=on", path, str(SIZE))
    secret.write_bytes(content)  # qemu-img empties it
    return path


def exchanged(moment: str, image: Path, other: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", EXCHANGE, moment, str(image), str(other), *words]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_exchanged_header_shows_no_other_file(moment: str, qcow2: Path, hostile: Path, secret: Path) -> None:
    done = exchanged(moment, qcow2, hostile, "audit", "--json", str(qcow2))
    assert done.returncode == 3 and LABEL not in done.stdout + done.stderr
    assert f"Could not open '{secret}': No such file or directory" in done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_exchanged_header_writes_to_no_other_file(moment: str, qcow2: Path, hostile: Path, secret: Path) -> None:
    before = digest(secret)
    done = exchanged(moment, qcow2, hostile, "realign", "--yes", str(qcow2))
    assert done.returncode == 3 and digest(secret) == before
    assert f"Could not open '{secret}': No such file or directory" in done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
def test_without_confinement_the_exchange_succeeds(moment: str, qcow2: Path, hostile: Path, secret: Path) -> None:
    """Otherwise the tests above would show nothing."""
    before, image = digest(secret), qcow2.read_bytes()
    done = exchanged(moment, qcow2, hostile, "audit", "--json", "--unconfined", str(qcow2))
    assert LABEL in done.stdout
    qcow2.write_bytes(image)
    done = exchanged(moment, qcow2, hostile, "realign", "--yes", "--unconfined", str(qcow2))
    assert done.returncode == 0 and digest(secret) != before


@pytest.mark.parametrize("moment", MOMENTS)
def test_extents_of_an_exchanged_vmdk_show_no_other_file(moment: str, tmp_path: Path, secret: Path) -> None:
    image, other = tmp_path / "disk.vmdk", tmp_path / "other.vmdk"
    run("qemu-img", "convert", "-f", "raw", "-O", "vmdk", disk(tmp_path / "disk.img", "of-anyone"), image)
    sectors = SIZE // 512
    other.write_text(
        "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\n"
        f'createType="monolithicFlat"\nRW {sectors} FLAT "{secret}" 0\n'
        f'ddb.virtualHWVersion = "4"\nddb.geometry.cylinders = "{sectors // 1008}"\n'
        'ddb.geometry.heads = "16"\nddb.geometry.sectors = "63"\nddb.adapterType = "ide"\n'
    )
    content = image.read_bytes()
    done = exchanged(moment, image, other, "audit", "--json", str(image))
    assert done.returncode == 3 and LABEL not in done.stdout + done.stderr
    assert "No such file or directory" in done.stderr
    image.write_bytes(content)
    done = exchanged(moment, image, other, "audit", "--json", "--unconfined", str(image))
    assert LABEL in done.stdout


def test_the_server_can_reach_nothing_but_the_image(qcow2: Path) -> None:
    """As its own root folder shows, and the rights that are left to it, while it serves the disk."""
    program = """
import json, os, sys
from pathlib import Path
from aligntool.linux import virtual
serve = virtual._serve
def seen(*words, **named):
    server = serve(*words, **named)
    folder = Path(f"/proc/{server.pid}")
    status = dict(line.split(":\\t", 1) for line in (folder / "status").read_text().splitlines())
    files = sorted(os.listdir(folder / "root"))
    network = [line.split(":")[0].strip() for line in (folder / "net/dev").read_text().splitlines()[2:]]
    print(json.dumps({"files": files, "network": network, "rights": status["CapEff"], "more": status["NoNewPrivs"]}))
    return server
virtual._serve = seen
virtual.show_disks({sys.argv[1]: "qcow2"}, print, writes=False)
"""
    done = subprocess.run([sys.executable, "-c", program, str(qcow2)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert set(found["files"]) <= {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "dev", "proc"}
    assert found["network"] == ["lo"] and int(found["rights"], 16) == 2 and found["more"] == "1"
