"""Reading, choosing, asking and tracing messages."""
