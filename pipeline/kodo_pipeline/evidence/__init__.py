"""Evidence of audits: partitions as they were read, cursors, clocks, and workers that keep records."""
