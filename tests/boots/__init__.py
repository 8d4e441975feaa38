"""Whole PCs that boot from their own disks, before and after these are realigned."""
