"""SQL statements on a landing's tables, run by DuckDB in this process."""
