"""Views for people and programs, rendered from JSON forms."""
