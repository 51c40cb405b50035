"""The way of a send."""
