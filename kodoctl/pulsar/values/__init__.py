# pure: every branch is tested
"""Values that a cluster holds, as they are read: live objects and facts about them, evidence, ledgers. Pure."""
