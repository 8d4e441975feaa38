"""What makes an array come back after a reboot, for each family of distributions: files and commands, as data.

In: the word of a family. Out: where mdadm.conf lies, how the initramfs is built anew, and how it is asked what is in
it.
Alone because it is a table. Sources: Debian's mdadm (hooks/mdadm, mkconf), dracut's 90mdraid and 70mdraid
module-setup.sh, Debian's dracut (conflicts with initramfs-tools, whose update-initramfs it does without), Arch's
mdadm_udev hook.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aligntool.plan import EditFile, RaidGoal, RunCommand, WriteFile

BACKUP = ".before-aligntool"


@dataclass(frozen=True, slots=True)
class System:
    word: str
    title: str
    mdadm_conf: str
    rebuild: tuple[str, ...]  # for every kernel that is installed
    show_conf: tuple[str, ...]  # with a UUID behind it: prints that, or fails where an initramfs lacks it
    note: str = ""  # what the user has to see to
    look: str = "look whether the array's line is inside every initramfs"

    def look_inside(self, uuid: str) -> RunCommand:
        """Whether the array of that UUID has its line in every initramfs that is to have it."""
        return RunCommand(self.look, (*self.show_conf, uuid), uuid)


# `update-initramfs -u -k all` makes those of every kernel that is installed (initramfs-tools, get_sorted_versions). An
# image whose kernel is gone starts nothing, and stays as it was.
_DEBIAN_SHOW = (
    'into=$(mktemp -d) || exit; trap "rm -r $into" EXIT; for image in /boot/initrd.img-*; do kernel=${image#*img-}; '
    '[ -e "/boot/vmlinuz-$kernel" ] || [ -e "/boot/vmlinux-$kernel" ] || [ "$kernel" = "$(uname -r)" ] || continue; '
    'unmkinitramfs "$image" "$into/of" || exit; grep -rh --include=mdadm.conf "^[^#]*$1" "$into/of" || '
    '{ echo "$image has no line of $1"; exit 1; }; rm -r "$into/of"; done'
)

# For the kernels that `dracut --regenerate-all` makes images for. dracut puts mdadm.conf only into images for this
# machine (hostonly) or where it is told to (mdadmconf), and of those only where mdraid is a part of the image
# (90mdraid/module-setup.sh). An image without the file knows of no array, and the running system's file counts; one
# with the file must have the line.
_DRACUT_SHOW = (
    "for each in /lib/modules/*; do kernel=${each##*/}; "
    '[ -e "$each/modules.dep" ] || [ -e "$each/modules.dep.bin" ] || continue; '
    'lsinitrd -k "$kernel" -m > /dev/null || { echo "the initramfs of $kernel cannot be read"; exit 1; }; '
    'inside=$(lsinitrd -k "$kernel" -f etc/mdadm.conf); '
    'if [ -z "$inside" ]; then echo "$kernel: no mdadm.conf inside, $1 comes up after the initramfs"; '
    'elif printf "%s\\n" "$inside" | grep -q "^[^#]*$1"; then echo "$kernel: $1 is inside"; '
    'else echo "$kernel: the mdadm.conf inside has no line of $1"; exit 1; fi; done'
)
_DRACUT_LOOK = "look whether the array's line is inside every initramfs that has an mdadm.conf"
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
  grep -q "^[^#]*$1" inside/etc/mdadm.conf || { echo "$image has no line of $1"; exit 1; }
  rm -r inside
done < images"""


def _by_dracut(word: str, title: str, conf: str) -> System:
    """dracut itself finds mdadm.conf in either place, and calls it etc/mdadm.conf inside."""
    rebuild = ("dracut", "-f", "--regenerate-all")
    return System(word, title, conf, rebuild, ("sh", "-c", _DRACUT_SHOW, "sh"), _DRACUT_NOTE, _DRACUT_LOOK)


SYSTEMS = {
    system.word: system
    for system in (
        System(
            "debian", "Debian, Ubuntu", "/etc/mdadm/mdadm.conf", ("update-initramfs", "-u", "-k", "all"),
            ("sh", "-c", _DEBIAN_SHOW, "sh"),
            "the initramfs finds arrays by itself only while mdadm.conf names none; from now on every array needs "
            "its line",
        ),
        _by_dracut("debian-dracut", "Debian, Ubuntu with dracut", "/etc/mdadm/mdadm.conf"),
        _by_dracut("fedora", "Fedora, RHEL, CentOS", "/etc/mdadm.conf"),
        _by_dracut("opensuse", "openSUSE, SLES", "/etc/mdadm.conf"),
        System(
            "arch", "Arch Linux", "/etc/mdadm.conf", ("mkinitcpio", "-P"),
            ("bash", "-c", _ARCH_SHOW, "bash"),
            "mdadm_udev must stand before filesystems in HOOKS of /etc/mkinitcpio.conf",
        ),
    )
}  # fmt: skip


def own_file(path: str, text: str) -> WriteFile:
    """Return the step that writes one of aligntool's own files."""
    return WriteFile(path, tuple(text.splitlines()), path + BACKUP)


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
    yield system.look_inside(goal.array_uuid)


def mount_steps(goal: RaidGoal, line: str, place: str) -> Iterator[EditFile | RunCommand]:
    """fstab, and the mount itself. `place` "": swap."""
    yield EditFile("/etc/fstab", (line,), f"UUID={goal.filesystem_uuid}", "/etc/fstab" + BACKUP)
    yield RunCommand("let systemd read fstab again", ("systemctl", "daemon-reload"))
    if goal.filesystem == "swap":
        yield RunCommand("switch the swap on", ("swapon", "-U", goal.filesystem_uuid))
        return
    yield RunCommand("make the place to mount at", ("mkdir", "-p", place))
    yield RunCommand("mount it as fstab says", ("mount", place))
