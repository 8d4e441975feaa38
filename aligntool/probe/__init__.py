"""THE MACHINE -> Inventory: the only folder that reads one. Nothing here is ever opened for writing."""
