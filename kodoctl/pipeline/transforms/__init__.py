"""DataFrame to DataFrame: nothing here reads or writes a table, looks at a clock or collects facts."""
