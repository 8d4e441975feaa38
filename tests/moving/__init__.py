"""Real file systems on real tables, moved for real: what is there afterwards is asked of other programs."""
