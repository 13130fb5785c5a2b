"""Status of lanes: its values, the reader, the JSON document, text and metrics."""
