"""Conditions on dead letters: a part of SQL, read into a tree, and evaluated."""
