"""Metrics, health and dashboards of running workers, for readers outside. Reads the workers; decides nothing."""
