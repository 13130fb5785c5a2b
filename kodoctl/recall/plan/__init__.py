"""The plan of a recall or a replay: the choice of messages, their destinations and their order, frozen in a file."""
