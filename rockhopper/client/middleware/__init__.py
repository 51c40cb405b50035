"""What an application puts around sends, receives and handlers (docs/tracing.md).

hooks            the hooks, and how they are called one around the other
opentelemetry    spans of OpenTelemetry, and their context in message properties
"""
