"""Commands on stored messages: recall, waiting, peek."""
