"""Consume queues: where each message of a queue stands in the log."""
