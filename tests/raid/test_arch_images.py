"""The check of Arch's initramfs images: each image that a preset names is unpacked and searched."""

import os
import subprocess
import uuid
from pathlib import Path

import pytest

from aligntool.raid.boot import MAKERS
from aligntool.raid.commands import command_of
from aligntool.steps import CheckInitramfs
from tests.conftest import find_tool, run

pytestmark = pytest.mark.needs_tools("cpio")
UUID = "01234567:89abcdef:01234567:89abcdef"
LINE = f"ARRAY /dev/md/data metadata=1.2 UUID={UUID}\n"
# What lsinitcpio -x does: mkinitcpio, lsinitcpio. It unpacks with bsdcpio, which not every distribution packages.
UNPACKER = '#!/bin/sh\n[ "$1" = -x ] && [ $# = 2 ] && [ -f "$2" ] && exec cpio --quiet -idm < "$2"\n'


def image(place: Path, conf: str | None) -> Path:
    """Write a newc archive as mkinitcpio makes it, with mdadm.conf or without."""
    (tree := place.with_suffix(".tree")).mkdir()
    (tree / "etc").mkdir()
    (tree / "init").write_text("#!/bin/ash\n")
    if conf is not None:
        (tree / "etc/mdadm.conf").write_text(conf)
    names = "\n".join(str(each.relative_to(tree)) for each in sorted(tree.rglob("*")))
    done = subprocess.run(
        [find_tool("cpio") or "cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=tree,
        capture_output=True, check=True,
    )  # fmt: skip
    place.write_bytes(done.stdout)
    return place


def looked(folder: Path, **images: Path) -> subprocess.CompletedProcess[str]:
    """Run the check with a preset like that of the package linux; `unified` is a unified kernel image."""
    (folder / "presets").mkdir()
    lines = [f"PRESETS=({' '.join(repr(name) for name in images)})"]
    lines += [f'{name}_{"uki" if name == "unified" else "image"}="{path}"' for name, path in images.items()]
    (folder / "presets/linux.preset").write_text("ALL_kver='/boot/vmlinuz-linux'\n" + "\n".join(lines) + "\n")
    (folder / "bin").mkdir()
    (folder / "bin/lsinitcpio").write_text(UNPACKER)
    (folder / "bin/lsinitcpio").chmod(0o755)
    (here := folder / "here").mkdir()
    (temporary := folder / "tmp").mkdir()
    search = f"{folder / 'bin'}:{os.environ['PATH']}"
    env = os.environ | {"MKINITCPIO_PRESETS": str(folder / "presets"), "PATH": search, "TMPDIR": str(temporary)}
    done = subprocess.run(
        command_of(CheckInitramfs("mkinitcpio", UUID)), cwd=here, env=env, capture_output=True, text=True, check=False
    )
    assert list(here.iterdir()) == [], "the folder that it was called in is somebody's: /, of root's shell"
    assert list(temporary.iterdir()) == [], "nothing is left behind"
    return done


def test_the_line_is_found_in_every_image_and_no_temporary_file_remains(tmp_path: Path) -> None:
    first, second = image(tmp_path / "a.img", LINE), image(tmp_path / "b.efi", "# lts\n" + LINE)
    own = image(
        tmp_path / "c.img", LINE.replace(UUID, str(uuid.UUID(UUID.replace(":", ""))).upper())
    )  # mdadm reads both
    done = looked(tmp_path, default=first, unified=second, other=own)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"UUID={UUID}") == 2


@pytest.mark.parametrize("bare", [0, 1])
def test_a_single_image_without_the_line_stops_the_run(tmp_path: Path, bare: int) -> None:
    images = [image(tmp_path / f"{number}.img", None if number == bare else LINE) for number in range(2)]
    done = looked(tmp_path, default=images[0], fallback=images[1])
    assert done.returncode == 1 and f"{bare}.img has no mdadm.conf: is mdadm_udev in HOOKS?" in done.stdout


@pytest.mark.parametrize("conf", ["HOMEHOST <system>\n", f"# {LINE}"])
def test_an_image_whose_file_lacks_the_line_is_named(tmp_path: Path, conf: str) -> None:
    first, second = image(tmp_path / "a.img", LINE), image(tmp_path / "b.img", conf)
    done = looked(tmp_path, default=first, fallback=second)
    assert done.returncode == 1 and f"b.img has no line for {UUID}" in done.stdout


def test_a_missing_image_or_the_lack_of_presets_stops_the_run(tmp_path: Path) -> None:
    assert looked(tmp_path, default=tmp_path / "nothing.img").returncode != 0
    (other := tmp_path / "other").mkdir()
    done = looked(other)
    assert done.returncode == 1 and "no preset lists an image" in done.stdout
    assert run("bash", "-n", "-c", MAKERS["mkinitcpio"].check[2]) == ""
