# pure: every branch is tested
"""Stored messages (dead, waiting, lost or handled ones) that are chosen by a condition, frozen in a plan, and sent
again exactly once, discarded, or delivered again: with Spark or without it.
"""
