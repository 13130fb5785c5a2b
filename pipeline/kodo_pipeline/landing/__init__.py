# adapter: reads and writes the landing
"""The landing: its tables, their files and commits, and the options of commands that read it."""
