"""What makes an array come back after a reboot, for each family of distributions: files and commands, as data.

In: the word of a family. Out: where mdadm.conf lies, how the initramfs is built anew, and how it is asked what is in
it.
Alone because it is a table. Sources: Debian's mdadm (hooks/mdadm, mkconf), dracut's 90mdraid and 70mdraid
module-setup.sh,
Arch's mdadm_udev hook.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aligntool.plan import EditFile, RaidGoal, RunCommand

BACKUP = ".before-aligntool"


@dataclass(frozen=True, slots=True)
class System:
    word: str
    title: str
    mdadm_conf: str
    rebuild: tuple[str, ...]  # for every kernel that is installed
    show_conf: tuple[str, ...]  # prints the mdadm.conf that is inside
    note: str = ""  # what the user has to see to


_DEBIAN_SHOW = (
    'into=$(mktemp -d) && unmkinitramfs "/boot/initrd.img-$(uname -r)" "$into" '
    '&& find "$into" -path "*/etc/mdadm/mdadm.conf" -exec cat {} +; rm -r "$into"'
)

SYSTEMS = {
    system.word: system
    for system in (
        System(
            "debian", "Debian, Ubuntu", "/etc/mdadm/mdadm.conf", ("update-initramfs", "-u", "-k", "all"),
            ("sh", "-c", _DEBIAN_SHOW),
            "the initramfs finds arrays by itself only while mdadm.conf names none; from now on every array needs "
            "its line",
        ),
        System(
            "fedora", "Fedora, RHEL, CentOS", "/etc/mdadm.conf", ("dracut", "-f", "--regenerate-all"),
            ("lsinitrd", "-f", "etc/mdadm.conf"),
            "a root file system on the array also needs rd.md.uuid={uuid} on the kernel command line",
        ),
        System(
            "opensuse", "openSUSE, SLES", "/etc/mdadm.conf", ("dracut", "-f", "--regenerate-all"),
            ("lsinitrd", "-f", "etc/mdadm.conf"),
            "a root file system on the array also needs rd.md.uuid={uuid} on the kernel command line",
        ),
        System(
            "arch", "Arch Linux", "/etc/mdadm.conf", ("mkinitcpio", "-P"),
            ("sh", "-c", "lsinitcpio -x /boot/initramfs-linux.img etc/mdadm.conf && cat etc/mdadm.conf"),
            "mdadm_udev must stand before filesystems in HOOKS of /etc/mkinitcpio.conf",
        ),
    )
}  # fmt: skip


def array_line(goal: RaidGoal, device: str) -> str:
    """By UUID, with the name it shall have: mdadm.conf(5)."""
    return f"ARRAY {device} metadata={goal.metadata} UUID={goal.array_uuid}"


def persistence_steps(goal: RaidGoal, system: System, device: str) -> Iterator[EditFile | RunCommand]:
    """The array's line, into the file and into the initramfs; found there again."""
    key = f"UUID={goal.array_uuid}"
    yield EditFile(system.mdadm_conf, (array_line(goal, device),), key, system.mdadm_conf + BACKUP)
    yield RunCommand("build every initramfs anew", system.rebuild)
    yield RunCommand("look whether the array's line is inside", system.show_conf, goal.array_uuid)


def mount_steps(goal: RaidGoal, line: str, place: str) -> Iterator[EditFile | RunCommand]:
    """fstab, and the mount itself. `place` "": swap."""
    yield EditFile("/etc/fstab", (line,), f"UUID={goal.filesystem_uuid}", "/etc/fstab" + BACKUP)
    yield RunCommand("let systemd read fstab again", ("systemctl", "daemon-reload"))
    if goal.filesystem == "swap":
        yield RunCommand("switch the swap on", ("swapon", "-U", goal.filesystem_uuid))
        return
    yield RunCommand("make the place to mount at", ("mkdir", "-p", place))
    yield RunCommand("mount it as fstab says", ("mount", place))
