"""Simulation: replays recorded traffic through the workers of a topology file, in virtual time."""
