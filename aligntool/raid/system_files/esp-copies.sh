set -eu
# From aligntool: copies the whole content of the mounted EFI system partition to the others in ESP_COPIES.
# sh esp-copies.sh UUID copies the one with this UUID, even if others are newer.
# An id of a FAT is no proof: each must be the only device with its id, on a drive of the array ESP_ARRAY.
. "${ESP_COPIES_FILE:-/etc/default/esp-copies}"
sys=${ESP_COPIES_SYS:-/sys}
kind=${ESP_COPIES_TYPE:-vfat}
safe=nosuid,nodev,noexec
right=${1:-}
newest() { find "$1" -type f -printf '%T@\n' | sort -n | tail -n 1; }
listing() { (cd "$1" && find . -type d && find . -type f -exec cksum {} +) | sort; }
stop() { echo "$1" >&2; exit 1; }
find_device() {
    device=$(blkid -c /dev/null -t "UUID=$1" -o device) || device=
    [ "$(echo "$device" | wc -l)" = 1 ] || stop "$1 is on $(echo $device): detach all but the one of the array"
}
on_drive_of_array() {
    for part in $(lsblk -n -l -o NAME "/dev/$(lsblk -n -d -o PKNAME "$1")"); do
        if [ "$(blkid -p -s UUID -o value "/dev/$part")" = "$ESP_ARRAY" ]; then
            [ $# = 1 ] || [ -n "$(find "$sys/class/block/$part/holders" -name 'md*')" ] || continue
            return 0
        fi
    done
    return 1
}
[ -n "${ESP_ARRAY:-}" ] || stop "ESP_ARRAY is missing: it is the UUID that blkid shows for the members of the array"
if [ -z "$right" ]; then
    for uuid in $ESP_COPIES; do
        find_device "$uuid"
        [ -n "$device" ] && findmnt --source "$device" > /dev/null || continue
        [ -z "$right" ] || stop "$right and $uuid are both mounted; unmount the one that is a copy"
        right=$uuid
    done
    [ -n "$right" ] || { echo "none of $ESP_COPIES is mounted, so nothing is copied"; exit 0; }
    find_device "$right"
    on_drive_of_array "$device" running ||
        { echo "$right is mounted from $device, which is not on a drive of the running array: nothing is copied"; exit 0; }
fi
find_device "$right"
[ -n "$device" ] || stop "$right not found"
on_drive_of_array "$device" || stop "$right is on $device, which is not on a drive of the array: nothing is copied"
work=$(mktemp -d)
trap 'umount "$work"/* 2> /dev/null || :; rmdir "$work"/* "$work"' EXIT
mkdir "$work/from" "$work/to"
mount -t "$kind" -o $safe "$device" "$work/from"
mount -o remount,bind,ro,$safe "$work/from"
[ ! -e "$work/from/unfinished-copy" ] || stop "$right is an unfinished copy: run sh $0 with the UUID of a correct one"
[ -n "$(find "$work/from" -iname '*.efi')" ] || stop "$right has no boot loader: run sh $0 with the UUID of one that has"
for uuid in $ESP_COPIES; do
    [ "$uuid" != "$right" ] || continue
    find_device "$uuid"
    [ -n "$device" ] || { echo "$uuid not found"; continue; }
    on_drive_of_array "$device" || { echo "$uuid is on $device, which is not on a drive of the array"; continue; }
    mount -t "$kind" -o $safe "$device" "$work/to"
    latest=$(newest "$work/from")
    if [ "$(listing "$work/from")" = "$(listing "$work/to")" ]; then
        echo "$uuid is the same as $right"
    elif [ $# = 0 ] && [ ! -e "$work/to/unfinished-copy" ] &&
        [ "$({ echo "$latest"; newest "$work/to"; } | sort -n | tail -n 1)" != "$latest" ]; then
        stop "$uuid has newer files than $right: run sh $0 with the UUID of the correct one"
    else
        : > "$work/to/unfinished-copy"
        find "$work/to" -mindepth 1 ! -path "$work/to/unfinished-copy" -delete
        cp -r --preserve=timestamps "$work/from/." "$work/to/"
        sync -f "$work/to"
        rm "$work/to/unfinished-copy"
        echo "$uuid is a copy of $right"
    fi
    umount "$work/to"
done
exit 0
