"""The plain sends at the front of a pass, all in one call, where there was a compiler.

``take_sends`` is compiled (``_sends.c``): from the frames of a pass it makes records, consume queue
units, index keys and answers, for as many sends as follow each other that are plain. HotPass is its
oracle: what it takes, it serves as HotPass serves it one by one, to the byte, and whatever is a
little unusual it leaves to HotPass. Without it everything is left.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from rockhopper.broker.hot.hot_codec import Templates, pieces
from rockhopper.broker.kernel.parts import ServingParts
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.codes import FLAG_RESPONSE, MQ_VERSION, LanguageCode
from rockhopper.protocol.compiled import compiled
from rockhopper.protocol.headers.header_binary import encode_binary_header
from rockhopper.protocol.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC

Sendable: TypeAlias = dict[str, tuple[list[QueueTail], Traffic]]
"""Topics that plain messages may go to: the tails of their queues, and what is counted."""

# Where the opaque of a binary header stands, where the sizes behind its flag, and its fields.
_OPAQUE_AT, _FLAG_AT, _SIZE_AT, _FIELDS_AT = 5, 9, 17, 21

Counted: TypeAlias = list[tuple[Traffic, int, int, int]]
"""Messages, requests and bytes."""

Taken: TypeAlias = tuple[
    int,
    bytes,
    list[Run],
    bytes,
    Counted,
    list[tuple[bytes, int, bool]],
    list[tuple[int, int, str]] | None,
]
"""What became of some sends: how many there are, their records, the runs of these, and their packed
index keys; for each topic what to count, messages, requests and bytes; the answers, with the log
offset of the first one's message and whether they wait for the disk; and of half messages the
queue offset, the log offset and the producer group."""


class Waiting(NamedTuple):
    """What sends have in common that wait elsewhere before they come to their topics.

    Taken are those with a delay level, and half messages; not those with a time of their own.
    """

    tails: Mapping[tuple[str, int], QueueTail]
    delays_ms: tuple[int, ...]
    """Of the delay levels, from the first one on."""
    delay_topic: str
    half_topic: str | None
    """None where half messages are refused."""
    half_traffic: Traffic


class Common(NamedTuple):
    """What all sends to a broker have in common."""

    store_host: bytes
    suffix: bytes
    """The properties that the broker adds, as they are stored."""
    id_host: bytes
    body_size_bytes_max: int
    sent: tuple[bytes, ...]
    """The pieces of a JSON header between message id, queue, queue offset, key and opaque."""
    batch_sent: tuple[bytes, ...]
    """The same without a key."""
    binary: tuple[bytes, bytes, bytes]
    """Of a binary header: in front of the opaque, behind it, and the first fields."""
    waiting: Waiting


def ways_to_wait(broker: ServingParts) -> Waiting:
    """How messages wait, as the settings are now."""
    takes_halves = not broker.config.live.reject_transaction_message
    return Waiting(
        broker.store.staging.tails,
        tuple(broker.delayed.levels.delays_ms),
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC if takes_halves else None,
        broker.stats.put(TRANSACTION_HALF_TOPIC),
    )


def common(
    templates: Templates,
    store_host: bytes,
    suffix: bytes,
    body_size_bytes_max: int,
    waiting: Waiting,
) -> Common:
    """What ``take_sends`` has to know of a broker whose answers have these *templates*."""
    binary = encode_binary_header(
        0, LanguageCode.JAVA, MQ_VERSION, 0, FLAG_RESPONSE, None, templates.ext
    )
    sent, batch_sent = pieces(templates.sent), pieces(templates.batch_sent)
    host = templates.id_host.encode()
    return Common(
        store_host,
        suffix,
        host,
        body_size_bytes_max,
        (sent[0].removesuffix(host), *sent[1:]),
        batch_sent,
        (binary[:_OPAQUE_AT], binary[_FLAG_AT:_SIZE_AT], binary[_FIELDS_AT:]),
        waiting,
    )


def take_nothing(*_: object) -> None:
    """Leave everything."""


_sends = compiled("rockhopper.broker.hot._sends")
if _sends is not None:
    _sends.set_classes(Run, QueueTail, Traffic)
count_up: Callable[[Counted], None] = take_nothing if _sends is None else _sends.count_up
"""Add to traffic what *counted* says."""
take_sends: Callable[..., Taken | str | None] = (
    take_nothing if _sends is None else _sends.take_sends
)
"""(frames, number of the first one, sendable topics, Common, born host, log offset of the next
record, log offset that records may reach, store time in ms): what became of the plain sends in
front; the topic of the first if it is none of those, and None if that is not plain otherwise.
Nothing but its result says that they were there."""
