"""The way of a pull."""
