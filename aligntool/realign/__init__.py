"""Inventory + goal -> Plan: where partitions go, in which order, and what stands against it. Pure."""
