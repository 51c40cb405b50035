"""The plain sends at the front of a pass, served by one call, if the C module was compiled.

``take_sends`` is compiled (``_sends.c``). From the frames of a pass it makes records, consume queue
units, index keys and responses, for as many plain sends as follow each other. HotPass is its
oracle: it serves each send exactly as HotPass would, to the byte, and leaves anything unusual to
HotPass. Without the C module HotPass serves all of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.hot.hot_codec import Templates, pieces
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.codes import FLAG_RESPONSE, MQ_VERSION, LanguageCode
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.headers.header_binary import encode_binary_header
from rockhopper.protocol.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC

Sendable: TypeAlias = dict[str, tuple[list[QueueTail], Traffic]]
"""Topics that accept plain messages: the tails of their queues, and their counter."""

# Positions in a binary header: the opaque, the flag, the sizes after it, and the fields.
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
"""The result of serving some sends: how many; their records; the runs of these, and their packed
index keys; the numbers to count for each topic, that is messages, requests and bytes; the
responses, with the log offset of the first one's message and whether they wait for the disk; and,
for half messages, queue offset, log offset and producer group."""


class DeferredSends(NamedTuple):
    """The common data of messages that wait elsewhere before they get to their topics.

    These are messages with a delay level, and half messages; not those with a delivery time.
    """

    tails: Mapping[tuple[str, int], QueueTail]
    delays_ms: tuple[int, ...]
    """The delays of the levels, from the first one on."""
    delay_topic: str
    half_topic: str | None
    """None if half messages are rejected, or are no feature's."""
    half_traffic: Traffic


class Common(NamedTuple):
    """The common data of all sends to a broker."""

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
    """A binary header: before the opaque, after it, and the first fields."""
    waiting: DeferredSends


def ways_to_wait(kernel: Kernel, features: Iterable[FeaturePart]) -> DeferredSends:
    """Return how messages wait, by the present settings."""
    takes_halves = not kernel.config.transactions.reject_transaction_message and any(
        part.halves_opened is not None for part in features
    )
    return DeferredSends(
        kernel.store.staging.tails,
        tuple(kernel.scheduled.delayed.levels.delays_ms),
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC if takes_halves else None,
        kernel.stats.get_send_traffic(TRANSACTION_HALF_TOPIC),
    )


def common(
    templates: Templates,
    store_host: bytes,
    suffix: bytes,
    body_size_bytes_max: int,
    waiting: DeferredSends,
) -> Common:
    """Return the data that ``take_sends`` needs; *templates* are the broker's."""
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
    """Serve nothing."""


_sends = import_compiled("rockhopper.broker.hot._sends")
if _sends is not None:
    _sends.set_classes(Run, QueueTail, Traffic)
count_up: Callable[[Counted], None] = take_nothing if _sends is None else _sends.count_up
"""Add the numbers in *counted* to the traffic counters."""
take_sends: Callable[..., Taken | str | None] = (
    take_nothing if _sends is None else _sends.take_sends
)
"""Serve the plain sends at the front. Arguments: frames, number of the first one, sendable topics,
Common, born host, log offset of the next record, log offset that records may reach, store time in
ms. Returns the result; or the topic of the first send if it is not a sendable one; or None if that
send is not plain for another reason. No side effects: everything it did is in the result."""
