"""A broker and its name server in memory, with the minimum that a reader needs."""

import asyncio
from typing import Self

from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import host_bytes
from tests.support.fake_server import FakeServer, route
from tests.support.records import encode_message

Record = tuple[bytes, str | None]


class FakeBroker(FakeServer):
    """Holds messages per queue id of one topic, "orders", and answers pulls like RocketMQ."""

    def __init__(self, *, queues: int = 2) -> None:
        super().__init__()
        self.queue_count = queues
        self.min_offsets: dict[int, int] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.batch_max = 32
        self.routes: dict[str, dict[str, object]] = {}
        self._records: dict[int, list[Record]] = {}
        self._grown = asyncio.Condition()
        self.on(11, self._pull)
        self.on(14, self._query_offset)
        self.on(15, self._update_offset)
        self.on(29, lambda request: Command(0, ext={"offset": (request.ext or {})["timestamp"]}))
        self.on(30, lambda request: Command(0, ext={"offset": str(self._end(request))}))
        self.on(31, lambda request: Command(0, ext={"offset": str(self._begin(request))}))
        self.on(34, lambda request: Command(0))
        self.on(35, lambda request: Command(0))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.routes["orders"] = route({"a": self.address}, queues=self.queue_count)
        self.serve_routes(self.routes)
        return self

    async def append(self, queue_id: int, *bodies: bytes, tag: str | None = None) -> None:
        async with self._grown:
            self._records.setdefault(queue_id, []).extend((body, tag) for body in bodies)
            self._grown.notify_all()

    def _end(self, request: Command) -> int:
        return len(self._records.get(_queue_id(request), []))

    def _begin(self, request: Command) -> int:
        return self.min_offsets.get(_queue_id(request), 0)

    async def _pull(self, request: Command) -> Command:
        ext = request.ext or {}
        offset, begin = int(ext["queueOffset"]), self._begin(request)
        if offset == self._end(request) and int(ext["sysFlag"]) & 2:
            try:
                async with asyncio.timeout(int(ext["suspendTimeoutMillis"]) / 1000), self._grown:
                    await self._grown.wait_for(lambda: self._end(request) > offset)
            except TimeoutError:
                pass
        end = self._end(request)
        if offset < begin:
            return self._pull_answer(21, request, begin)
        if offset > end:
            return self._pull_answer(21, request, end)
        if offset == end:
            return self._pull_answer(19, request, offset)
        return self._found(request, offset, min(end, offset + self.batch_max))

    def _found(self, request: Command, offset: int, end: int) -> Command:
        """Filter tags only by their first letter: like a hash, this lets too many messages pass."""
        records = self._records[_queue_id(request)]
        expression = (request.ext or {})["subscription"]
        letters = {tag.strip()[0] for tag in expression.split("||")}
        body = b"".join(
            self._record(request, number)
            for number in range(offset, end)
            if expression == "*" or (records[number][1] or "-")[0] in letters
        )
        return self._pull_answer(0 if body else 20, request, end, body)

    def _record(self, request: Command, number: int) -> bytes:
        body, tag = self._records[_queue_id(request)][number]
        return encode_message(
            topic="orders",
            body=body,
            properties=f"TAGS\x01{tag}\x02" if tag else "",
            queue_id=_queue_id(request),
            queue_offset=number,
            commit_log_offset=number * 100,
            store_time_ms=1000 + number,
            store_host=host_bytes("10.9.9.9", 10911),
        )

    def _pull_answer(
        self, code: int, request: Command, next_offset: int, body: bytes = b""
    ) -> Command:
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": str(self._begin(request)),
            "maxOffset": str(self._end(request)),
        }
        return Command(code, ext=ext, body=body)

    def _query_offset(self, request: Command) -> Command:
        group = (request.ext or {})["consumerGroup"]
        offset = self.committed.get((group, _queue_id(request)))
        if offset is None:
            return Command(22, remark="Not found")
        return Command(0, ext={"offset": str(offset)})

    def _update_offset(self, request: Command) -> Command:
        ext = request.ext or {}
        self.committed[ext["consumerGroup"], _queue_id(request)] = int(ext["commitOffset"])
        return Command(0)


def _queue_id(request: Command) -> int:
    return int((request.ext or {})["queueId"])
