"""Charts: the drawings that the report and the lab share, and the files that they are written to."""
