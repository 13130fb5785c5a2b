"""Dangers of a plan: one module for each family of refusals and warnings. Pure."""
