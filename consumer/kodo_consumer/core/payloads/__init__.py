# adapter: runs the libraries of Avro and of models
"""Payloads as values: JSON, Avro and models; versions of schemas."""
