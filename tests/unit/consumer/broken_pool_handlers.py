"""A module that cannot be imported where processes import it."""

from multiprocessing.process import parent_process

if parent_process() is not None:
    raise RuntimeError("no licence on this machine")


def handle(message: object) -> None:
    """Never reached there."""
