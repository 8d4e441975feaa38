# `update-initramfs -u -k all` builds the images of all installed kernels (initramfs-tools, get_sorted_versions). An
# image whose kernel was removed is never booted, and is left as it is. mdadm reads a UUID with other separators or in
# capitals, too (util.c, parse_uuid).
uuid=$(echo "$1" | sed "s/://g; s/./&[:. -]?/g");
into=$(mktemp -d) || exit;
trap "rm -r $into" EXIT;
for image in /boot/initrd.img-*; do
    kernel=${image#*img-};
    [ -e "/boot/vmlinuz-$kernel" ] || [ -e "/boot/vmlinux-$kernel" ] || [ "$kernel" = "$(uname -r)" ] || continue;
    unmkinitramfs "$image" "$into/of" || exit;
    grep -rhiE --include=mdadm.conf "^[^#]*$uuid" "$into/of" || { echo "$image has no line for $1"; exit 1; };
    rm -r "$into/of";
done
