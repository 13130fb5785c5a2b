"""JSON Schema of the topology file, for editors."""
