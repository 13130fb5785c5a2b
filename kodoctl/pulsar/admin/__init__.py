"""The admin API of Pulsar: its port (interface), its HTTP adapter, and functions that each send one kind of request."""
