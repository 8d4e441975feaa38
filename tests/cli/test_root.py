"""`--root DIR` on the command line: what is read and checked below DIR, and what refuses it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import run
from tests.installed import installed_system
from tests.raid.initramfs_images import by_cpio
from tests.run_aligntool import run_aligntool

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tools("mkfs.ext4", "busybox", "findmnt", "mdadm", "mkfs.xfs")]
MADE = ("usr/sbin/mdadm", "usr/bin/unmkinitramfs", "usr/bin/systemctl")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with installed_system(tmp_path) as folder:
        for name in MADE:
            (folder / name).write_text("#!/usr/bin/sh\necho from there\n")
            (folder / name).chmod(0o755)
        (tmp_path / "initramfs").mkdir()
        image = by_cpio(tmp_path / "initramfs", {"conf/initramfs.conf": b"", "sbin/mdadm": b"x"})
        (folder / "boot/initrd.img-6.1").write_bytes(image.read_bytes())
        yield folder


@pytest.fixture
def drives(sparse: Callable[..., Path], loop: Callable[..., Path]) -> list[Path]:
    return [loop(sparse(600 << 20, name)) for name in ("a.img", "b.img")]


def plan(root: Path, drives: list[Path], *more: str, code: int | None = 0) -> str:
    given: tuple[str | Path, ...] = ("--spare-end", "1MiB", "--root", root, *drives, *more)
    done = run_aligntool("raid", "create", "--dry-run", "--level", "1", *given, code=code)
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.needs_tools("unshare")
def test_a_plan_is_for_the_system_below_the_folder(root: Path, drives: list[Path]) -> None:
    said = plan(root, drives)
    assert f"for the system in {root} (ext4 " in said
    assert f"in {root}: rebuild every initramfs" in said and "here: create the array /dev/md/data" in said
    assert f"mounted at {root}/srv/data now, and at /srv/data whenever that system boots" in said
    assert "from there in" in said  # the version of its mdadm, which is another one
    assert f"--root {root}" in said.partition("→")[2]
    assert not list((root / "etc").glob("*.before*")) and (root / "etc/fstab").read_text() == ""
    assert [line for line in Path("/proc/mounts").read_text().splitlines() if f" {root}/" in line] == []


def test_lines_and_files_of_that_system_refuse_the_name_and_the_mount_point(root: Path, drives: list[Path]) -> None:
    (root / "etc/fstab").write_text("UUID=1 /srv/data ext4 nofail 0 2\n")
    (root / "etc/mdadm/mdadm.conf").write_text("ARRAY /dev/md/data UUID=0:0:0:1\n")
    said = plan(root, drives, code=3)
    assert "/etc/fstab already mounts UUID=1 at /srv/data" in said and "gives the name /dev/md/data to another" in said
    (root / "srv/other").mkdir()
    (root / "srv/other/file").touch()
    assert f"{root}/srv/other is not empty" in plan(root, drives, "--mount", "/srv/other", "--name", "x", code=3)


@pytest.mark.needs_tools("unshare")
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("usr/sbin/mdadm", "mdadm is not installed in"),
        ("usr/sbin/update-initramfs", "update-initramfs is not installed in"),
        ("boot/initrd.img-6.1", "no initramfs is in"),
        ("etc/os-release", "the family of the system in"),
    ],
)
def test_a_system_that_could_not_start_the_array_is_refused(
    root: Path, drives: list[Path], missing: str, said: str
) -> None:
    (root / missing).unlink()
    assert said in plan(root, drives, code=3)


@pytest.mark.needs_tools("unshare")
def test_a_part_of_the_system_that_is_not_mounted_is_refused(root: Path, drives: list[Path]) -> None:
    (root / "etc/fstab").write_text("UUID=1 /boot ext4 defaults 0 2\n")
    assert f"mounts UUID=1 at /boot, and nothing is mounted at {root}/boot" in plan(root, drives, code=3)
    run("mount", "--bind", root / "boot", root / "boot")
    try:
        plan(root, drives)
    finally:
        run("umount", root / "boot")


def test_what_only_the_running_system_can_do_is_refused(root: Path, drives: list[Path], tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text('format = 1\nkind = "raid"\nsummary = "x"\nsource = "x"\nlevel = "raid1"\nowner = "root"\n')
    said = run_aligntool("raid", "create", "--dry-run", "--root", root, "--recipe", recipe, *drives, code=3).stderr
    assert "without --root" in " ".join(said.split())


def test_a_folder_without_a_system_is_refused(tmp_path: Path, root: Path) -> None:
    refused = {tmp_path: "nothing is mounted at", root / "etc": "nothing is mounted", Path("/"): "the running system"}
    for folder, text in refused.items():
        done = run_aligntool("raid", "persist", "--dry-run", "--root", folder, "md127", code=3)
        assert text in " ".join(done.stderr.split())
    done = run_aligntool("raid", "persist", "--dry-run", "--root", root, "no-such-array", code=3)
    assert "no running md array has that name" in done.stderr
    done = run_aligntool("raid", "persist", "--root", root, "--sysroot", tmp_path, "md127", code=2)
    assert "--sysroot" in done.stderr
