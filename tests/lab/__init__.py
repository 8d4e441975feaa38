"""The lab: emulated PCs, for tests that need a real kernel.

Loop devices are enough for tables and file systems, but not for NVMe, PCIe, md, odd sector geometry or a reboot.
For those, QEMU emulates a PC that runs a Debian kernel. There are two kinds:

    guest.py        a PC that runs on this machine's own file tree (virtme-ng shares it, copy on write). It has
                    every program that is installed here and this checkout, runs one script and powers off.
    debian_pc.py    a PC that boots from its own disk, through GRUB, an initramfs and systemd, and can do so again.

Their components:

    drives.py       which drive is attached to which PCIe port: frozen values, converted to QEMU options
    emulator.py     a running QEMU: until it powers off, with a time limit, or until its power is cut
    kernel.py       Debian's kernel package, downloaded once into `.lab/` (git ignores it, `make clean` removes it)
    init.sh         the first program of a guest: the copy-on-write tree
    marks.py        what a test module needs, as pytest marks
    shell.py        `make lab`: the same PC with a shell for you

The PC with a system of its own:

    debian.py       its disk, installed once by debootstrap, with GRUB in the gap; kept in `.lab/`
    debian_tool.py  aligntool as it is in this checkout, as a second, read-only disk
    debian_agent.py QEMU's guest agent: runs a shell script inside, returns its output and its exit code
    system.py       what mdadm, sysfs, blkid and findmnt report of an array there
    array_cases.py  the arrays that are made, and the values in their plans

The fixture `debian` makes such PCs, each on an overlay of the one disk: what one start writes the next one sees, and
`cut` cuts the power at any moment.

The fixture `said` is one guest that several test modules read, each of which names its part PART:

    in_guest.py          the program in the guest: loads aligntool once, runs the parts that this session's tests need
    reference_tools.py   a part: what the kernel, parted, nvme, lspci and aligntool report of odd disks and PCIe links
    odd_disks.py         these disks and links, as values
    reference_output.py  parses what was reported about them
    trace_recordings.py  a part: recordings of a drive while dd, fio, signals or another trace are active
    old_arrays.py        a part: arrays created over earlier arrays
    ansible_arrays.py    a part: arrays created by ansible-playbook

Starting a guest and aligntool in it takes most of a minute under software emulation, so a new test becomes a part: a
function `main` that writes the output of programs to /lab, and tests that check it. Only a test that disturbs the guest
for others, or takes long, starts one of its own:

    @pytest.fixture(scope="module")
    def listed(lab: Lab) -> Path:
        return lab.run(Nvme(serial="a"), Nvme(serial="b", block=4096), script="nvme list -o json > /lab/list.json")

    def test_two_drives_are_there(listed: Path) -> None:
        assert len(json.loads((listed / "list.json").read_text())["Devices"]) == 2

When a script fails or the guest hangs, the test fails with the whole output of the console. Timings in here mean
nothing: the processor is emulated.
"""
