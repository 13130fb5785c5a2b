"""Simulation of a subscription's recorded arrivals under another topology, or in an outage (`pipeline lab`)."""
