"""Adapters: ports of the core on other people's libraries, one package each."""
