"""kodoctl: message topologies on Apache Pulsar, declared, planned against the live cluster and applied as reviewed."""

__version__ = "0.1.0"
