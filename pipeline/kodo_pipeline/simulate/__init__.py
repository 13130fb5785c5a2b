"""Simulation of a subscription's recorded arrivals under another topology."""
