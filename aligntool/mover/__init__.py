"""The engine that moves content in place and survives every interruption."""
