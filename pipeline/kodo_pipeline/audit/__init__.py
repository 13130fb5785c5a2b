"""The audit: proves from landed messages and audit records that no message was lost, or names those that were."""
