"""Sinks: whole batches of messages that become visible at once, and once only.

A job stages the parts of a batch, then publishes it under (sink id, batch id). See publisher.py.
"""

from rockhopper.broker.features.sinks.notes import (
    SinkContents,
    SinkDecisions,
    SinkHomes,
    SinkNotes,
    SinkOwners,
    SinkPrepared,
)
from rockhopper.broker.features.sinks.publisher import SinkPublisher

__all__ = [
    "SinkContents",
    "SinkDecisions",
    "SinkHomes",
    "SinkNotes",
    "SinkOwners",
    "SinkPrepared",
    "SinkPublisher",
]
