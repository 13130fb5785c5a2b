"""Compatibility of payload schemas: whether one version can read payloads of another."""
