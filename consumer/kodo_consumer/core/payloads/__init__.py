"""Payloads as values: JSON, Avro and models; versions of schemas."""
