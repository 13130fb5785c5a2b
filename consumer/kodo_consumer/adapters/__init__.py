"""Adapters: implementations of the core's ports by other people's libraries, one package for each library or purpose."""
