"""Pull requests of a forge (GitHub): the comment that shows a plan, and the plan that was approved by a merge."""
