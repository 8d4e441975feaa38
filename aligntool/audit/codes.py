"""The finding codes: stable names, one rule each. What they mean stands in `explanations`; `aligntool explain
CODE` tells it.

Hundreds: 1 where a partition starts, 2 what a device says of itself, 3 partition tables, 4 the layers above, 5
drives and links, 9 what could not be seen. A code is never used again for something else.
"""

from enum import StrEnum


class Code(StrEnum):
    OFF_PHYSICAL = "AT101"
    OFF_PAGE = "AT102"
    OFF_ALLOCATION_UNIT = "AT103"
    OFF_CHUNK = "AT104"
    OFF_OPTIMAL_IO = "AT105"
    OFF_GRAIN = "AT106"
    END_UNALIGNED = "AT107"
    OFF_ERASE_BLOCK = "AT108"
    UNKNOWN_ALIGNMENT = "AT109"
    NOT_JUDGED = "AT110"

    STACK_CONFLICT = "AT201"
    BOGUS_OPTIMAL_IO = "AT202"
    SECTOR_SIZE_HIDDEN = "AT203"
    SECTOR_SIZE_ASSUMED = "AT204"
    BOGUS_MINIMUM_IO = "AT205"
    BETTER_LBA_FORMAT = "AT206"
    LARGE_UNIT = "AT207"
    SHIFTED_GRID = "AT208"
    SECTOR_SIZE_DISPUTED = "AT209"
    TABLE_TELLS_SECTOR_SIZE = "AT210"

    GPT_PRIMARY_DAMAGED = "AT301"
    GPT_BACKUP_DAMAGED = "AT302"
    OTHER_SECTOR_SIZE = "AT303"
    OVERLAP = "AT304"
    BEYOND_END = "AT305"
    EBR_CHAIN = "AT306"
    HYBRID_MBR = "AT307"
    KERNEL_DISAGREES = "AT308"
    BAD_ENTRY = "AT309"
    PROTECTIVE_MBR = "AT310"
    OUTSIDE_USABLE = "AT311"
    GPT_BACKUP_MISPLACED = "AT312"
    GPT_COPIES_DIFFER = "AT313"
    DYNAMIC_DISK = "AT314"
    FIRMWARE_RAID_MEMBER = "AT315"
    TABLE_UNREADABLE = "AT316"

    LAYER_OFF_PHYSICAL = "AT401"
    LAYER_OFF_PAGE = "AT402"
    CLUSTERS_OFF = "AT403"
    LAYER_OFF_CHUNK = "AT404"
    STRIPE_MISMATCH = "AT405"
    SMALL_BLOCKS = "AT406"
    LARGER_THAN_CONTAINER = "AT407"
    AMBIGUOUS_CONTENT = "AT408"
    DAMAGED_SUPERBLOCK = "AT409"

    LINK_DEGRADED = "AT501"
    SHARED_UPLINK = "AT502"
    BEHIND_CHIPSET = "AT503"
    REMAPPED_NVME = "AT504"
    BEHIND_VMD = "AT505"
    HMB_SHORT = "AT506"
    HMB_COVERAGE = "AT507"
    NO_QUEUE = "AT508"
    SLOW_SLOT = "AT509"
    DRIVE_NOTE = "AT510"

    NOT_SEEN = "AT901"
