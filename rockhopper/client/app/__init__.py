"""App: decorated functions as consumers (docs/app.md)."""
