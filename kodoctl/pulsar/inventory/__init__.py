"""Readers of a cluster's objects: the live side of a plan, policies, and evidence before a delete."""
