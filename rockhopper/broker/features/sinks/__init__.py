"""Sinks: whole batches of messages that become visible at once, and once only.

A job stages the parts of a batch, then publishes it under (sink id, batch id). See publisher.py.
"""
