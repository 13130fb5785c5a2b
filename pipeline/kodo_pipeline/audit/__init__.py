"""The audit: proof of no loss from landed messages and audit records."""
