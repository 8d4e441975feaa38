"""Handmade plans with every kind of step."""

from dataclasses import replace

from aligntool.change import ArrayPlan, Estimate, MovePlan, Place, TablePlan, Used
from aligntool.steps import (
    ApplySettings,
    BindMount,
    CheckArray,
    CheckContent,
    CheckInitramfs,
    CloseJournal,
    ConvertTable,
    CopyContent,
    CopyDisk,
    CopyStrips,
    DataArea,
    EditFile,
    EnableUnit,
    EntryChange,
    FormatDrive,
    FormatMember,
    HoldContent,
    JournalPlace,
    MakeArray,
    MakeDirectory,
    MakeFileSystem,
    MakeMember,
    MakeTable,
    Mount,
    NewEntry,
    ParkEntries,
    Patch,
    PrepareDirectory,
    PutBackMember,
    RebuildContent,
    RebuildInitramfs,
    ReencryptSectors,
    ReleaseContent,
    ReloadUnits,
    RewriteTable,
    SavedRanges,
    SetPartitionType,
    SettingChange,
    ShrinkContent,
    Subject,
    Swapon,
    Synchronise,
    TakeOutMember,
    WriteFile,
    WriteJournal,
)
from aligntool.units import GIB, KIB, MIB, Extent

SIZE = GIB
OLD, NEW = Extent(32256, 400 * MIB), Extent(MIB, 400 * MIB)
STAYS = Extent(402 * MIB, 200 * MIB)
CONTAINER = Extent(700 * MIB, 200 * MIB)
LOGICAL_OLD, LOGICAL_NEW = Extent(700 * MIB + 32256, 198 * MIB), Extent(701 * MIB, 198 * MIB)
HELD = SavedRanges((Extent(0, 131072), Extent(400 * MIB - 131072, 131072)))
JOURNAL = JournalPlace(Extent(980 * MIB, 44 * MIB), 4 * MIB, Extent(8 * MIB, 36 * MIB))

PLACES = (
    Place(1, OLD, NEW, 'ntfs "Windows XP"', "off 4KiB by 3584B"),
    Place(2, STAYS, STAYS, 'ext3 "linux"', "on the grid"),
    Place(3, CONTAINER, CONTAINER, "extended"),
    Place(5, LOGICAL_OLD, LOGICAL_NEW, "swap", "off 4KiB by 3584B"),
)

STEPS = (
    CheckContent(1, OLD, "ntfs"),
    ShrinkContent(2, STAYS, "ext3", 150 * MIB),
    WriteJournal(JOURNAL),
    ParkEntries((1, 5), (1, 3)),
    HoldContent(1, OLD, HELD),
    CopyContent(1, "ntfs", OLD, NEW, HELD, CopyStrips(MIB // 2, 32 * MIB, GIB, 36 * MIB)),
    ReleaseContent(
        1, "ntfs", NEW, HELD, (Patch("NTFS hidden sectors", 28, 4, 63, 2048), Patch("exFAT boot checksum", 5632, 512))
    ),
    RewriteTable("dos", (EntryChange(1, OLD, NEW), EntryChange(5, LOGICAL_OLD, LOGICAL_NEW, 700 * MIB, 700 * MIB))),
    CloseJournal(JOURNAL),
)

PLAN = MovePlan(
    "realign",
    Subject("old-disk.img", SIZE, 512, "dos", "0x2005c0de", None, None, None, "00"),
    "every start on 1MiB",
    PLACES,
    STEPS,
    ("Windows on an MBR disk remembers the byte where it starts: bootrec /rebuildbcd",),
    ("partition 2 is on the grid and stays",),
    Estimate(12345678, 130, (Used(1, 12345678, "partclone.ntfs"),)),
)

LAYOUT = TablePlan(
    "layout",
    Subject("/dev/sdz", SIZE, 512, None, None, "Model", "S3R1AL", None, "00"),
    "a new gpt table",
    (Place(1, None, Extent(MIB, 512 * MIB), "esp"),),
    (
        MakeTable(
            "gpt", (NewEntry(1, Extent(MIB, 512 * MIB), "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "boot"),), wipe=True
        ),
    ),
)

CONVERT = MovePlan(
    "convert",
    Subject("/dev/sdz", SIZE, 512, "gpt", None, "Model", "S3R1AL", None, "00"),
    "sectors of 4096 bytes",
    (),
    (
        RebuildContent(1, "vfat", STAYS, 4096, HELD),
        ConvertTable("gpt", (EntryChange(1, STAYS, STAYS),), (512, 4096)),
        CopyDisk(Subject("/dev/sdy", SIZE, 512, "gpt", None, None, None, None, "00"), 4096),
        ReencryptSectors(2, STAYS, "uuid", 512, 4096),
    ),
)

MEMBER = Subject("/dev/nvme0n1", SIZE, 512, None, None, "Model", "S3R1AL", "eui.0011", "00")
RAID_TYPE = "A19D880F-05FC-4D3B-A006-743F0F84911E"

ARRAY = ArrayPlan(
    "raid",
    Subject("/dev/md/data", SIZE, 512, None, None, None, None, None, "00"),
    "RAID1 of one drive",
    (),
    (
        MakeMember(
            MEMBER, "/dev/nvme0n1p1", "gpt", (NewEntry(1, Extent(MIB, 512 * MIB), RAID_TYPE, "data"),), wipe=True
        ),
        MakeArray(
            "/dev/md/data",
            "0:1:2:3",
            "data",
            ("/dev/nvme0n1p1",),
            "raid10",
            "n2",
            64 * KIB,
            "1.2",
            64 * MIB,
            DataArea(4 * MIB, 64 * MIB),
        ),
        SetPartitionType("/dev/nvme0n1", 1, RAID_TYPE),
        MakeFileSystem("/dev/md/data", "xfs", "uuid", ("-L", "my data")),
        RebuildInitramfs("initramfs-tools"),
        CheckInitramfs("initramfs-tools", "0:1:2:3"),
        EnableUnit("own.timer"),
        MakeDirectory("/srv/data"),
        Mount("/srv/data"),
        Swapon("uuid"),
        EditFile("/etc/fstab", ("UUID=uuid /srv/data xfs noatime 0 0",), "UUID=uuid", "/etc/fstab.before"),
        WriteFile("/etc/own.timer", ("[Unit]", "", "[Timer]"), "/etc/own.timer.before"),
        ReloadUnits(),
    ),
)

DIRECTORIES = ArrayPlan(
    "raid",
    ARRAY.disk,
    "directories of a new file system",
    (),
    (
        PrepareDirectory("/srv/data", "/srv/data", "root", "1000", "2770"),
        PrepareDirectory("/srv/data/kubelet", "/srv/data"),
        BindMount("/var/lib/kubelet", "/srv/data/kubelet", "/srv/data"),
        Synchronise("/dev/md/data"),
        ApplySettings("0:1:2:3", "/dev/md/data", (SettingChange("md/stripe_cache_size", "256", "4096"),)),
    ),
)

FORMAT = replace(ARRAY, steps=(FormatDrive(MEMBER, 1, 0, 512, 3, 4096), *ARRAY.steps))

REFORMAT = ArrayPlan(
    "reformat",
    ARRAY.disk,
    "logical blocks of 4096 bytes",
    (),
    (
        CheckArray("0:1:2:3", "/dev/md/data"),
        TakeOutMember("0:1:2:3", "/dev/md/data", "/dev/nvme0n1p1"),
        FormatMember(
            "0:1:2:3",
            "/dev/md/data",
            MEMBER,
            "/dev/nvme0n1p1",
            1,
            0,
            512,
            1,
            4096,
            (NewEntry(1, Extent(MIB, 512 * MIB), RAID_TYPE, "data"),),
            ("11111111-2222-4333-8444-555555555555",),
        ),
        PutBackMember("0:1:2:3", "/dev/md/data", "/dev/nvme0n1p1", 4096),
    ),
)
