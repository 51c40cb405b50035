"""The clients without `await`: for Django, Celery, scripts, and whatever else has no event loop."""

from rockhopper.client.sync.admin import Admin
from rockhopper.client.sync.connections import Connections
from rockhopper.client.sync.consumers import Consumer, PullConsumer
from rockhopper.client.sync.producers import Producer, TransactionProducer

__all__ = ["Admin", "Connections", "Consumer", "Producer", "PullConsumer", "TransactionProducer"]
