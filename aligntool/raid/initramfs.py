"""The programs that build initramfs images, and how each shows the arrays inside."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Maker:
    """A program that builds initramfs images."""

    rebuild: tuple[str, ...]  # the command that builds those of all installed kernels
    check: tuple[str, ...]  # with a UUID behind it: prints the array's line, or fails where an initramfs lacks it
    programs: tuple[str, ...]  # that `check` runs
    where: str  # which images have to have the line


MAKERS = {
    "initramfs-tools": Maker(
        ("update-initramfs", "-u", "-k", "all"), ("sh", "-c", _DEBIAN_SHOW, "sh"), ("sh", "unmkinitramfs"),
        "every initramfs",
    ),
    "dracut": Maker(
        ("dracut", "-f", "--regenerate-all"), ("sh", "-c", _DRACUT_SHOW, "sh"), ("sh", "lsinitrd"),
        "every initramfs that has an mdadm.conf",
    ),
    "mkinitcpio": Maker(
        ("mkinitcpio", "-P"), ("bash", "-c", _ARCH_SHOW, "bash"), ("bash", "lsinitcpio"), "every initramfs"
    ),
}  # fmt: skip
