# Checks the kernels for which `dracut --regenerate-all` builds images. dracut includes mdadm.conf only in images for
# this machine (hostonly) or if configured (mdadmconf), and of these only in images with the mdraid module
# (90mdraid/module-setup.sh), with /etc/mdadm.conf.d. An image without the file contains no array, and the running
# system's file applies; an image with the file must contain the line. mdadm reads a UUID with other separators or in
# capitals, too (util.c, parse_uuid).
uuid=$(echo "$1" | sed "s/://g; s/./&[:. -]?/g");
for each in /lib/modules/*; do
    kernel=${each##*/};
    [ -e "$each/modules.dep" ] || [ -e "$each/modules.dep.bin" ] || continue;
    lsinitrd -k "$kernel" -m > /dev/null || { echo "the initramfs of $kernel cannot be read"; exit 1; };
    inside=$(for file in etc/mdadm.conf "etc/mdadm.conf.d/*.conf"; do lsinitrd -k "$kernel" -f "$file"; done);
    if [ -z "$inside" ]; then
        echo "$kernel: no mdadm.conf inside, $1 starts after the initramfs";
    elif printf "%s\n" "$inside" | grep -qiE "^[^#]*$uuid"; then
        echo "$kernel: $1 is inside";
    else
        echo "$kernel: the mdadm.conf inside has no line for $1";
        exit 1;
    fi;
done
