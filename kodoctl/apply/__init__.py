"""Carries out a plan and verifies it. Decides nothing."""
