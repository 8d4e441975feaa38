# lsinitcpio takes one image, which may be a unified kernel image, and unpacks all of it into the current folder
# (mkinitcpio, lsinitcpio). The images are those listed in the presets (bash files) for `mkinitcpio -P`. mdadm reads a
# UUID with other separators or in capitals, too (util.c, parse_uuid).
uuid=$(echo "$1" | sed 's/://g; s/./&[:. -]?/g');
into=$(mktemp -d) || exit;
trap 'rm -r "$into"' EXIT;
cd "$into" || exit;
for preset in "${MKINITCPIO_PRESETS:-/etc/mkinitcpio.d}"/*.preset; do
    (
        . "$preset";
        for name in "${PRESETS[@]}"; do
            image=${name}_image; uki=${name}_uki; old=${name}_efi_image;
            printf '%s\n' "${!image}" "${!uki:-${!old}}";
        done
    );
done | sed '/^$/d' | sort -u > images;
[ -s images ] || { echo no preset lists an image; exit 1; };
while read -r image; do
    mkdir inside;
    (cd inside && lsinitcpio -x "$image" > /dev/null) || exit;
    cat inside/etc/mdadm.conf || { echo "$image has no mdadm.conf: is mdadm_udev in HOOKS?"; exit 1; };
    grep -qiE "^[^#]*$uuid" inside/etc/mdadm.conf || { echo "$image has no line for $1"; exit 1; };
    rm -r inside;
done < images
