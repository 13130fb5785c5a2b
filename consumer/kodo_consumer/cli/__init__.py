"""Commands of `kodo-consumer`, one file for each group of commands; `main` has the table of them."""
