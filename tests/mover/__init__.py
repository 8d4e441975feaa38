"""Real file systems on real tables, moved for real; other programs verify the result."""
