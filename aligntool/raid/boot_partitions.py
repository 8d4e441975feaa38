"""EFI system partitions on the drives of a system's array: made apart, and kept alike by the system itself.

In: the goal, and the drives as they are placed. Out: steps: a FAT on each drive, and a unit that copies the one that
is mounted to the others. Alone because firmware knows nothing of md: these are no part of the array, and something has
to keep them alike (docs/decisions/0021).
"""

from collections.abc import Iterator, Sequence

from aligntool.plan import EditFile, FileStep, MakeFileSystem, RaidGoal, RunCommand
from aligntool.raid.members import partition_node
from aligntool.raid.placing import Placed
from aligntool.raid.systems import BACKUP, own_file

UNIT = "esp-copies.service"
SCRIPT_FILE = "/usr/local/lib/esp-copies.sh"
LIST_FILE = "/etc/default/esp-copies"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"

# FAT keeps times of 2 s, and cp keeps them: what is newer in a copy was written there and nowhere else.
SCRIPT = """\
set -eu
# From aligntool: copies the EFI system partition that is mounted to the others of ESP_COPIES, as a whole.
# sh esp-copies.sh UUID copies that one, whatever the others hold.
. "${ESP_COPIES_FILE:-/etc/default/esp-copies}"
right=${1:-}
newest() { find "$1" -type f -printf '%T@\\n' | sort -n | tail -n 1; }
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
[ ! -e "$work/from/unfinished-copy" ] || stop "$right is an unfinished copy: sh $0 UUID of the one that is right"
[ -n "$(find "$work/from" -iname '*.efi')" ] || stop "$right has no boot loader: sh $0 UUID of the one that has"
for uuid in $ESP_COPIES; do
    [ "$uuid" != "$right" ] || continue
    device=$(blkid -U "$uuid") || { echo "$uuid is not there"; continue; }
    mount "$device" "$work/to"
    latest=$(newest "$work/from")
    if [ "$(listing "$work/from")" = "$(listing "$work/to")" ]; then
        echo "$uuid is the same as $right"
    elif [ $# = 0 ] && [ ! -e "$work/to/unfinished-copy" ] &&
        [ "$({ echo "$latest"; newest "$work/to"; } | sort -n | tail -n 1)" != "$latest" ]; then
        stop "$uuid has something newer than $right has: sh $0 UUID of the one that is right"
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
"""
# By the names that a mount of it has; those that are not there count for nothing: systemd.unit(5), After=.
UNIT_TEXT = f"""\
[Unit]
Description=Copy the EFI system partition that is mounted to those of the array's other drives
After=local-fs.target boot-efi.mount efi.mount boot.mount
[Service]
Type=oneshot
RemainAfterExit=yes
PrivateMounts=yes
ExecStart=/bin/sh {SCRIPT_FILE}
ExecStop=/bin/sh {SCRIPT_FILE}
[Install]
WantedBy=multi-user.target
"""


def has_boot_partitions(goal: RaidGoal, placed: Sequence[Placed]) -> bool:
    return bool(goal.esp_size and placed[0].entries)


def boot_volumes(goal: RaidGoal, placed: Sequence[Placed]) -> tuple[str, ...]:
    """The ids of their file systems, as blkid writes them, in the order of the drives: different ones."""
    first = int(goal.filesystem_uuid[:8], 16)
    ids = (f"{(first + index) % 2**32:08X}" for index in range(len(placed)))
    return tuple(f"{each[:4]}-{each[4:]}" for each in ids)


def boot_partition_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[MakeFileSystem]:
    """An EFI system partition on every drive, each a file system of its own with an id of its own."""
    if not has_boot_partitions(goal, placed):
        return
    for each, volume in zip(placed, boot_volumes(goal, placed), strict=True):
        device = partition_node(each.member.disk.path, 1)
        word = volume.replace("-", "").lower()
        yield MakeFileSystem(
            device, "vfat", volume, ("mkfs.fat", "-F", "32", "-n", "EFI", "-i", word, device)
        )


def boot_copy_steps(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[FileStep | RunCommand]:
    """What keeps them alike, in the files of the system that is copied onto the array."""
    if not has_boot_partitions(goal, placed):
        return
    listed = f'ESP_COPIES="{" ".join(boot_volumes(goal, placed))}"'
    yield EditFile(LIST_FILE, (listed,), "ESP_COPIES=", LIST_FILE + BACKUP)
    for file, text in ((SCRIPT_FILE, SCRIPT), (UNIT_FILE, UNIT_TEXT)):
        yield own_file(file, text)
    yield RunCommand("have them copied at every start and stop", ("systemctl", "enable", UNIT))


def boot_words(goal: RaidGoal, placed: Sequence[Placed]) -> Iterator[str]:
    """What the user has to see to."""
    if not has_boot_partitions(goal, placed):
        return
    yield (
        "the EFI system partitions are no part of the array: have the new system's fstab mount one of them "
        f"(UUID={boot_volumes(goal, placed)[0]} /boot/efi vfat umask=0077,nofail 0 2) and put the boot loader there; "
        f"{UNIT} copies it to the others at every start and stop, or when restarted; register each with efibootmgr "
        "where the firmware looks for no EFI/BOOT/BOOTX64.EFI; every step: docs/raid.md, A system on RAID1"
    )
