"""Plan and execute moves of partitions: places, order, journal."""
