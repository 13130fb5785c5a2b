"""Common parts of commands: options, the target cluster, the terminal, git, files of plans."""
