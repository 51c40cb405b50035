"""Reading, filtering, requesting and tracing messages."""
