"""The ledger of a recall: what was meant, stored and acknowledged, and recovery after a crash."""
