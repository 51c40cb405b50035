"""Lookup of messages: by key or tag (12) and by commit log offset (33)."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from rockhopper.broker.kernel.send.record_access import record_at
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    serves,
)
from rockhopper.broker.server.remoting.permissions import on_topic
from rockhopper.broker.settings.live_settings import LiveStoreSettings
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.requests import (
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
    encode_fields,
)

INDEX_TYPE_TAG = "T"


@dataclass(eq=False, repr=False)
class QueryProcessors:
    """Serves lookups of single messages."""

    _live: LiveStoreSettings
    _store: MessageStore
    _topics: TopicTable

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.QUERY_MESSAGE: serves(
                self.query_by_key, on_topic(Action.SUB, Action.GET), promises_state=False
            ),
            Code.VIEW_MESSAGE_BY_ID: serves(
                self.query_by_offset, on_topic(Action.GET), promises_state=False
            ),
        }

    def query_by_key(self, request: Request) -> Response | Awaitable[Response]:
        """12: return the newest messages of a topic with a key, a unique key or a tag.

        They are in the order of the log, as from RocketMQ. The store compares the key of each
        message, so keys with the same hash are never confused. It also ends the answer before a
        frame would be too large.
        """
        fields = request.fields(QueryMessageRequest)
        count_max = min(fields.max_num, self._live.query_max_count)
        if fields.is_unique_key:
            count_max = self._live.query_default_count
        store = self._store
        if count_max <= 0 or not fields.key or fields.topic not in self._topics:
            return self._build_found([])
        begin_ms, end_ms = fields.begin_timestamp, fields.end_timestamp
        if fields.index_type == INDEX_TYPE_TAG and not fields.is_unique_key:
            by_tag, steps = store.reading.search_tag(
                fields.topic, fields.key, count_max, begin_ms, end_ms
            )
            return self._find_by(steps, by_tag.records)
        by_key, steps = store.reading.search_key(
            fields.topic, fields.key, count_max, begin_ms, end_ms
        )
        return self._find_by(steps, lambda: by_key.newest_first[::-1])

    async def _find_by(self, steps: Iterator[None], records: Callable[[], list[bytes]]) -> Response:
        for _ in steps:
            await next_slice()
        return self._build_found(records())

    def _build_found(self, records: list[bytes]) -> Response:
        store = self._store
        ext = encode_fields(
            QueryMessageResponse(
                index_last_update_timestamp=store.log.store_time_ms,
                index_last_update_phyoffset=store.dispatch.offset,
            )
        )
        if not records:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext,
            )
        return Response(ext=ext, body=b"".join(records))

    def query_by_offset(self, request: Request) -> Response:
        """33: return the message at a commit log offset, which an offset message id contains."""
        fields = request.fields(ViewMessageRequest)
        of_topics = None
        if request.principal.user:
            # The user was authorized for the topic that the request names.
            of_topics = (request.ext.get("topic", ""),)
        found = record_at(self._store, fields.offset, of_topics)
        if found is None:
            raise Refusal(f"can not find message by the offset, {fields.offset}")
        return Response(body=found[0])
