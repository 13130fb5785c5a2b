"""Questions to a landing's tables in SQL, answered by DuckDB in this process."""
