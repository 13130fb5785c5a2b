"""Command that serves the console: ui."""
