"""Compatibility of payload schemas: whether one version reads what another wrote."""
