"""Commands that show where messages are: status, exporter."""
