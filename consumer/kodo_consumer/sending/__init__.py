"""Sending: the cluster that a process reaches, levels of a producer, numbered messages, receipts, reload of routes."""
