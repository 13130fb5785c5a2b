"""State of kodoctl on the cluster: its control namespace, the leases and journals of applies, and live orders
(overrides).
"""
