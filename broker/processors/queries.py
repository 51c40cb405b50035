"""Looking messages up: by key (12) and by their place in the log (33)."""

from broker.dispatcher import Request, RequestError, Response
from broker.processors.parts import BrokerParts
from protocol.codes import ResponseCode
from protocol.requests import (
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
    encode_fields,
)


class QueryProcessors:
    """Serves look-ups of single messages."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker

    def by_key(self, request: Request) -> Response:
        """12: messages of a topic that carry a key or unique key, newest first.

        The store compares the key on each message, so two keys of one hash are never confused; it
        also ends the answer before a frame would be too large.
        """
        fields = request.fields(QueryMessageRequest)
        settings = self._broker.config.store
        count_max = min(fields.max_num, settings.query_max_count)
        if fields.is_unique_key or count_max <= 0:
            count_max = settings.query_default_count
        store = self._broker.store
        records: list[bytes] = []
        if fields.key and fields.topic in self._broker.topics:
            records = store.query(
                fields.topic,
                fields.key,
                count_max,
                fields.begin_timestamp,
                fields.end_timestamp,
                with_gone=False,
            )
        ext = encode_fields(
            QueryMessageResponse(
                index_last_update_timestamp=store.store_time_ms,
                index_last_update_phyoffset=store.dispatched_offset,
            )
        )
        if not records:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                ext,
            )
        return Response(ext=ext, body=b"".join(records))

    def by_offset(self, request: Request) -> Response:
        """33: the message at a commit log offset, as offset message ids name it."""
        fields = request.fields(ViewMessageRequest)
        store = self._broker.store
        record: bytes | None = None
        if store.min_commit_log_offset <= fields.offset < store.max_commit_log_offset:
            record = store.message_at(fields.offset)
        if not record:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {fields.offset}",
            )
        return Response(body=record)
