"""Arrays made, gone on with, and taken back: a walk along the steps of an array's plan.

Every step tells from the world whether it is already done; a record under /var/lib/aligntool says how far the walk
came. docs/crash-safety.md, "Arrays", argues why that is enough.
"""
