# adapter: reads the cluster
"""Plans of a live cluster: reads the files and the cluster, and asks the pure planner for the difference."""
