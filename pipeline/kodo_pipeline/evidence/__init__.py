"""Evidence of audits: the read ranges and cursors of partitions, clocks, and workers that keep audit records."""
