"""Sending: connections to the cluster, senders for each level, numbered messages, receipts, reload of routes."""
