"""The clients without `await`, for programs without an event loop: Django, Celery, scripts."""

from rockhopper.client.sync.admin import Admin
from rockhopper.client.sync.connections import Connections
from rockhopper.client.sync.consumers import Consumer, PullConsumer
from rockhopper.client.sync.producers import Producer, TransactionProducer

__all__ = ["Admin", "Connections", "Consumer", "Producer", "PullConsumer", "TransactionProducer"]
