"""Pull requests: the comment that shows a plan, and the way back from a merge to the plan that was approved."""
