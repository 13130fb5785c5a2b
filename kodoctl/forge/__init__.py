"""Pull requests of a forge: the comment that shows a plan, and finding the approved plan after the merge."""
