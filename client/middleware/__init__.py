"""What an application puts around sends, receives and handlers (docs/tracing.md)."""
