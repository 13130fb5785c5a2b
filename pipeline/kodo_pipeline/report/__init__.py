"""The report for people: one page made of the JSON documents of audit and rollup."""
