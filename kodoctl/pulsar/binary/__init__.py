"""The binary protocol of Pulsar: the client, readers of stored messages, and exclusive and numbered producers."""
