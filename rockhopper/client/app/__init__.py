"""Functions as consumers: an application of decorated handlers (docs/app.md)."""
