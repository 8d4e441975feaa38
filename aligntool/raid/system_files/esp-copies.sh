set -eu
# From aligntool: copies the whole content of the mounted EFI system partition to the others in ESP_COPIES.
# sh esp-copies.sh UUID copies the one with this UUID, even if others are newer.
. "${ESP_COPIES_FILE:-/etc/default/esp-copies}"
right=${1:-}
newest() { find "$1" -type f -printf '%T@\n' | sort -n | tail -n 1; }
listing() { (cd "$1" && find . -type d && find . -type f -exec cksum {} +) | sort; }
stop() { echo "$1" >&2; exit 1; }
if [ -z "$right" ]; then
    for uuid in $ESP_COPIES; do
        device=$(blkid -U "$uuid") && findmnt --source "$device" > /dev/null || continue
        [ -z "$right" ] || stop "$right and $uuid are both mounted; unmount the one that is a copy"
        right=$uuid
    done
fi
[ -n "$right" ] || { echo "none of $ESP_COPIES is mounted, so nothing is copied"; exit 0; }
work=$(mktemp -d)
trap 'umount "$work"/* 2> /dev/null || :; rmdir "$work"/* "$work"' EXIT
mkdir "$work/from" "$work/to"
mount "$(blkid -U "$right")" "$work/from"
[ ! -e "$work/from/unfinished-copy" ] || stop "$right is an unfinished copy: run sh $0 with the UUID of a correct one"
[ -n "$(find "$work/from" -iname '*.efi')" ] || stop "$right has no boot loader: run sh $0 with the UUID of one that has"
for uuid in $ESP_COPIES; do
    [ "$uuid" != "$right" ] || continue
    device=$(blkid -U "$uuid") || { echo "$uuid not found"; continue; }
    mount "$device" "$work/to"
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
