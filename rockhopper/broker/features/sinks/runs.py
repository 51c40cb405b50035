"""Runs: messages of a batch for one queue, which are stored without being parsed one by one."""

from rockhopper.broker.store.log.fast_encoding import count_run
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkRun
from rockhopper.protocol.store.message_codec import decode_batch


def plain_count(run: SinkRun, reserved_bytes: int = 0) -> int:
    """Return the number of messages in *run*; 0 if one of them must be parsed (encoding.py).

    The properties of each message must leave room for *reserved_bytes*.
    """
    return count_run(run.messages, bytes(reserved_bytes))


def messages_of(run: SinkRun) -> list[SinkMessage]:
    """The messages of a run, one by one. Raises MalformedBatchError."""
    head = run.topic, run.queue_id
    return [
        SinkMessage(*head, flag, run.born_time_ms, properties.decode("utf-8", "replace"), body)
        for flag, body, properties in decode_batch(run.messages)
    ]
