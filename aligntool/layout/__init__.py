"""Plan and write new partition tables."""
