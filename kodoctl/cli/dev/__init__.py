"""Commands for a laptop: the development broker, and contexts."""
