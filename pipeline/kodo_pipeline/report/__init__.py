"""The report for people: one page from the documents of all other commands."""
