"""The plan of a recall: the choice of messages, their destinations and their order, frozen in a file."""
