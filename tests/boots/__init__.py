"""Whole PCs that boot from their own disks, before and after those were realigned."""
