"""Bytes <-> values: partition tables, file systems, RAID superblocks, identify data, config files. Pure."""
