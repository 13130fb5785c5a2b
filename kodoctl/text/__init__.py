# pure: every branch is tested
"""Text for people and for other programs: escaping, numbers, sizes and times, lines and their folding. Pure."""
