"""Sinks: whole batches of messages that become visible at once, and once only.

A job stages the parts of a batch, then publishes it under (sink id, batch id). See publisher.py.
"""

from rockhopper.broker.sinks.notes import SinkHomes, SinkOwners
from rockhopper.broker.sinks.publisher import SinkPublisher

__all__ = ["SinkHomes", "SinkOwners", "SinkPublisher"]
