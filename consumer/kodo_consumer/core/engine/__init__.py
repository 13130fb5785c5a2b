"""The engine of a worker: events in, effects out, from the delivery of a message to its acknowledgement."""
