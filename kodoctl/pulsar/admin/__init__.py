"""The admin API of Pulsar: its port, its HTTP adapter, and single requests with one meaning."""
