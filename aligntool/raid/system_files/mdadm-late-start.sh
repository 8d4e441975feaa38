# From aligntool: starts each array in mdadm.conf that is still inactive, without its missing drives.
for state in /sys/block/md*/md/array_state; do
    [ "$(cat "$state" 2> /dev/null)" = inactive ] || continue
    array=${state#/sys/block/}
    array=${array%%/*}
    for member in "/sys/block/$array/slaves/"*; do
        uuid=$(mdadm --examine --export "/dev/${member##*/}" | sed -n '/^MD_UUID=/{s///;s/://g;s/./&[:. -]?/g;p}')
        if [ -n "$uuid" ] && cat /etc/mdadm/mdadm.conf /etc/mdadm/mdadm.conf.d/*.conf /etc/mdadm.conf 2> /dev/null |
            grep -iE "^[^#]*$uuid" | grep -qv "<ignore>"; then
            mdadm --run "/dev/$array" || echo "/dev/$array has too many missing drives"
        fi
        break
    done
done
exit 0
