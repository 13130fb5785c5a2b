"""Pull requests of a forge (GitHub, GitLab): the comment that shows a plan, and the plan that was approved by a merge."""
