"""SQL statements on a landing's tables, answered by DuckDB in this process."""
