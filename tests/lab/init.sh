#!/bin/sh
# The first program of a guest, instead of virtme-ng's own /init: it mounts the machine's tree, read-only and cached,
# below a copy-on-write layer in memory. Programs start several times faster than from an uncached share, and a guest
# may write anywhere. Then virtme-ng's init continues as usual.
mount -t proc none /proc
# shellcheck disable=SC2013 # split into words on purpose
for word in $(cat /proc/cmdline); do
    case $word in init=*) init=${word#init=} ;; esac
done
# shellcheck disable=SC1091 # virtme-ng writes it
. /modules/load_all.sh
insmod /modules/overlay.ko
mkdir /lower /upper
mount -t 9p -o ro,version=9p2000.L,trans=virtio,access=any,cache=loose,msize=524288 /dev/root /lower
mount -t tmpfs upper /upper
mkdir /upper/upper /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/upper,workdir=/upper/work root /newroot
mkdir -p /newroot/usr/lib/modules
# Creating temporary files as in a booting Debian is not needed here, and takes seconds.
/bin/busybox rm -f /newroot/usr/bin/systemd-tmpfiles
umount /proc
exec /bin/switch_root /newroot "$init"
