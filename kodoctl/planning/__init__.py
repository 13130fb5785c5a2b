"""Planning: makes a plan from files and a live cluster. The package reads both sides and asks the pure planner
for the difference.
"""
