"""Middleware of an application around sends, receives and handlers (docs/tracing.md).

hooks            the hooks, and how they are nested
opentelemetry    spans of OpenTelemetry, and their context in message properties
"""
