"""What makes an array come back after a reboot, for each family of distributions: files and commands, as data.

In: the word of a family. Out: where mdadm.conf lies, how the initramfs is built anew, and how it is asked what is in
it.
Alone because it is a table. Sources: Debian's mdadm (hooks/mdadm, mkconf), dracut's 90mdraid and 70mdraid
module-setup.sh, Debian's dracut (conflicts with initramfs-tools, whose update-initramfs it does without), Arch's
mdadm_udev hook.
"""

from collections.abc import Iterable, Iterator
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

# dracut puts mdadm.conf into images for this machine alone (hostonly), and of those only where what it starts from is
# an array. Where it left the file out, the running system's file is what counts.
_DRACUT_SHOW = (
    "lsinitrd -m > /dev/null || exit 1; inside=$(lsinitrd -f etc/mdadm.conf); "
    'if [ -n "$inside" ]; then echo "$inside"; else cat {}; fi'
)
_DRACUT_NOTE = "a root file system on the array also needs rd.md.uuid={uuid} on the kernel command line"

# lsinitcpio takes one image, a unified kernel image, too, and unpacks all of it into the folder that it is run in
# (mkinitcpio, lsinitcpio). Which images there are is what the presets say that `mkinitcpio -P` builds, in bash.
_ARCH_SHOW = r"""into=$(mktemp -d) || exit
trap 'rm -r "$into"' EXIT
cd "$into" || exit
for preset in "${MKINITCPIO_PRESETS:-/etc/mkinitcpio.d}"/*.preset; do
  (. "$preset"; for name in "${PRESETS[@]}"; do
    image=${name}_image; uki=${name}_uki; old=${name}_efi_image; printf '%s\n' "${!image}" "${!uki:-${!old}}"
  done)
done | sed '/^$/d' | sort -u > images
[ -s images ] || { echo no preset names an image; exit 1; }
while read -r image; do
  mkdir inside; (cd inside && lsinitcpio -x "$image" > /dev/null) || exit
  cat inside/etc/mdadm.conf || { echo "$image has no mdadm.conf: is mdadm_udev in HOOKS?"; exit 1; }
  rm -r inside
done < images"""


def _by_dracut(word: str, title: str, conf: str) -> System:
    """dracut itself finds mdadm.conf in either place, and calls it etc/mdadm.conf inside."""
    rebuild = ("dracut", "-f", "--regenerate-all")
    return System(word, title, conf, rebuild, ("sh", "-c", _DRACUT_SHOW.format(conf)), _DRACUT_NOTE)


SYSTEMS = {
    system.word: system
    for system in (
        System(
            "debian", "Debian, Ubuntu", "/etc/mdadm/mdadm.conf", ("update-initramfs", "-u", "-k", "all"),
            ("sh", "-c", _DEBIAN_SHOW),
            "the initramfs finds arrays by itself only while mdadm.conf names none; from now on every array needs "
            "its line",
        ),
        _by_dracut("debian-dracut", "Debian, Ubuntu with dracut", "/etc/mdadm/mdadm.conf"),
        _by_dracut("fedora", "Fedora, RHEL, CentOS", "/etc/mdadm.conf"),
        _by_dracut("opensuse", "openSUSE, SLES", "/etc/mdadm.conf"),
        System(
            "arch", "Arch Linux", "/etc/mdadm.conf", ("mkinitcpio", "-P"),
            ("bash", "-c", _ARCH_SHOW),
            "mdadm_udev must stand before filesystems in HOOKS of /etc/mkinitcpio.conf",
        ),
    )
}  # fmt: skip


def array_line(goal: RaidGoal, device: str) -> str:
    """By UUID, with the name it shall have: mdadm.conf(5)."""
    return f"ARRAY {device} metadata={goal.metadata} UUID={goal.array_uuid}"


def persistence_steps(
    goal: RaidGoal, system: System, device: str, others: Iterable[EditFile] = ()
) -> Iterator[EditFile | RunCommand]:
    """The array's line, into the file and into the initramfs; found there again. `others`: lines that arrays which run
    already need from now on."""
    key = f"UUID={goal.array_uuid}"
    yield from others
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
