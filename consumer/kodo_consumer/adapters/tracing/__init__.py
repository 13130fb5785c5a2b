"""OpenTelemetry traces (the extra `otel`): spans of sent and of handled messages, and the context that messages carry.

No code of this package runs without a tracer provider. Names follow the semantic conventions for messaging.
"""
