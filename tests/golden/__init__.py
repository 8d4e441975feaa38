"""Files of format version 1, which every later version of aligntool reads and writes back byte for byte."""
