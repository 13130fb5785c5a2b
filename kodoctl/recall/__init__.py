# pure: every branch is tested
"""Dead letters chosen by a condition, frozen in a plan, and sent again exactly once: with Spark or without it."""
