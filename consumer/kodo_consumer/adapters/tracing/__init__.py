"""OpenTelemetry traces (the extra `otel`): spans of what is sent and of what is handled, and the context that
messages carry.

Without a tracer provider nothing of this is ever called. Names follow the semantic conventions for messaging.
"""
