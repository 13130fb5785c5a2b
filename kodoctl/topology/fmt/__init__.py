"""Format of topology files: one layout, every comment kept."""
