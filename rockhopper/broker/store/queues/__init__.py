"""Consume queues: the log offsets of a queue's messages."""
