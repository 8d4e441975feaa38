"""Tests of aligntool/measure."""
