"""Audit, realign and build storage so that every layer falls on the same grid."""

__version__ = "0.1.0+dev"
