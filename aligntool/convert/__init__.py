"""Convert a disk between sectors of 512 and 4096 bytes."""
