# pure: every branch is tested
"""Plan of changes: declared objects, changes, order, danger, the plan file. Pure but for `live`: no HTTP, no clock."""
