"""Tests of creating arrays, as far as that is possible without md; tests/lab tests it with real arrays."""
