"""Judge an inventory: verdicts on the starts of partitions, their cost, and findings. Pure: it reads no
machine.
"""
