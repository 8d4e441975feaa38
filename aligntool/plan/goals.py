"""What the user wants, before anybody has thought about how."""

from dataclasses import dataclass

from aligntool.units import KIB, MIB


@dataclass(frozen=True, slots=True)
class RealignGoal:
    """Every start on the disk's grids, and on `grain` where there is room."""

    partitions: tuple[int, ...] = ()  # none: every partition that is off the grid
    grain: int = MIB
    grain_given: bool = False  # the user (or a recipe) insists: a coarser or finer one is no answer
    shrink: bool = False  # file systems may be shrunk to make room
    journal_file: str | None = None
    least_start: int = 0  # no partition may begin before this byte; SD cards: 4 MiB


@dataclass(frozen=True, slots=True)
class PartWish:
    """One partition of a new layout."""

    size: int | None  # bytes; None: the rest
    role: str  # "esp", "linux", "swap", "linux-raid", "lvm", "home", "bios-boot", ...
    name: str = ""


@dataclass(frozen=True, slots=True)
class LayoutGoal:
    """A new table for an empty disk."""

    parts: tuple[PartWish, ...]
    label: str = "gpt"
    grain: int = MIB
    spare_end: int = 0  # bytes left free at the end
    wipe: bool = False


@dataclass(frozen=True, slots=True)
class RaidGoal:
    """An array of drives that are empty. None: what aligntool recommends. Sizes in bytes.

    The UUIDs are a part of the goal, so that the lines that name them are known before anything is made, and one goal
    makes one plan.
    """

    level: str  # "raid0", "raid1", "raid10", "raid5", "raid6"
    name: str = "data"
    workload: str = "general"
    database_page: int = 16 * KIB  # for the workload "database"
    chunk: int | None = None
    layout: str | None = None  # RAID10: "n2", "f2" ...; RAID5 and RAID6: "left-symmetric" ...
    bitmap: str | None = None  # "internal" or "none"
    metadata: str = "1.2"
    filesystem: str = "xfs"  # "ext4", "btrfs", "swap", "none"
    block_size: int | None = None  # of the file system
    inode_size: int | None = None
    log_size: int | None = None  # XFS
    mount_at: str | None = None  # None: /srv/NAME; "": nowhere
    mount_options: tuple[str, ...] | None = None
    members: str = (
        "new-partitions"  # a table is made on each drive; "whole-drives": none; "partitions": those named
    )
    member_size: int | None = None  # of each member partition; None: all there is
    spare_room: int | None = None  # left free at the end of each drive, for a smaller replacement
    esp_size: int = 0  # an EFI system partition of this size on every drive; 0: none
    partitions: tuple[
        int | None, ...
    ] = ()  # for each drive, the partition that is the member; None or (): the drive
    wipe: tuple[str, ...] = ()  # names of the drives and partitions whose content may be lost
    measured: str = ""  # the text of a result of `raid tune`; it counts where it is about this array
    system: str = "debian"  # whose files and commands make the array permanent
    array_uuid: str = "00000000:00000000:00000000:00000000"
    filesystem_uuid: str = "00000000-0000-0000-0000-000000000000"

    @property
    def whole_drives(self) -> bool:
        return self.members == "whole-drives"

    @property
    def place(self) -> str:
        """Where it is mounted; "": nowhere."""
        if self.filesystem in ("swap", "none"):
            return ""
        return f"/srv/{self.name}" if self.mount_at is None else self.mount_at
