"""Files of format version 1, which every later version of aligntool reads and writes again byte by byte."""
