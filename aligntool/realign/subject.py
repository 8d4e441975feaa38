"""The name by which `realign` and `apply` know `plan.subject`: who a disk is, and whether it is still the same."""

from aligntool.plan.subject import is_same_disk, subject

__all__ = ["is_same_disk", "subject"]
