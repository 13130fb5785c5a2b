"""Charts: style and files of the drawings of a report and of the lab."""
