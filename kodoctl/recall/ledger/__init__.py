"""The ledger of a recall: which letters were to be sent, are stored or discarded, and recovery after a crash."""
