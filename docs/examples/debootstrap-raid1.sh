#!/bin/sh
# Installs Debian 12 on the array and the EFI system partition that `aligntool raid create --recipe
# raid1-system` has made on this system, and leaves it mounted at /mnt. As root:
# sh debootstrap-raid1.sh SUITE [PACKAGE,...]    such as: bookworm openssh-server,ifupdown,isc-dhcp-client
# KERNEL names another kernel. Debian 13 and Ubuntu were not tried.
set -eu
suite=${1:?the suite, such as bookworm}
# raid create wrote it here; the first of ESP_COPIES is the one that is mounted.
# shellcheck source=/dev/null
. /etc/default/esp-copies
esp=${ESP_COPIES%% *}
array=/dev/md/system
base=${KERNEL:-linux-image-amd64},initramfs-tools,systemd-sysv,mdadm,grub-efi-amd64,dosfstools
mount -t ext4 "$array" /mnt
[ "$(ls -A /mnt)" = lost+found ] || { echo "$array, mounted at /mnt, is not empty" >&2; exit 1; }
debootstrap --include="$base${2:+,$2}" "$suite" /mnt
cat > /mnt/etc/fstab <<END
UUID=$(blkid -s UUID -o value "$array") / ext4 noatime,errors=remount-ro 0 1
UUID=$esp /boot/efi vfat umask=0077,nofail 0 2
END
mkdir -p /mnt/boot/efi
mount "UUID=$esp" /mnt/boot/efi
for each in dev proc run sys; do mount --rbind --make-rslave "/$each" "/mnt/$each"; done
echo grub-efi-amd64 grub2/force_efi_extra_removable boolean true | chroot /mnt debconf-set-selections
chroot /mnt grub-install --target=x86_64-efi --force-extra-removable --no-nvram
chroot /mnt update-grub
echo "Installed at /mnt. No account has a password yet: chroot /mnt passwd"
