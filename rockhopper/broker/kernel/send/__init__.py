"""Sends: validation, batches, and the message's way into the store."""
