"""From files and a live cluster to a plan: reads both sides, and asks the pure planner for the difference."""
