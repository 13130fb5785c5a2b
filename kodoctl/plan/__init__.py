# pure: every branch is tested
"""Plan of changes: inventories, changes, order, danger, the plan file. Pure: no HTTP, no clock, no printing."""
