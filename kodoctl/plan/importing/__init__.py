"""Import of a live namespace: families of topics found in it, and the file that declares them. Pure."""
