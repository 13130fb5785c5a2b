"""Protocol between producers, workers and recalls: properties, signatures, numbers, audit records."""
