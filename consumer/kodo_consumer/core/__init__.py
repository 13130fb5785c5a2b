"""One worker: what it holds, what becomes of each message, and the threads around that."""
