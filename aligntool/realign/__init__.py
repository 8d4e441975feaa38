"""Plan moves of partitions and conversions of tables, and apply them crash-safely."""
