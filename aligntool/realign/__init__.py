"""Partitions: where they go, in which order, and the move itself with its journal."""
