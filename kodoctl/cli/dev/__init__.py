"""Commands for a developer's machine: the development broker, and contexts."""
