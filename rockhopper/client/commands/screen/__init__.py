"""Output that fits a terminal, repeated output, and the live view."""
