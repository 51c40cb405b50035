"""Commands for replicated brokers."""
