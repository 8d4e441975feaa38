"""Arrays: which members, which chunk, which steps; and the steps applied."""
