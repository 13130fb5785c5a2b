"""Status of a topology's lanes: its values, the reader, the JSON document, text and metrics."""
