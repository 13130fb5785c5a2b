"""YAML as a tree with positions, and errors with file, line and remedy."""
