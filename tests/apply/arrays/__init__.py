"""Tests of the walk that makes arrays, as far as a machine without md can try it; tests/lab proves the rest."""
