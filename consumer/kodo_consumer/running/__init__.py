"""Running of workers: one running worker, several consumers in a process, and groups of worker processes."""
