"""The machine that a command runs on: facts about it, folders of the user, private files, programs, the server of metrics."""
