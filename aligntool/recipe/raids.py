"""Recipes for arrays: level, chunk, file system and the rest, without a drive in them.

In: the top table of a file whose kind is "raid". Out: a RaidGoal. Alone because an array has more to say than a layout;
what a level and its members allow is judged where the plan is made.
"""

from aligntool.plan import RaidGoal
from aligntool.recipe.schema import Entry

LEVELS = ("raid0", "raid1", "raid10", "raid5", "raid6")
WORKLOADS = ("general", "boot", "database", "sequential", "lsm", "vm")
FILE_SYSTEMS = ("xfs", "ext4", "btrfs", "swap", "none")
NOWHERE = "none"
MEMBERS = ("new-partitions", "partitions", "whole-drives")
_SIZES = (
    "chunk", "database_page", "block_size", "inode_size", "log_size", "member_size", "spare_room", "esp_size",
)  # fmt: skip
_WORDS = (
    "level",
    "name",
    "workload",
    "layout",
    "bitmap",
    "metadata",
    "filesystem",
    "mount_at",
    "mount_options",
    "members",
)
RAID_KEYS = (*_WORDS, *_SIZES)


def raid_goal(top: Entry) -> RaidGoal:
    """Raises Refused for a value that is no size or none of the words."""
    top.required("level")
    usual = RaidGoal(level=top.choice("level", LEVELS) or "")
    sizes = {key: top.size(key) for key in _SIZES}
    options = top.texts("mount_options")
    return RaidGoal(
        level=usual.level,
        name=top.text("name") or usual.name,
        workload=top.choice("workload", WORKLOADS) or usual.workload,
        database_page=sizes["database_page"] or usual.database_page,
        chunk=sizes["chunk"],
        layout=top.text("layout"),
        bitmap=top.choice("bitmap", ("internal", "none")),
        metadata=top.choice("metadata", ("1.2", "1.0")) or usual.metadata,
        filesystem=top.choice("filesystem", FILE_SYSTEMS) or usual.filesystem,
        block_size=sizes["block_size"],
        inode_size=sizes["inode_size"],
        log_size=sizes["log_size"],
        mount_at="" if top.text("mount_at") == NOWHERE else top.text("mount_at"),
        mount_options=options or None,
        members=top.choice("members", MEMBERS) or usual.members,
        member_size=sizes["member_size"],
        spare_room=sizes["spare_room"],
        esp_size=sizes["esp_size"] or 0,
    )
