"""The files of a system in made-up trees, and what a snapshot keeps of them."""

import os
from pathlib import Path

import pytest

from aligntool.audit.judge import audit
from aligntool.inventory import Inventory
from aligntool.linux.files import write_snapshot
from aligntool.linux.look import look
from aligntool.linux.snapshot import collect
from aligntool.linux.sysfs import Tree
from aligntool.linux.system import find_distribution
from aligntool.raid.boot import system_file_text
from aligntool.raid.record import Record, save
from aligntool.system import System
from aligntool.units import GIB, MIB
from tests.audit.array_builders import finding_codes
from tests.conftest import run
from tests.linux.trees import MadeDisk, MadePartition, make_tree
from tests.raid.builders import ARRAY_UUID, drives, goal, planned
from tests.raid.initramfs_images import by_cpio

UUID = "01234567:89abcdef:01234567:89abcdef"
LINE = f"ARRAY /dev/md/secretname metadata=1.2 UUID={UUID} name=alice-pc:secretname"
FILES = {
    "etc/os-release": 'PRETTY_NAME="Alices Debian"\nID=debian\n',
    "etc/fstab": "# Alices\n/dev/md127 /home/alice/pics xfs noatime,user=alice 0 0\nUUID=aa-bb / ext4 defaults 0 1\n"
    "alice.example.org:/x /net nfs defaults 0 0\n/dev/mapper/vg--alice-lv /srv xfs nofail 0 0\n",
    "etc/mdadm/mdadm.conf": f"MAILADDR alice@example.org\nHOMEHOST <system>\n# Alices\n{LINE}\n",
    "etc/crypttab": "data /dev/md127 /etc/keys/alice luks\n",
    "proc/cmdline": f"quiet root=/dev/md127 rd.md.uuid={UUID} password=hush",
    "proc/sys/kernel/hostname": "alice-pc\n",
}
SECRETS = ("alice", "Alice", "secretname", "0123456789abcdef", UUID, "hush", "/etc/keys")


def machine(folder: Path, *, name: str = "alice-pc:secretname", **files: str | None) -> Path:
    md = MadeDisk(
        "md127", GIB, slaves=["sda1", "sdb1"], links=["md/secretname"],
        udev={"MD_NAME": name, "MD_UUID": UUID, "ID_FS_TYPE": "xfs"},
        attributes={"md/level": "raid1", "md/metadata_version": "1.2", "md/uuid": UUID.replace(":", "")},
    )  # fmt: skip
    drives = [MadeDisk(each, 8 * GIB, [MadePartition(1, MIB, GIB)]) for each in ("sda", "sdb")]
    root = make_tree(folder, [*drives, md])
    for path, text in ({**FILES, **{key.replace("__", "/"): value for key, value in files.items()}}).items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


def with_image(root: Path, files: dict[str, bytes], name: str = "initrd.img-6.1") -> Path:
    place = root / "packed"
    place.mkdir()
    (root / "boot").mkdir(exist_ok=True)
    (root / "boot" / name).write_bytes(by_cpio(place, files, compress="gzip").read_bytes())
    return root


def seen(root: Path) -> System:
    found = look([], sysroot=str(root)).system
    assert found is not None
    return found


def test_every_file_is_read_below_the_root(tmp_path: Path) -> None:
    found = seen(machine(tmp_path))
    assert (found.family, found.hostname) == ("debian", "alice-pc")
    assert [line.uuid for line in found.mdadm.arrays] == [UUID] and found.mdadm.homehost == "<system>"
    assert [line.spec for line in found.fstab] == [
        "/dev/md127",
        "UUID=aa-bb",
        "alice.example.org:/x",
        "/dev/mapper/vg--alice-lv",
    ]
    assert [line.spec for line in found.crypttab] == ["/dev/md127"]
    assert found.command_line == ("root=/dev/md127", f"rd.md.uuid={UUID}")
    assert found.initramfs == () and found.unfinished == ()


def test_without_an_array_files_are_read_only_of_a_whole_machine_that_names_one(tmp_path: Path) -> None:
    root = with_image(machine(tmp_path), {"sbin/mdadm": b"x"})
    assert seen(root).initramfs
    (root / "sys/devices/virtual/block/md127/md/level").write_text("")
    files = look([], sysroot=str(root)).system
    assert files is not None and files.mdadm.arrays and not files.initramfs
    (root / "etc/mdadm/mdadm.conf").write_text("HOMEHOST <system>\n")
    (root / "etc/fstab").write_text("UUID=aa-bb / ext4 defaults 0 1\n")
    assert look([], sysroot=str(root)).system is None
    assert look(["sda"], sysroot=str(machine(tmp_path / "two"))).system is None


def test_without_system_files_no_system_facts_are_known(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "etc/os-release").unlink()
    (root / "etc/fstab").unlink()
    assert look([], sysroot=str(root)).system is None


@pytest.mark.parametrize(
    ("family", "there", "files"),
    [
        ("debian", ["etc/mdadm/mdadm.conf", "etc/mdadm.conf"], ["/etc/mdadm/mdadm.conf"]),
        ("fedora", ["etc/mdadm/mdadm.conf", "etc/mdadm.conf"], ["/etc/mdadm.conf"]),
        ("debian", ["etc/mdadm.conf"], ["/etc/mdadm.conf"]),
        ("fedora", ["etc/mdadm.conf", *(f"etc/mdadm.conf.d/{name}" for name in ("x.conf", "x.bak", ".x.conf"))],
         ["/etc/mdadm.conf", "/etc/mdadm.conf.d/x.conf"]),
        ("debian", ["etc/mdadm/mdadm.conf", "etc/mdadm.conf.d/x.conf", "etc/mdadm/mdadm.conf.d/y.conf"],
         ["/etc/mdadm/mdadm.conf", "/etc/mdadm/mdadm.conf.d/y.conf"]),
        ("debian", ["etc/mdadm.conf.d/x.conf", "etc/mdadm/mdadm.conf.d/y.conf"], ["/etc/mdadm/mdadm.conf.d/y.conf"]),
        ("debian", [], []),
    ],
)  # fmt: skip
def test_mdadm_conf_is_read_from_the_paths_that_mdadm_reads(
    tmp_path: Path, family: str, there: list[str], files: list[str]
) -> None:
    root = machine(tmp_path, etc__mdadm__mdadm="")
    (root / "etc/mdadm/mdadm.conf").unlink()
    (root / "etc/os-release").write_text(f"ID={family}\n")
    for name in there:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(f"ARRAY /dev/md0 UUID={UUID}\n")
    assert list(seen(root).mdadm.files) == files


def test_a_config_file_that_cannot_be_read_differs_from_one_that_is_missing(tmp_path: Path) -> None:
    root = machine(tmp_path, etc__mdadm__mdadm="")
    file, folder = root / "etc/mdadm/mdadm.conf", root / "etc/mdadm/mdadm.conf.d"
    file.unlink()
    assert seen(root).mdadm.unread == ()
    os.mkfifo(file)
    (folder / "folder.conf").mkdir(parents=True)  # mdadm finds nothing in it
    (folder / "x.conf").symlink_to("nowhere")
    assert seen(root).mdadm.unread == ("/etc/mdadm/mdadm.conf",)


@pytest.mark.needs_tools("cpio", "gzip")
def test_images_are_found_where_boot_loaders_find_them(tmp_path: Path) -> None:
    inside = {"conf/initramfs.conf": b"", "sbin/mdadm": b"x", "etc/mdadm/mdadm.conf": LINE.encode()}
    root = with_image(machine(tmp_path), inside)
    image = (root / "boot/initrd.img-6.1").read_bytes()
    machine_id = "0123456789abcdef0123456789abcdef"
    more = (
        "boot/initramfs-6.2.img",
        "boot/initramfs-linux.img",
        f"efi/{machine_id}/6.3/initrd",
        "boot/initrd-6.4-default",
    )
    for name in (*more, "boot/initramfs-6.2kdump.img", "boot/initrd.img-6.1.old-dkms", "boot/vmlinuz-6.1",
                 "boot/initramfs-0-rescue-abc.img", "boot/initrd.img-6.0.bak"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(image)
    (root / "boot/initrd").symlink_to("initrd-6.4-default")
    found = seen(root).initramfs
    wanted = {"/boot/initrd.img-6.1", *(f"/{name}" for name in more)}
    assert {each.path for each in found} - {"/boot/initrd.img-6.1.old-dkms"} == wanted
    assert all(each.has_mdadm and each.conf and each.conf.arrays[0].uuid == UUID for each in found)


def test_links_in_a_hostile_tree_are_not_followed_outside(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "etc/fstab").unlink()
    (root / "etc/fstab").symlink_to("/" + "../" * 20 + "etc/hostname")
    (root / "boot").mkdir()
    (root / "boot/initrd.img-1").symlink_to("/dev/zero")
    found = seen(root)
    assert found.fstab == () and found.initramfs == ()


def record(root: Path, text: str) -> Path:
    folder = root / "var/lib/aligntool/arrays"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(text)
    return root


def test_a_record_that_cannot_be_read_is_still_reported(tmp_path: Path) -> None:
    (change,) = seen(record(machine(tmp_path), "{torn")).unfinished
    assert "cannot be read" in change.text and "/var/lib/aligntool/arrays/x.json" in change.text
    assert change.starts == ""


def test_the_record_of_a_creation_names_the_array_that_it_will_start_at_boot(tmp_path: Path) -> None:
    root = machine(tmp_path)
    folder = root / "var/lib/aligntool/arrays"
    folder.mkdir(parents=True)
    save(Record(folder / "x.json", planned(goal(), *drives(2)), position=2))
    (change,) = seen(root).unfinished
    assert change.starts == ARRAY_UUID
    assert "/dev/md/data: its creation is not finished, step 3 of" in change.text


def kept(root: Path, file: Path, *, serials: bool) -> Inventory:
    write_snapshot(str(file), list(collect(Tree(str(root)), serials=serials)))
    return look([], sysroot=str(file))


@pytest.mark.needs_tools("cpio", "gzip", "tar")
def test_a_snapshot_keeps_the_facts_for_the_findings_and_no_names(tmp_path: Path) -> None:
    inside = {"conf/initramfs.conf": b"", "sbin/mdadm": b"x", "etc/mdadm/mdadm.conf": f"# Alices\n{LINE}".encode()}
    root, file = with_image(machine(tmp_path / "tree"), inside), tmp_path / "masked.tar.gz"
    masked = kept(root, file, serials=False)
    found = masked.system
    assert found is not None and found.family == "debian" and not found.crypttab
    (disk,) = [disk for disk in masked.disks if disk.array]
    assert disk.array is not None and disk.array.uuid == found.mdadm.arrays[0].uuid != UUID
    assert found.initramfs[0].conf and found.initramfs[0].conf.arrays[0].uuid == disk.array.uuid
    assert (disk.array.name or "").partition(":")[0] == found.hostname
    assert finding_codes(audit(masked, {})) == finding_codes(
        audit(kept(root, tmp_path / "all.tar.gz", serials=True), {})
    )
    out = tmp_path / "out"
    out.mkdir()
    run("tar", "-xf", file, "-C", out)
    said = " ".join(f"{path} {path.read_text(errors='replace')}" for path in out.rglob("*") if path.is_file())
    said = said.replace(str(tmp_path), "")
    assert [secret for secret in SECRETS if secret in said.replace("-", "").replace(":", "") or secret in said] == []


def test_files_that_are_links_are_kept_under_the_path_of_the_link(tmp_path: Path) -> None:
    """Debian's /etc/os-release is a link to ../usr/lib/os-release, and some systems keep fstab elsewhere."""
    root = machine(tmp_path / "tree")
    for name, place in (("etc/os-release", "usr/lib/os-release"), ("etc/fstab", "keep/fstab")):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / name).rename(root / place)
        (root / name).symlink_to(f"../{place}")
    for serials in (True, False):
        found = kept(root, tmp_path / f"{serials}.tar.gz", serials=serials).system
        assert found is not None and found.family == "debian" and found.fstab


def test_a_foreign_array_is_also_foreign_in_a_snapshot(tmp_path: Path) -> None:
    for name, codes in (("alice-pc:data", {"AT611"}), ("other-pc:data", {"AT611", "AT614"}), ("any:data", {"AT611"})):
        root = machine(tmp_path / name.partition("-")[0], name=name, etc__mdadm__mdadm=None)
        (root / "etc/mdadm/mdadm.conf").write_text("MAILADDR root\n")
        masked = kept(root, tmp_path / f"{name}.tar.gz", serials=False)
        assert {code for code, _ in finding_codes(audit(masked, {}))} & {"AT611", "AT614"} == codes


@pytest.mark.needs_tools("systemctl")
def test_a_late_start_enabled_by_systemctl_is_found_here_and_in_a_snapshot(tmp_path: Path) -> None:
    root = machine(tmp_path / "tree")
    assert not seen(root).late_start and not kept_system(root, tmp_path / "without.tar.gz").late_start
    units = root / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "mdadm-late-start.timer").write_text(system_file_text("mdadm-late-start.timer"))
    assert not seen(root).late_start  # present, and not enabled
    run("systemctl", f"--root={root}", "enable", "mdadm-late-start.timer")
    assert seen(root).late_start and kept_system(root, tmp_path / "with.tar.gz").late_start


def kept_system(root: Path, file: Path) -> System:
    found = kept(root, file, serials=False).system
    assert found is not None
    return found


def test_this_machine_is_of_a_known_family_or_of_none() -> None:
    assert find_distribution() in ("debian", "debian-dracut", "fedora", "opensuse", "arch", None)
