"""The control namespace of kodoctl on the cluster: lease, journal, overrides."""
