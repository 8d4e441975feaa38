"""LUKS2 with LVM in it gets larger sectors on a real kernel, despite a power cut; unsupported layers are refused.
Segments of LVM that no move of their partition can align are moved by the commands in the plan.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Scsi
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "depmod", "cryptsetup", "pvcreate", "mke2fs", "mkfs.fat"),
    when_thorough("starts four guests, one of which is cut off"),
]
LIMIT_S = 900.0
BOTH = f"""
mkdir -p /lab/state /var/lib/aligntool
mount --bind /lab/state /var/lib/aligntool
modprobe -a dm_crypt sd_mod loop
udevadm settle
disk=/dev/$(lsblk -dno NAME,SERIAL | awk '$2 == "disk" {{print $1}}')
cd {ROOT}
python={sys.executable}
aligntool() {{ "$python" -m aligntool "$@"; }}
show() {{ vgchange -qq -ay vg; udevadm settle; mkdir -p /run/m; mount /dev/vg/files /run/m; }}
hide() {{ umount /run/m; vgchange -qq -an vg; udevadm settle; cryptsetup close layer; }}
"""
BEGIN = (
    BOTH
    + """
printf secret > /lab/key
printf 'label: gpt\\nsize=224MiB\\nsize=28MiB\\n' | sfdisk -q $disk
udevadm settle
for part in 1 2; do
    cryptsetup luksFormat -q --type luks2 --sector-size 512 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \
        --key-file /lab/key $disk$part
done
cryptsetup open --key-file /lab/key ${disk}2 layer
mkfs.fat /dev/mapper/layer
cryptsetup close layer
cryptsetup open --key-file /lab/key ${disk}1 layer
pvcreate -qq /dev/mapper/layer
vgcreate -qq vg /dev/mapper/layer
lvcreate -qq -W n -Z n -n files -l 100%FREE vg
mke2fs -q -t ext4 -b 4096 /dev/vg/files
show
head -c 100M /dev/urandom > /run/m/random
cp -r /usr/share/zoneinfo /run/m
(cd /run/m && find . -type f -exec sha256sum {} +) > /lab/before
hide
code=0
aligntool realign --layers -p 2 --yes --not-suspended --key-file /lab/key $disk 2> /lab/refused || code=$?
echo $code > /lab/refused.code
dmsetup ls > /lab/left
aligntool realign --layers -p 1 --yes --not-suspended --key-file /lab/key $disk > /lab/begin 2>&1 &
until cryptsetup luksDump ${disk}1 | grep -q online-reencrypt; do kill -0 $!; sleep 0.2; done
sleep 4
cryptsetup luksDump ${disk}1 > /lab/midway
touch /lab/cut
wait
"""
)
RESUME = (
    BOTH
    + """
aligntool audit $disk > /lab/audit || true
aligntool status > /lab/status
aligntool resume --yes --key-file /lab/key > /lab/resume 2>&1
cryptsetup luksDump ${disk}1 > /lab/after
aligntool status > /lab/status.after
cryptsetup open --key-file /lab/key ${disk}1 layer
show
blockdev --getss /dev/mapper/layer > /lab/sector
(cd /run/m && find . -type f -exec sha256sum {} +) > /lab/read
hide
"""
)
MOVE = (
    BOTH
    + f"""
other=/dev/$(lsblk -dno NAME,SERIAL | awk '$2 == "other" {{print $1}}')
printf 'label: gpt\\nsize=200MiB\\n' | sfdisk -q $disk
printf 'label: gpt\\nsize=200MiB\\n' | sfdisk -q $other
udevadm settle
pvcreate -qq ${{disk}}1 ${{other}}1
vgcreate -qq -s 2k vg ${{disk}}1 ${{other}}1
lvcreate -qq -an -W n -Z n -n first -l 1 vg ${{disk}}1
lvcreate -qq -W n -Z n -n files -L 100M vg ${{disk}}1
mke2fs -q -t ext4 -b 4096 /dev/vg/files
show
head -c 50M /dev/urandom > /run/m/random
sha256sum /run/m/random > /lab/sum.before
segments() {{ pvs --noheadings --nosuffix --units b --segments -o pv_name,pe_start,pvseg_start,lv_name; }}
segments > /lab/segments.before
aligntool plan realign -p 1 --json $disk > /lab/plan
commands=$({sys.executable} -c 'import json
print(*(note.partition("of the group: ")[2] for note in json.load(open("/lab/plan"))["plan"]["notes"]), sep="")')
echo "$commands" > /lab/commands
sudo() {{ "$@"; }}
eval "$commands"
segments > /lab/segments.after
sha256sum /run/m/random > /lab/sum.after
aligntool plan realign -p 1 --json $disk > /lab/plan.after
umount /run/m
e2fsck -fn /dev/vg/files
"""
)
ENCLOSE = (
    BOTH
    + """
printf secret > /lab/key
printf other > /lab/wrong
cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /lab/key $disk
inside() { cryptsetup open --key-file /lab/key $1 layer; mkdir -p /run/m; mount /dev/mapper/layer /run/m; }
outside() { umount /run/m; cryptsetup close layer; }
hashes() { (cd /run/m && find . -type f -exec sha256sum {} + | sort); }
cryptsetup open --key-file /lab/key $disk layer
mke2fs -q -t ext4 -b 4096 /dev/mapper/layer
cryptsetup close layer
inside $disk
head -c 60M /dev/urandom > /run/m/random
cp -r /usr/share/zoneinfo /run/m
hashes > /lab/before
outside
code=0
aligntool partition --yes --not-suspended --key-file /lab/wrong $disk 2> /lab/wrong.refused || code=$?
aligntool partition --yes $disk 2> /lab/keyless || code=$code$?
aligntool partition --yes --not-suspended --key-file /lab/key $disk 2> /lab/full || code=$code$?
echo $code > /lab/codes
dmsetup ls > /lab/left
command=$(sed -n 's/^  → //p' /lab/full)
echo "$command" > /lab/command
sudo() { "$@"; }
eval "printf secret | $command"
aligntool plan partition --key-file /lab/key -o /lab/plan $disk > /lab/planned
aligntool apply --yes --not-suspended /lab/plan < /dev/null 2> /lab/apply.keyless || echo $? >> /lab/codes
"$python" -m aligntool apply --yes --not-suspended --rate 20MiB --key-file /lab/key /lab/plan > /lab/begun 2>&1 &
begun=$!
while blkid -p $disk > /lab/seen; do kill -0 $begun; sleep 0.2; done
sleep 1
kill -9 $begun
aligntool status $disk > /lab/status
aligntool resume --yes $disk > /lab/resumed 2>&1 || { cat /lab/resumed; exit 1; }
udevadm settle
sfdisk --json $disk > /lab/table
inside ${disk}1
hashes > /lab/after
outside
cryptsetup open --key-file /lab/key ${disk}1 layer
e2fsck -fn /dev/mapper/layer
cryptsetup close layer
aligntool partition --undo --yes --not-suspended $disk > /lab/undone 2>&1
inside $disk
hashes > /lab/undone.after
outside
dmsetup ls >> /lab/left
"""
)


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    """Return the folder of two guests: one that was cut off in the middle, and one that resumed."""
    guest = lab.guest(Scsi("disk", size=256 * MIB, physical=4096))
    guest.cut_off(BEGIN, limit_s=LIMIT_S)
    return guest.run(RESUME, limit_s=LIMIT_S)


def test_the_reencryption_was_cut_in_the_middle(said: Path) -> None:
    midway = (said / "midway").read_text()
    assert "online-reencrypt" in midway
    assert "512 [bytes]" in midway
    assert "4096 [bytes]" in midway


def test_status_names_the_unfinished_reencryption(said: Path) -> None:
    assert "re-encrypt the LUKS2 volume on partition 1" in (said / "status").read_text()
    assert "no array is unfinished" in (said / "status.after").read_text()


def test_every_file_is_read_back_after_the_resume(said: Path) -> None:
    after = (said / "after").read_text()
    assert ("online-reencrypt" in after, "sector: 4096 [bytes]" in after) == (False, True), after
    assert (said / "sector").read_text().strip() == "4096"
    before = sorted((said / "before").read_text().splitlines())
    assert len(before) > 100
    assert sorted((said / "read").read_text().splitlines()) == before


def test_content_that_needs_small_sectors_is_refused_and_closed_again(said: Path) -> None:
    assert (said / "refused.code").read_text().strip() == "3"
    assert "FAT" in (said / "refused").read_text()
    assert "aligntool" not in (said / "left").read_text()


def test_the_commands_in_the_plan_align_misaligned_segments(lab: Lab) -> None:
    drives = (Scsi(serial, size=256 * MIB, physical=4096) for serial in ("disk", "other"))
    said = lab.run(*drives, script=MOVE, limit_s=LIMIT_S)
    assert (said / "commands").read_text().count("pvmove") == 1
    before, after = (_places(said / f"segments.{when}") for when in ("before", "after"))
    assert [place % 4096 for place in before] == [2048]
    assert after and not any(place % 4096 for place in after)
    assert (said / "sum.before").read_text() == (said / "sum.after").read_text()
    notes = json.loads((said / "plan.after").read_text())["plan"]["notes"]
    assert not any("pvmove" in note for note in notes)


def test_a_luks_on_a_whole_disk_is_moved_into_a_partition_and_back(lab: Lab) -> None:
    """Killed in the middle, and finished without the key."""
    said = lab.run(Scsi("disk", size=256 * MIB, physical=4096), script=ENCLOSE, limit_s=LIMIT_S)
    assert (said / "codes").read_text().split() == ["333", "3"]
    assert "cannot be opened to examine it" in (said / "wrong.refused").read_text()
    assert "--key-file FILE" in (said / "keyless").read_text()
    assert "there is no terminal to enter the passphrase" in (said / "apply.keyless").read_text()
    assert "aligntool" not in (said / "left").read_text()
    assert "resize2fs /dev/mapper/inside" in (said / "command").read_text()
    assert "in flight" in (said / "status").read_text()
    (part,) = json.loads((said / "table").read_text())["partitiontable"]["partitions"]
    assert part["start"] == 2048 and part["size"] < (256 - 1) * 2048
    before = (said / "before").read_text()
    assert len(before.splitlines()) > 100
    assert (said / "after").read_text() == before
    assert (said / "undone.after").read_text() == before


def _places(segments: Path) -> list[int]:
    """Return where the segments of the volume with files begin on their partition, as LVM reports it."""
    rows = (line.split() for line in segments.read_text().splitlines())
    return [int(row[1]) + 2048 * int(row[2]) for row in rows if row[3:] == ["files"]]
