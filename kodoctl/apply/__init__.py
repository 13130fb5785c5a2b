"""Apply of a plan: carries out exactly the planned changes, and reads back each write."""
