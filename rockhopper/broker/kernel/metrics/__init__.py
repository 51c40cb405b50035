"""The content of /metrics."""
