"""What other tools that make arrays do in the ten situations of docs/raid.md, on a Debian that boots.

    python -m tests.lab.peers_of_ensure FOLDER aligntool [eks=CHECKOUT] [azure=CHECKOUT] [ignition=PROGRAM] ...

The others' programs are not part of this repository: each is given as a path. FOLDER/TOOL.txt gets what was seen. What
a cloud has and this PC has not is put in place of it: links of udev and the model of the drives (RULES), and a unit
that runs setup-local-disks at each boot, as nodeadm-run.service does.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import run
from tests.lab import debian_tool
from tests.lab.debian_pc import DebianPC
from tests.lab.debian_variants import disk_for_peers
from tests.lab.drives import MIB, Nvme
from tests.lab.kernel import ROOT

SERIALS = ("store0", "store1", "store2")
SIZE = 640 * MIB
BY_ID = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_"
LATER = (
    ("3: drives kept", 2, ()),
    ("4: both blank", 2, SERIALS[:2]),
    ("5: one blank", 2, SERIALS[1:2]),
    ("6: one missing", 1, ()),
    ("7: one more", 3, ()),
)
STOPPED = re.compile(r"You are in emergency mode|Cannot open access to console")
RULES = r"""SUBSYSTEM!="block", GOTO="end"
ENV{ID_SERIAL_SHORT}!="store*", GOTO="end"
ENV{ID_MODEL_ENC}="Microsoft\x20NVMe\x20Direct\x20Disk\x20v2"
ENV{DEVTYPE}=="disk", SYMLINK+="disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_$env{ID_SERIAL_SHORT}"
ENV{DEVTYPE}=="partition", SYMLINK+="disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_$env{ID_SERIAL_SHORT}-part%n"
LABEL="end"
"""
UNIT_OF_EKS = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/bin/setup-local-disks raid0 --no-bind-mounts
[Install]
WantedBy=multi-user.target
"""
FILE_OF_ALIGNTOOL = """format = 1
kind = "ensure"
level = "raid0"
filesystem = "xfs"
mount_at = "/srv/scratch"
[drives]
select = "all-unused"
by_id = "nvme-*_store?"
at_least = 2
none = "nothing"
"""
# What Butane makes of `with_mount_unit: true`.
UNIT_OF_BUTANE = """[Unit]
Requires=systemd-fsck@dev-md-scratch.service
After=systemd-fsck@dev-md-scratch.service
[Mount]
Where=/srv/scratch
What=/dev/md/scratch
Type=xfs
[Install]
RequiredBy=local-fs.target
"""
CONFIG_OF_DISKO = """{ disko.devices = {
  disk = builtins.listToAttrs (map (name: { inherit name; value = {
    type = "disk"; device = "BY_ID${name}";
    content = { type = "gpt"; partitions.md = { size = "100%"; content = { type = "mdraid"; name = "scratch"; }; }; };
  }; }) [ "store0" "store1" ]);
  mdadm.scratch = { type = "mdadm"; level = 0;
    content = { type = "filesystem"; format = "xfs"; mountpoint = "/srv/scratch"; }; };
}; }""".replace("BY_ID", BY_ID)
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "roles": ["ansible-mdadm"],
        "vars": {
            "mdadm_arrays": [
                {
                    "name": "md0",
                    "devices": [f"{BY_ID}{serial}" for serial in SERIALS[:2]],
                    "level": "0",
                    "filesystem": "xfs",
                    "mountpoint": "/srv/scratch",
                    "state": "present",
                }
            ]
        },
    }
]
PEERS = "/opt/aligntool/peers"
NOFAIL = "sed -i '/scratch/s/defaults/defaults,nofail/' /etc/fstab"
STRICT = "sed -i '/scratch/s/,nofail//' /etc/fstab"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, as commands of the PC's shell. Its program is in PEERS."""

    put: Callable[[Path, str], None]  # puts the program into this folder, from the path that was given
    run: str
    mount: str = "/srv/scratch"
    set_up: str = "true"
    each_boot: str = ""  # the unit that runs it at each boot
    at_boot: str = "true"  # what the installed system has of it for later boots
    nofail: str = ""  # lets the PC start without the file system
    strict: str = ""  # undoes that


def _eks(folder: Path, checkout: str) -> None:
    shutil.copy(Path(checkout) / "templates/al2023/runtime/bin/setup-local-disks", folder)
    (folder / "peer.service").write_text(UNIT_OF_EKS)


def _azure(folder: Path, checkout: str) -> None:
    places = {"AZURE_EPHEMERAL_DISK_SETUP_CONF_INSTALL_DIR": "/etc", "AZURE_NVME_ID_INSTALL_DIR": "/usr/sbin"}
    for path in (Path(checkout) / "ephemeral-disk-setup").glob("azure-ephemeral-disk-setup*"):
        text = path.read_text()
        for name, place in places.items():
            text = text.replace(f"@{name}@", place)
        (folder / path.name).write_text(text)


def _ignition(folder: Path, program: str) -> None:
    shutil.copy(program, folder / "ignition")
    array = {"name": "scratch", "level": "raid0", "devices": [f"{BY_ID}{serial}" for serial in SERIALS[:2]]}
    system = {"device": "/dev/md/scratch", "format": "xfs", "path": "/srv/scratch", "wipeFilesystem": False}
    storage = {"raid": [array], "filesystems": [system]}
    (folder / "config.ign").write_text(json.dumps({"ignition": {"version": "3.4.0"}, "storage": storage}))
    (folder / "srv-scratch.mount").write_text(UNIT_OF_BUTANE)


def _disko(folder: Path, paths: str) -> None:
    checkout, library = (Path(path).resolve() for path in paths.split(","))
    words = f"""let disko = import {checkout} {{ lib = import {library}/lib; rootMountPoint = "/"; }};
      devices = {CONFIG_OF_DISKO}; in disko.create devices + disko.mount devices"""
    said = run("nix-instantiate", "--eval", "--strict", "--json", "--store", "dummy://", "-E", words)
    (folder / "format-mount").write_text("#!/bin/bash\n" + json.loads(said))


def _ansible(folder: Path, checkout: str) -> None:
    shutil.copytree(checkout, folder / "ansible-mdadm")
    (folder / "play.yml").write_text(json.dumps(PLAY))


def _aligntool(folder: Path, _: str) -> None:
    (folder / "scratch.toml").write_text(FILE_OF_ALIGNTOOL)
    shutil.copy(ROOT / "packaging/systemd/aligntool-ensure@.service", folder)


TOOLS = {
    "aligntool": Tool(
        _aligntool,
        "aligntool raid ensure --yes scratch",
        set_up=f"""cp -a /opt/aligntool /usr/local/lib/aligntool
printf '#!/bin/sh\\nPYTHONPATH=/usr/local/lib/aligntool/python exec python3 -m aligntool "$@"\\n' > /usr/bin/aligntool
chmod 755 /usr/bin/aligntool; rm /usr/local/bin/aligntool
cp {PEERS}/aligntool-ensure@.service /etc/systemd/system
mkdir -p /etc/aligntool/arrays.d; cp {PEERS}/scratch.toml /etc/aligntool/arrays.d""",
        each_boot="aligntool-ensure@scratch.service",
    ),
    "eks": Tool(
        _eks,
        "setup-local-disks raid0 --no-bind-mounts",
        mount="/mnt/k8s-disks/0",
        set_up=f"install {PEERS}/setup-local-disks /usr/bin; cp {PEERS}/peer.service /etc/systemd/system",
        each_boot="peer.service",
    ),
    "azure": Tool(
        _azure,
        "azure-ephemeral-disk-setup",
        mount="/mnt",
        set_up=f"""install {PEERS}/azure-ephemeral-disk-setup /usr/sbin
cp {PEERS}/*.conf /etc; cp {PEERS}/*.service /etc/systemd/system""",
        each_boot="azure-ephemeral-disk-setup.service",
    ),
    "ignition": Tool(
        _ignition,
        f"""{PEERS}/ignition --stage disks --platform metal --config-cache {PEERS}/config.ign --log-to-stdout &&
{{ cp {PEERS}/srv-scratch.mount /etc/systemd/system; systemctl daemon-reload
systemctl enable srv-scratch.mount; systemctl start srv-scratch.mount; }}""",
        nofail="systemctl disable srv-scratch.mount",
        strict="systemctl enable srv-scratch.mount",
    ),
    "disko": Tool(
        _disko,
        f"bash {PEERS}/format-mount",
        at_boot="echo '/dev/md/scratch /srv/scratch xfs defaults 0 2' >> /etc/fstab",
        nofail=NOFAIL,
        strict=STRICT,
    ),
    "ansible": Tool(
        _ansible,
        f"LC_ALL=C.UTF-8 ANSIBLE_ROLES_PATH={PEERS} ansible-playbook -i localhost, {PEERS}/play.yml",
        nofail=NOFAIL,
        strict=STRICT,
    ),
}
SET_UP = """set -e
cat > /etc/udev/rules.d/61-cloud.rules << 'END'
{rules}END
mkdir /root/pci
for drive in /sys/class/nvme/nvme*; do
  serial=$(echo $(cat $drive/serial))
  basename $(readlink -f $drive/device) > /root/pci/$serial
done
{set_up}
systemctl daemon-reload; udevadm control --reload; udevadm trigger; udevadm settle
tar -C / -cf /root/etc.tar etc
"""
FUNCTIONS = """
only() {
  for serial in store0 store1 store2; do
    address=$(cat /root/pci/$serial); driver=/sys/bus/pci/drivers/nvme
    case " $* " in
      *" $serial "*) [ -e $driver/$address ] || echo $address > $driver/bind;;
      *) [ ! -e $driver/$address ] || echo $address > $driver/unbind;;
    esac
  done
  sleep 2; udevadm settle
}
drive() {
  for drive in /sys/class/nvme/nvme*; do
    [ $(cat $drive/serial) != $1 ] || echo /dev/${drive##*/}n1
  done
}
stop() {
  umount -R MOUNT; umount MOUNT
  for array in /sys/block/md*; do [ ! -e $array ] || mdadm --stop /dev/${array##*/}; done
  udevadm settle
} 2> /dev/null
afresh() {
  stop; only store0 store1 store2; stop
  for serial in store0 store1 store2; do
    node=$(drive $serial); [ ! -e ${node}p1 ] || partx -d $node
    blkdiscard -f -z $node; udevadm trigger --settle $node
  done
  rm -rf /etc/systemd/system /etc/mdadm /.aws /run/ignition /var/lib/aligntool MOUNT/kept
  tar -C / -xf /root/etc.tar
  systemctl daemon-reload; systemctl reset-failed
} > /dev/null 2>&1
look() {
  finished=$(systemctl show --property=FinishTimestampMonotonic --value)
  echo "system: $(systemctl is-system-running), all units after $((finished / 1000000)) s"
  echo "failed: $(systemctl --failed --no-legend --plain | awk '{print $1}' | tr '\\n' ' ')"
  echo "mounted: $(findmnt --noheadings --output SOURCE,FSTYPE,UUID --mountpoint MOUNT)"
  echo "file: $(cat MOUNT/kept 2>&1)"
  grep ^md /proc/mdstat; ls /dev/md 2> /dev/null
  for node in /dev/nvme*n1 /dev/nvme*n1p1; do
    [ -e $node ] || continue
    echo $(cat /sys/class/block/${node##*/}/device/serial 2>/dev/null) "$node:" \
      "$(blkid -p -o value -s TYPE -s PTTYPE $node | tr '\\n' ' ')" \
      "$(mdadm --examine $node 2>/dev/null | sed -n 's/ *Array UUID : //p; s/ *Device Role : / /p' | tr '\\n' ' ')"
  done
  grep -h ^ARRAY /etc/mdadm/mdadm.conf /.aws/mdadm.conf 2>/dev/null
  grep -e MOUNT -e scratch /etc/fstab
}
"""


class PC(DebianPC):
    """A Debian that may stop in emergency mode."""

    def _check_on(self, until: float) -> None:
        if STOPPED.search(self.console):
            time.sleep(5)
            raise Emergency(self.console)
        super()._check_on(until)


class Emergency(Exception):
    """The boot stopped, and asks for a password at the console."""


class Observer:
    """A tool in a PC of its own, and the file that gets what was seen."""

    def __init__(self, tool: Tool, pc: PC, out: Path, numbers: Sequence[int]) -> None:
        self.tool = tool
        self.numbers = numbers
        self.pc = pc
        self.out = out

    def say(self, words: str) -> None:
        print(words, flush=True)
        with self.out.open("a") as file:
            file.write(f"{words}\n")

    def shell(self, script: str) -> str:
        functions = FUNCTIONS.replace("MOUNT", self.tool.mount)
        return self.pc.run(f"{functions}\n{script}", code=None).out

    def make(self, title: str) -> None:
        """Run the tool as a user would, and look."""
        self.say(f"--- {title}")
        began = time.monotonic()
        words = f"timeout 1700 bash -c {shlex.quote(self.tool.run)} < /dev/null > /tmp/said 2>&1; echo exit $?"
        self.say(self.shell(f"{words}; tail -n 25 /tmp/said; echo; udevadm settle; look"))
        self.say(f"({time.monotonic() - began:.0f} s)")

    def boot(self, title: str) -> bool:
        """Start the PC, and look; return whether it started."""
        self.say(f"--- {title}: boot")
        try:
            self.pc.start()
        except Emergency as stopped:
            self.say(f"EMERGENCY MODE\n{str(stopped)[-1500:]}")
            self.pc.cut()
            return False
        unit = self.tool.each_boot
        said = f"systemctl show --property=Result {unit}; journalctl -b -o cat -u {unit} | tail -n 60" if unit else ""
        self.say(self.shell(f"look\n{said}"))
        return True

    def all(self) -> None:
        self.pc.start()
        self.pc.run(SET_UP.format(rules=RULES, set_up=self.tool.set_up))
        if 9 in self.numbers:
            self.shell("only")
            self.make("9a: no drive")
            self.shell("afresh; only store0")
            self.make("9b: one drive")
        if 8 in self.numbers:
            self.foreign()
        if 10 in self.numbers:
            self.killed()
        self.shell("afresh; only store0 store1")
        self.make("1: two blank drives")
        self.say(self.shell(f"echo precious > {self.tool.mount}/kept; {self.tool.at_boot}; sync"))
        if 2 in self.numbers:
            self.make("2: again")
        if self.tool.each_boot:
            self.shell(f"systemctl enable {self.tool.each_boot}")
        self.shell(self.tool.nofail)
        self.pc.off()
        self.keep("nofail")
        if self.tool.strict:
            self.pc.drives = drives(2)
            self.pc.start()
            self.shell(self.tool.strict)
            self.pc.off()
        self.keep("strict")
        for title, number, blank in LATER:
            if int(title[0]) in self.numbers:
                self.later(title, number, blank)

    def foreign(self) -> None:
        fill = """afresh; only store0 store1; node=$(drive store1); mkfs.ext4 -q -F $node; mkdir -p /tmp/look
mount $node /tmp/look; echo theirs > /tmp/look/theirs; umount /tmp/look; udevadm trigger --settle $node"""
        self.shell(fill)
        self.make("8: a foreign file system on the second")
        self.say(self.shell("stop; mount -o ro $(drive store1) /tmp/look; cat /tmp/look/theirs; umount /tmp/look"))

    def killed(self) -> None:
        """Kill the tool in mkfs, and run it again."""
        hang = """afresh; only store0 store1
for name in mkfs.xfs mkfs.ext4; do
  path=$(readlink -f $(command -v $name)); echo $path > /tmp/$name.path; mv $path $path.kept
  printf '#!/bin/sh\\necho $$ > /tmp/reached\\nexec sleep 1000\\n' > $path; chmod 755 $path
done"""
        kill = """
for turn in $(seq 300); do [ -s /tmp/reached ] && break; sleep 1; done
kill -KILL -- -$group; kill -KILL $(cat /tmp/reached); sleep 2
for name in mkfs.xfs mkfs.ext4; do path=$(cat /tmp/$name.path); mv $path.kept $path; done; look"""
        begin = f"setsid bash -c {shlex.quote(self.tool.run)} < /dev/null > /tmp/said 2>&1 & group=$!"
        self.say(f"--- 10: killed in mkfs\n{self.shell(hang + chr(10) + begin + kill)}")
        self.make("10: run again")

    def keep(self, name: str) -> None:
        """Keep the disks of the PC, as they are after the array was made."""
        (self.pc.folder / name).mkdir()
        for path in (*self.pc.folder.glob("*.img"), *self.pc.folder.glob("*.qcow2")):
            run("cp", "--sparse=always", path, self.pc.folder / name)

    def later(self, title: str, number: int, blank: Sequence[str]) -> None:
        """Boot with this number of drives, some of them blank; if the boot stops, again with `nofail`."""
        self.pc.drives = drives(number)
        for name in ("strict", "nofail"):
            for path in (self.pc.folder / name).iterdir():
                run("cp", "--sparse=always", path, self.pc.folder)
            for serial in blank:
                (self.pc.folder / f"{serial}.img").unlink()
            if self.boot(title if name == "strict" else f"{title}, with nofail"):
                if not self.tool.each_boot:
                    self.make(title)
                self.pc.off()
                break
        if number == len(SERIALS):
            written = any((self.pc.folder / f"{SERIALS[-1]}.img").read_bytes())
            self.say(f"the third drive was {'WRITTEN' if written else 'not written'}")


def drives(number: int) -> tuple[Nvme, ...]:
    return tuple(Nvme(serial, SIZE) for serial in SERIALS[:number])


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=Path)
    words.add_argument("tools", nargs="+", metavar="TOOL[=PATH]", help=f"{', '.join(TOOLS)}")
    words.add_argument("--only", type=int, nargs="+", default=range(1, 11), metavar="N", help="only these situations")
    given = words.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for each in given.tools:
        name, _, path = each.partition("=")
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=given.folder) as folder:
            observe(name, path, Path(folder), given.folder / f"{name}.txt", given.only)
    return 0


def observe(name: str, path: str, folder: Path, out: Path, numbers: Sequence[int]) -> None:
    programs = folder / "peers"
    programs.mkdir()
    TOOLS[name].put(programs, path)
    image = debian_tool.image(folder)
    subprocess.run(("mksquashfs", programs, image, "-quiet", "-no-progress", "-keep-as-directory"), check=True)
    out.write_text("")
    pc = PC(folder, disk_for_peers(), image, drives(3))
    try:
        Observer(TOOLS[name], pc, out, numbers).all()
    finally:
        if pc.on:
            pc.cut()


if __name__ == "__main__":
    sys.exit(main())
