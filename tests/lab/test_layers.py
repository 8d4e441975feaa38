"""LUKS2 with LVM in it gets larger sectors on a real kernel, through a power cut; what cannot have them is refused."""

import sys
from pathlib import Path

import pytest

from tests.lab.conftest import Lab
from tests.lab.drives import MIB, Scsi
from tests.lab.kernel import ROOT
from tests.thorough import when_thorough

pytestmark = [
    pytest.mark.needs_tools("qemu-system-x86_64", "busybox", "depmod", "cryptsetup", "pvcreate", "mke2fs", "mkfs.fat"),
    when_thorough("starts two guests, one of which is cut off"),
]
LIMIT_S = 900.0
BOTH = f"""
mkdir -p /lab/state /var/lib/aligntool
mount --bind /lab/state /var/lib/aligntool
modprobe -a dm_crypt sd_mod loop
udevadm settle
disk=/dev/$(lsblk -dno NAME,SERIAL | awk '$2 == "disk" {{print $1}}')
cd {ROOT}
aligntool() {{ {sys.executable} -m aligntool "$@"; }}
show() {{ vgchange -qq -ay vg; udevadm settle; mkdir -p /tmp/m; mount /dev/vg/files /tmp/m; }}
hide() {{ umount /tmp/m; vgchange -qq -an vg; udevadm settle; cryptsetup close layer; }}
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
head -c 100M /dev/urandom > /tmp/m/random
cp -r /usr/share/zoneinfo /tmp/m
(cd /tmp/m && find . -type f -exec sha256sum {} +) > /lab/before
hide
code=0
aligntool realign --layers -p 2 --yes --key-file /lab/key $disk 2> /lab/refused || code=$?
echo $code > /lab/refused.code
dmsetup ls > /lab/left
aligntool realign --layers -p 1 --yes --key-file /lab/key $disk > /lab/begin 2>&1 &
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
(cd /tmp/m && find . -type f -exec sha256sum {} +) > /lab/read
hide
"""
)


@pytest.fixture(scope="module")
def said(lab: Lab) -> Path:
    """The folder of two guests: one that was cut off in the middle, and one that went on."""
    guest = lab.guest(Scsi("disk", size=256 * MIB, physical=4096))
    guest.cut_off(BEGIN, limit_s=LIMIT_S)
    return guest.run(RESUME, limit_s=LIMIT_S)


def test_it_was_cut_in_the_middle(said: Path) -> None:
    midway = (said / "midway").read_text()
    assert "online-reencrypt" in midway
    assert "512 [bytes]" in midway
    assert "4096 [bytes]" in midway


def test_status_names_what_is_unfinished(said: Path) -> None:
    assert "encrypt the LUKS2 on partition 1 anew" in (said / "status").read_text()
    assert "No array is unfinished" in (said / "status.after").read_text()


def test_every_file_is_read_back_after_it_was_gone_on_with(said: Path) -> None:
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
