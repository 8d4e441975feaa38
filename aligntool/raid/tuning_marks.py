"""How a test array of a sweep is known again: by md's name and UUID both.

In: a disk as it was looked at. Out: whether a sweep left a test array on it. Alone because everybody who refuses a
member should know one, and nobody else's array may ever be taken for one.
"""

from aligntool.inventory import Disk

TEST_NAME = "aligntool-tune"
TEST_UUID = "616c6967:6e74756e"  # "aligntun": the first half of every test array's UUID


def has_test_array(disk: Disk) -> bool:
    """A sweep left a test array on it, or on a partition of it; by md's name and UUID both."""
    layers = [*disk.content, *(layer for part in disk.partitions for layer in part.content)]
    return any(
        layer.kind == "linux_raid_member"
        and (layer.label or "").rpartition(":")[2] == TEST_NAME
        and (layer.uuid or "").replace("-", "").startswith(TEST_UUID.replace(":", ""))
        for layer in layers
    )
