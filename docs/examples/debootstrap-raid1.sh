#!/bin/sh
# Installs Debian or Ubuntu on the array and the EFI system partition that `aligntool raid create --recipe
# raid1-system` has made on this system, and leaves it mounted at /mnt. As root:
# sh debootstrap-raid1.sh SUITE [PACKAGE,...]    such as: bookworm openssh-server,ifupdown,isc-dhcp-client
# KERNEL and COMPONENTS name others than those of the running distribution. Tried from Debian 12 with bookworm, trixie,
# and noble (KERNEL=linux-image-virtual COMPONENTS=main,universe; debootstrap has to know noble and its keyring).
set -eu
suite=${1:?the suite, such as bookworm}
# raid create wrote it here; the first of ESP_COPIES is the one that is mounted.
# shellcheck source=/dev/null
. /etc/default/esp-copies
esp=${ESP_COPIES%% *}
array=/dev/md/system
kernel=linux-image-amd64
components=main
if grep -qs '^ID=ubuntu$' /etc/os-release; then
    kernel=linux-generic
    components=main,universe
fi
base=${KERNEL:-$kernel},initramfs-tools,systemd-sysv,mdadm,grub-efi-amd64,dosfstools
mount -t ext4 "$array" /mnt
[ "$(ls -A /mnt)" = lost+found ] || { echo "$array, mounted at /mnt, is not empty" >&2; exit 1; }
debootstrap --components="${COMPONENTS:-$components}" --include="$base${2:+,$2}" "$suite" /mnt
cat > /mnt/etc/fstab <<END
UUID=$(blkid -s UUID -o value "$array") / ext4 noatime,errors=remount-ro 0 1
UUID=$esp /boot/efi vfat umask=0077,nofail 0 2
END
mkdir -p /mnt/boot/efi
mount "UUID=$esp" /mnt/boot/efi
for each in dev proc run sys; do mount --rbind --make-rslave "/$each" "/mnt/$each"; done
echo grub-efi-amd64 grub2/force_efi_extra_removable boolean true | chroot /mnt debconf-set-selections
# The path that firmware tries on every drive: Ubuntu's GRUB is put there without an option.
removable=$(chroot /mnt grub-install --help | grep -o -e --force-extra-removable || true)
chroot /mnt grub-install --target=x86_64-efi ${removable:+"$removable"} --no-nvram
chroot /mnt update-grub
echo "Installed at /mnt. No account has a password yet: chroot /mnt passwd"
