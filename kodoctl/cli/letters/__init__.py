"""Commands on stored messages: peek, recall, waiting, replay."""
