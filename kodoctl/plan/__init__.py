# pure: every branch is tested
"""Plan of changes: declared objects, their comparison with live ones, order, dangers, the plan file. Only the package
`live` reads a cluster or a clock.
"""
