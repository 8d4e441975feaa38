"""Tests of aligntool/convert."""
