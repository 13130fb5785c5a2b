# adapter: reads and writes the landing
"""The landing: the tables to which the pipeline writes messages, with their files and commits, and the options of
commands that read them.
"""
