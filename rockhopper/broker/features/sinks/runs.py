"""Runs: messages of a batch that go to one queue, and are stored without a look at each."""

from rockhopper.broker.store.log.fast_encoding import count_run
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkRun
from rockhopper.protocol.store.message_codec import decode_batch


def plain_count(run: SinkRun, reserved_bytes: int = 0) -> int:
    """How many messages *run* has if each is plain (encoding.py); 0 if each must be looked at.

    So many bytes must find room behind the properties of each.
    """
    return count_run(run.messages, bytes(reserved_bytes))


def messages_of(run: SinkRun) -> list[SinkMessage]:
    """The messages of a run, one by one. Raises MalformedBatchError."""
    head = run.topic, run.queue_id
    return [
        SinkMessage(*head, flag, run.born_time_ms, properties.decode("utf-8", "replace"), body)
        for flag, body, properties in decode_batch(run.messages)
    ]
