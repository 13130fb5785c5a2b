"""Where workers remember what was done and what was started: a port, and one implementation for each kind of store."""
