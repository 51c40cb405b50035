"""``store dump``: messages of the log as objects, in the order in which they were stored."""

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

from rockhopper.broker.store.log.log_scan import record_start
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.addresses import join_address
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_KEYS, PROPERTY_TAGS
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.message_codec import decode_message, unwrap_inner_batch


class DumpSelection(NamedTuple):
    """The selected messages; times are store times; *before_ms* and *to_offset* are exclusive."""

    topics: frozenset[str] = frozenset()
    from_offset: int = 0
    to_offset: int | None = None
    from_ms: int = 0
    before_ms: int | None = None
    with_body: bool = True

    def covers(self, offset: int, store_time_ms: int) -> bool:
        """Whether a record before *to_offset* may be selected, by its place and time."""
        if self.before_ms is not None and store_time_ms >= self.before_ms:
            return False
        return offset >= self.from_offset and store_time_ms >= self.from_ms


def dump(view: StoreView, wanted: DumpSelection) -> Iterator[dict[str, Any]]:
    """Yield each selected message; a message with a damaged body has an error. Raises OSError."""
    topics = {topic.encode() for topic in wanted.topics}
    for record, is_damaged in view.records(_start(view, wanted)):
        if wanted.to_offset is not None and record.offset >= wanted.to_offset:
            return
        if not wanted.covers(record.offset, record.store_time_ms):
            continue
        if not topics or record.topic in topics:
            yield from _messages(view, record, wanted, is_damaged=is_damaged)


def _start(view: StoreView, wanted: DumpSelection) -> int:
    """Return the start of a record at or before the first selected one."""
    start = record_start(view.log, max(wanted.from_offset, view.log.min_offset))
    for file in reversed(view.log.files if wanted.from_ms else ()):
        first = view.record_at(file.base_offset)
        # A clock may have been set back in between, but not by the span of a whole file.
        if file.base_offset <= start or (first and first.store_time_ms < wanted.from_ms):
            return max(start, file.base_offset)
        file.unmap()
    return start


def _messages(
    view: StoreView, record: Record, wanted: DumpSelection, *, is_damaged: bool
) -> Iterator[dict[str, Any]]:
    file = view.log.file_at(record.offset)
    if file is None:
        return
    message = decode_message(file.mapping, record.offset - file.base_offset)
    if is_damaged:
        yield _json(message, wanted) | {"error": "the body is damaged: its CRC does not match"}
        return
    try:
        messages = unwrap_inner_batch(message)
    except ProtocolError as error:
        yield _json(message, wanted) | {"error": str(error)}
        return
    for each in messages:
        yield _json(each, wanted)


def _json(message: StoredMessage, wanted: DumpSelection) -> dict[str, Any]:
    value: dict[str, Any] = {
        "topic": message.topic,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "logOffset": message.commit_log_offset,
        "size": message.size_bytes,
        "storeTime": message.store_time_ms,
        "bornTime": message.born_time_ms,
        "storeHost": join_address(message.store_host, message.store_port),
        "bornHost": join_address(message.born_host, message.born_port),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "keys": message.properties.get(PROPERTY_KEYS, "").split(),
        "tags": message.properties.get(PROPERTY_TAGS),
        "properties": dict(message.properties),
    }
    if wanted.with_body:
        value |= _body(message)
    return value


def _body(message: StoredMessage) -> dict[str, Any]:
    try:
        body = message.decompressed_body()
    except ProtocolError as error:
        return {"bodyBase64": base64.b64encode(message.body).decode(), "error": str(error)}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
