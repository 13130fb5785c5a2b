"""Tests are never timed: a slow machine is no mistake of ours."""

from hypothesis import settings

settings.register_profile("topology", deadline=None)
settings.load_profile("topology")
