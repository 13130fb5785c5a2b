"""The edge: `kodo-consumer`. One file a command group; each registers its commands in `main`."""
