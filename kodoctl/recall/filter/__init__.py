"""Conditions on dead letters: a part of SQL, read into a tree, evaluated here or translated to Spark SQL."""
