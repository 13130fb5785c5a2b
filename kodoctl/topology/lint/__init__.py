"""Lint: rules about a topology that is valid, and their suppressions."""
