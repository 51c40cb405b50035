"""The clients without `await`: `from rockhopper.sync import Consumer, Producer`."""

from rockhopper.client.sync import (
    Admin,
    Connections,
    Consumer,
    Producer,
    PullConsumer,
    TransactionProducer,
)

__all__ = ["Admin", "Connections", "Consumer", "Producer", "PullConsumer", "TransactionProducer"]
