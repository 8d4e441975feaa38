"""Bootable disks: one by BIOS and GRUB in the MBR gap, one by UEFI from its ESP. Both begin off every grid.

It does what an installer does: a file tree becomes an image file. Nothing is moved here.
"""

from pathlib import Path

from aligntool.units import MIB
from tests.boots.system import ROOT_UUID, SWAP_UUID
from tests.conftest import run
from tests.mover.disks import place
from tests.mover.loop_mounts import mounted, partitioned

SECTOR = 512
ROOT_LENGTH = 900 * MIB + 7 * SECTOR
SWAP_LENGTH = 40 * MIB + 3 * SECTOR
ESP_LENGTH = 40 * MIB + 5 * SECTOR
FREE = 64 * MIB

LINUX_LINE = f"linux /vmlinuz root=UUID={ROOT_UUID} ro console=ttyS0 quiet"
GRUB = f"""serial --unit=0
terminal_input serial
terminal_output serial
set timeout=0
echo "GRUB found its menu"
search --no-floppy --fs-uuid --set=root {ROOT_UUID}
{LINUX_LINE}
initrd /initrd.img
boot
"""


def bios_disk(folder: Path, tree: Path) -> Path:
    """Make a disk: root at sector 63, swap directly behind it, GRUB's core image in the 62 sectors before."""
    disk = folder / "bios.img"
    root, swap = 63, 63 + ROOT_LENGTH // SECTOR
    empty(disk, (swap * SECTOR) + SWAP_LENGTH + FREE)
    table = f"label: dos\n{root},{ROOT_LENGTH // SECTOR},83,*\n{swap},{SWAP_LENGTH // SECTOR},82\n"
    run("sfdisk", "-q", disk, stdin=table)
    put_root(folder, tree, disk, root)
    _put_swap(folder, disk, swap)
    install_grub(disk)
    return disk


def install_grub(disk: Path) -> None:
    """Install GRUB into the MBR and the gap behind it, its modules into the first partition, which is an ext4."""
    with partitioned(disk) as device, mounted(Path(f"{device}p1"), "mount") as folder:
        modules = "--modules=biosdisk part_msdos ext2"
        run("grub-install", "--target=i386-pc", modules, f"--boot-directory={folder}/boot", device)


def uefi_disk(folder: Path, tree: Path) -> Path:
    """Make a disk with its ESP in the first sector that a GPT leaves, swap and root directly behind it."""
    disk = folder / "uefi.img"
    esp = 34
    swap = esp + ESP_LENGTH // SECTOR
    root = swap + SWAP_LENGTH // SECTOR
    empty(disk, root * SECTOR + ROOT_LENGTH + FREE)
    table = (
        "label: gpt\nfirst-lba: 34\n"
        f"{esp},{ESP_LENGTH // SECTOR},U\n{swap},{SWAP_LENGTH // SECTOR},S\n{root},{ROOT_LENGTH // SECTOR},L\n"
    )
    run("sfdisk", "-q", disk, stdin=table)
    _put_esp(folder, disk, esp)
    put_root(folder, tree, disk, root)
    _put_swap(folder, disk, swap)
    return disk


def aligned_uefi_disk(folder: Path, tree: Path, label: str = "gpt") -> Path:
    """Make a disk like a distribution's image: the ESP from 1 MiB, swap, and root up to the last sector that a GPT
    leaves.

    `label`: "gpt" or "dos", as in sfdisk.
    """
    disk = folder / "cloud.img"
    esp, swap = 2048, 2048 + 40 * MIB // SECTOR
    root = swap + 40 * MIB // SECTOR
    length = 900 * MIB // SECTOR - 33
    empty(disk, (root + length + 33) * SECTOR)
    table = f"label: {label}\n{esp},{swap - esp},U\n{swap},{root - swap},S\n{root},{length},L\n"
    run("sfdisk", "-q", disk, stdin=table)
    _put_esp(folder, disk, esp, 40 * MIB)
    put_root(folder, tree, disk, root, length=length * SECTOR)
    _put_swap(folder, disk, swap, 40 * MIB)
    return disk


def _put_esp(folder: Path, disk: Path, start: int, length: int = ESP_LENGTH) -> None:
    content, menu, program = (folder / name for name in ("esp", "grub.cfg", "bootx64.efi"))
    menu.write_text(GRUB)
    modules = "part_gpt part_msdos fat ext2 normal linux search search_fs_uuid serial terminal echo"
    run("grub-mkstandalone", "-O", "x86_64-efi", "-o", program, f"--modules={modules}", "--locales=", "--themes=",
        f"boot/grub/grub.cfg={menu}")  # fmt: skip
    empty(content, length)
    run("mkfs.fat", "-F", "32", "-s", "1", "-h", str(start), "-n", "ESP", content)
    run("mmd", "-i", content, "::EFI", "::EFI/BOOT")
    run("mcopy", "-i", content, program, "::EFI/BOOT/BOOTX64.EFI")
    _move_in(content, disk, start)


def put_root(
    folder: Path, tree: Path, disk: Path, start: int, *, length: int = ROOT_LENGTH, menu: str = GRUB,
    uuid: str = ROOT_UUID,
) -> None:  # fmt: skip
    """Write the tree as an ext4 of `length` bytes from sector `start`, with GRUB's menu."""
    content = folder / "root-content"
    grub = tree / "boot" / "grub"
    grub.mkdir(exist_ok=True)
    (grub / "grub.cfg").write_text(menu)
    empty(content, length)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-U", uuid, "-L", "root", "-d", tree, content)
    _move_in(content, disk, start)


def _put_swap(folder: Path, disk: Path, start: int, length: int = SWAP_LENGTH) -> None:
    content = folder / "swap-content"
    empty(content, length)
    run("mkswap", "-U", SWAP_UUID, content)
    _move_in(content, disk, start)


def empty(path: Path, size: int) -> None:
    """Make a new file of `size` bytes that is one hole."""
    with path.open("xb") as file:
        file.truncate(size)


def _move_in(content: Path, disk: Path, start: int) -> None:
    place(content, disk, start * SECTOR)
    content.unlink()
