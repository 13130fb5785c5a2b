# pure: every branch is tested
"""Protocol between producers, workers and recalls: properties, signatures, numbers, audit records."""
