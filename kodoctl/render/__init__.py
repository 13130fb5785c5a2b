"""Views for people and machines, drawn from JSON forms."""
