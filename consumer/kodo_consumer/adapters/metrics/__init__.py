"""Metrics, health and dashboards of running workers, for Prometheus, probes and people. The modules read the state of
the workers and never change a decision.
"""
