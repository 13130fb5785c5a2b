"""What changes while a worker runs: live orders, the file, the numbers the cluster tells."""
