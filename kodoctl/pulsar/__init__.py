"""The only package that talks to Pulsar: ports in our types, and their adapters."""
