"""YAML as a tree with positions, and errors that name file, line and remedy."""
