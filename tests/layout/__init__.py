"""Tests of aligntool/layout."""
