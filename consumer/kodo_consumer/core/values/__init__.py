"""Values and ports of a worker: envelope, policy, outcomes and errors of handlers, clock, broker and store."""
