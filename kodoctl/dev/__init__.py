"""Development brokers of `kodoctl dev`: a standalone Pulsar or a cluster on this machine."""
