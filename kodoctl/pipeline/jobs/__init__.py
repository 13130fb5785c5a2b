"""What commands of the pipeline do: they read and write, transforms compute."""
