"""Limits: rates, quotas and caps, and the leases by which workers share them. No I/O, no thread."""
