"""Static topics: their mapping (513), and the requests that name a logical queue.

A request for a static topic contains a logical queue and logical offsets, unless its field ``lo``
is false. The broker that leads the queue serves it. It rewrites the request for the physical queue
of the right piece, passes it to the ordinary processor or to the broker that has the piece, and
rewrites the answer. Every other broker answers NOT_LEADER_FOR_QUEUE (501).

    logical queue 0    piece 1 on broker a: logical 0 to 99; piece 2 on broker b: from logical 100
    a pull at 40       broker b forwards it to a, as offset 40 of a's physical queue
    a pull at 120      broker b reads its own physical queue at offset 20
"""

import dataclasses
import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from rockhopper.broker.feature import Wrap
from rockhopper.broker.features.static_topics.mappings import (
    MappingItem,
    StaticTopic,
    StaticTopicTable,
)
from rockhopper.broker.kernel.processors.topics_admin import TopicAdminProcessors, TopicAnnouncer
from rockhopper.broker.kernel.pull.reader_positions import ReaderPositions
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.name_server.peer_brokers import PeerBrokers, UnreachableError
from rockhopper.broker.server.remoting.dispatcher import (
    Processor,
    Request,
    RequestError,
    Response,
    Row,
    administers,
)
from rockhopper.broker.server.remoting.json_bodies import read_object, refusal
from rockhopper.broker.server.remoting.permissions import on_topic
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.requests import CreateTopicRequest
from rockhopper.protocol.sys_flags import PULL_FLAG_COMMIT_OFFSET, PULL_FLAG_SUSPEND

log = structlog.get_logger("broker.admin")

Translate = Callable[[Response], Response]
Served = Response | Awaitable[Response | None] | None
Serve = Callable[[Request, StaticTopic, Processor], Served]
_SHORT_NAMES = frozenset((Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE))
_FOUND, _RETRY = ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY


@dataclass(eq=False, repr=False)
class StaticTopicProcessors:
    """Serves the static topics of one broker."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _static_topics: StaticTopicTable
    _peer_brokers: PeerBrokers
    _groups: SubscriptionGroupTable
    _offsets: ConsumerOffsetTable
    _positions: ReaderPositions
    _announcer: TopicAnnouncer
    _admin: TopicAdminProcessors

    async def update(self, request: Request) -> Response:
        """513: create a static topic or change its mapping; with force whatever the old one is."""
        fields = request.fields(CreateTopicRequest)
        try:
            static = StaticTopic.from_json(await read_object(request.body))
        except ValueError as error:
            raise refusal(error) from None
        if (static.topic, static.broker) != (fields.topic, self._config.broker_name):
            raise Refusal(
                f"the mapping is for {static.topic} on {static.broker}, but the request is for "
                f"{fields.topic} on {self._config.broker_name}"
            )
        known = self._static_topics.mappings.get(static.topic)
        if known is not None and not fields.force:
            _check_change(known, static)
        self._admin.check_name(static.topic)
        if self._static_topics.store_mapping(static):
            log.info("static topic mapping changed", topic=static.topic)
            await self._static_topics.saved()
        answer = await self._admin.update_topic(request)
        self._topics.touch()
        await self._topics.saved()
        await self._announcer.announce()
        return answer

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.UPDATE_AND_CREATE_STATIC_TOPIC: administers(self.update, on_topic(Action.CREATE))
        }

    def wraps(self) -> dict[int, Wrap]:
        """Return the wraps of the processors whose requests name a queue."""
        steps: dict[int, Serve] = {
            Code.SEND_MESSAGE: self.send,
            Code.SEND_MESSAGE_V2: self.send,
            Code.SEND_BATCH_MESSAGE: self.send,
            Code.PULL_MESSAGE: self.pull,
            Code.LITE_PULL_MESSAGE: self.pull,
            Code.QUERY_CONSUMER_OFFSET: self.query_offset,
            Code.UPDATE_CONSUMER_OFFSET: self.commit_offset,
            Code.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            Code.GET_MAX_OFFSET: self.max_offset,
            Code.GET_MIN_OFFSET: self.search,
            Code.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }
        mappings = self._static_topics.mappings
        return {code: Wrap(mappings, partial(self._choose, serve)) for code, serve in steps.items()}

    def _choose(self, serve: Serve, request: Request, processor: Processor) -> Served:
        """Serve the request by *serve* if it names a logical queue, else by *processor*."""
        ext = request.ext
        topic = ext.get("b" if request.code in _SHORT_NAMES else "topic", "")
        static = self._static_topics.mappings.get(topic)
        if static is None or ext.get("lo", "").lower() == "false":
            return processor(request)
        return serve(request, static, processor)

    def send(self, request: Request, static: StaticTopic, processor: Processor) -> Served:
        """10, 310, 320: send to the newest piece."""
        field = "e" if request.code in _SHORT_NAMES else "queueId"
        queue_id = _number(request, field)
        if queue_id < 0 and static.led:
            queue_id = random.choice(static.led)
        # A message that arrives while a queue moves gets its logical offset later, as in RocketMQ.
        piece = self._leader(static, queue_id, is_decided=False)

        def translate(response: Response) -> Response:
            if response.ext and "queueOffset" in response.ext:
                response.ext["queueId"] = str(queue_id)
                offset = int(response.ext["queueOffset"])
                response.ext["queueOffset"] = str(piece.logical(offset))
            return response

        return _physically(request, processor, {field: str(piece.queue_id)}, translate)

    async def pull(
        self, request: Request, static: StaticTopic, processor: Processor
    ) -> Response | None:
        """11, 361: pull from the right piece. Only a pull in the growing piece waits."""
        queue_id, offset = _number(request, "queueId"), _number(request, "queueOffset")
        pieces = static.pieces(queue_id) or [self._leader(static, queue_id)]
        self._leader(static, queue_id, is_decided=False)
        # While a queue moves, the old broker's piece is the newest for a moment.
        piece, newest = static.piece_at(queue_id, offset) or pieces[-1], pieces[-1]
        flags = _number(request, "sysFlag")
        if flags & PULL_FLAG_COMMIT_OFFSET:
            await self._commit_on_the_way(request, static, queue_id)
        flags &= ~PULL_FLAG_COMMIT_OFFSET
        low = pieces[0].logic_offset if len(pieces) > 1 else None
        high = newest.logical(self._store.reading.queue_range(static.topic, newest.queue_id)[1])
        following = pieces[pieces.index(piece) + 1] if piece is not newest else None
        changes = {"queueId": str(piece.queue_id), "queueOffset": str(piece.physical(offset))}
        if following is not None:
            flags &= ~PULL_FLAG_SUSPEND
            # Apache's tool does not tell the new leader where the old piece ends.
            left = piece.end_offset - piece.physical(offset) if piece.is_ended else None
            if left is not None and left <= 0:
                return _answer_moved(following, low, high)
            if left is not None:
                changes["maxMsgNums"] = str(min(_number(request, "maxMsgNums"), left))
        changes["sysFlag"] = str(flags)

        def translate(response: Response) -> Response:
            return _pull(response, piece, following, low, high)

        if piece.broker != static.broker:
            changes["sysFlag"] = str(flags & ~PULL_FLAG_SUSPEND)
            return translate(await self._ask_next(request, piece, changes))
        served = _physically(request, processor, changes, translate)
        return await served if inspect.isawaitable(served) else served

    async def _commit_on_the_way(
        self, request: Request, static: StaticTopic, queue_id: int
    ) -> None:
        offset = _number(request, "commitOffset")
        piece = static.piece_at(queue_id, offset) if offset >= 0 else None
        if piece is None:
            return
        group, physical = request.ext.get("consumerGroup", ""), piece.physical(offset)
        if piece.broker == static.broker:
            is_known = self._positions.may_commit(
                request.connection, group, static.topic, piece.queue_id, physical
            )
            if is_known and self._groups.get(group) is not None:
                self._offsets.commit(static.topic, group, piece.queue_id, physical)
            return
        changes = {"queueId": str(piece.queue_id), "commitOffset": str(physical)}
        await self._ask_next(request, piece, changes, Code.UPDATE_CONSUMER_OFFSET)

    async def query_offset(
        self, request: Request, static: StaticTopic, processor: Processor
    ) -> Response:
        """14: use the newest piece with an offset of the group, otherwise the oldest piece."""
        queue_id = _number(request, "queueId")
        leader = self._leader(static, queue_id, is_decided=False)
        pieces = static.pieces(queue_id) or [leader]
        for piece in reversed(pieces):
            try:
                answer = await self._ask(request, processor, piece, {"setZeroIfNotFound": "false"})
            except RequestError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                continue
            if answer.code == ResponseCode.SUCCESS:
                return _offset_of(answer, piece)
        return _offset_of(await self._ask(request, processor, pieces[0], {}), pieces[0])

    async def commit_offset(
        self, request: Request, static: StaticTopic, processor: Processor
    ) -> Response:
        """15: commit in the piece of the offset."""
        queue_id, offset = _number(request, "queueId"), _number(request, "commitOffset")
        leader = self._leader(static, queue_id, is_decided=False)
        piece = static.piece_at(queue_id, offset) or leader
        changes = {"commitOffset": str(max(piece.physical(offset), 0))}
        return await self._ask(request, processor, piece, changes)

    async def search(self, request: Request, static: StaticTopic, processor: Processor) -> Response:
        """29, 31: use the first piece with an answer within itself."""
        leader = self._leader(static, _number(request, "queueId"))
        for piece in static.pieces(_number(request, "queueId")):
            answer = await self._ask(request, processor, piece, {})
            offset = int((answer.ext or {}).get("offset", "-1"))
            if piece is leader:
                return _offset_of(answer, piece)
            end = await self._end_of(request, static, piece)
            if answer.code == _FOUND and 0 <= offset < end:
                return _offset_of(answer, piece)
        return _offset_of(await self._ask(request, processor, leader, {}), leader)

    async def _end_of(self, request: Request, static: StaticTopic, piece: MappingItem) -> int:
        if piece.is_ended:
            return piece.end_offset
        if piece.broker == static.broker:
            return self._store.reading.queue_range(static.topic, piece.queue_id)[1]
        changes = {"queueId": str(piece.queue_id)}
        answer = await self._ask_next(request, piece, changes, Code.GET_MAX_OFFSET)
        return int((answer.ext or {}).get("offset", "0"))

    async def max_offset(
        self, request: Request, static: StaticTopic, processor: Processor
    ) -> Response:
        """30: use the newest piece."""
        leader = self._leader(static, _number(request, "queueId"))
        return _offset_of(await self._ask(request, processor, leader, {}), leader)

    async def earliest_time(
        self, request: Request, static: StaticTopic, processor: Processor
    ) -> Response:
        """32: use the first piece with a message."""
        leader = self._leader(static, _number(request, "queueId"))
        for piece in static.pieces(_number(request, "queueId")):
            answer = await self._ask(request, processor, piece, {})
            if (answer.ext or {}).get("timestamp", "-1") != "-1":
                return answer
        return await self._ask(request, processor, leader, {})

    def _leader(
        self, static: StaticTopic, queue_id: int, *, is_decided: bool = True
    ) -> MappingItem:
        """Return the piece for new messages.

        With *is_decided*, it must have its logical offset already.
        """
        piece = static.leader(queue_id)
        if piece is None or (is_decided and piece.logic_offset < 0):
            raise RequestError(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{static.topic}-{queue_id} does not exit in request process of current broker "
                f"{static.broker}",
            )
        return piece

    async def _ask(
        self, request: Request, processor: Processor, piece: MappingItem, changes: dict[str, str]
    ) -> Response:
        """Return the answer of one piece, from this broker or another."""
        changes = {"queueId": str(piece.queue_id), **changes}
        if piece.broker != self._config.broker_name:
            return await self._ask_next(request, piece, changes)
        served = _physically(request, processor, changes, lambda response: response)
        answer = await served if inspect.isawaitable(served) else served
        assert answer is not None
        return answer

    async def _ask_next(
        self, request: Request, piece: MappingItem, changes: dict[str, str], code: int | None = None
    ) -> Response:
        ext = {**request.ext, **changes, "lo": "false", "bname": piece.broker}
        try:
            answer = await self._peer_brokers.ask(piece.broker, code or request.code, ext)
        except UnreachableError as error:
            raise Refusal(f"a segment of the queue cannot be read: {error}") from None
        return Response(answer.code, answer.remark, dict(answer.ext or {}), answer.body)


class _Rewritten(Request):
    """A request for a physical queue, whose answer is translated before it leaves."""

    __slots__ = ("_original", "_translate")

    def __init__(self, request: Request, changes: dict[str, str], translate: Translate) -> None:
        ext = {**request.ext, **changes, "lo": "false"}
        super().__init__(request.connection, dataclasses.replace(request.command, ext=ext))
        self._original = request
        self._translate = translate

    def check_access(self) -> None:
        self._original.check_access()

    def answer(self, response: Response) -> None:
        super().answer(self._translate(response))


def _physically(
    request: Request, processor: Processor, changes: dict[str, str], translate: Translate
) -> Served:
    served = processor(_Rewritten(request, changes, translate))
    if isinstance(served, Response):
        return translate(served)
    if served is None:
        return None

    async def later() -> Response | None:
        answer = await served
        return None if answer is None else translate(answer)

    return later()


def _number(request: Request, field: str) -> int:
    text = request.ext.get(field, "")
    if not text.lstrip("-").isdecimal():
        raise Refusal(f"field {field!r} is {text[:40]!r}, not a number")
    return int(text)


def _offset_of(answer: Response, piece: MappingItem) -> Response:
    if answer.code == _FOUND and answer.ext and "offset" in answer.ext:
        answer.ext["offset"] = str(piece.logical(int(answer.ext["offset"])))
    return answer


def _answer_moved(following: MappingItem, low: int | None, high: int) -> Response:
    """Return the answer at the end of a piece: it makes the client continue in the next piece."""
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(following.logic_offset),
        "minOffset": str(low or 0),
        "maxOffset": str(high),
    }
    return Response(_RETRY, "the messages continue in another segment of the queue", ext)


def _pull(
    response: Response,
    piece: MappingItem,
    following: MappingItem | None,
    low: int | None,
    high: int,
) -> Response:
    ext = response.ext
    if not ext or "nextBeginOffset" not in ext:
        return response
    reached = int(ext["nextBeginOffset"])
    end = piece.end_offset if piece.is_ended else int(ext["maxOffset"])
    if following is not None and response.code != _FOUND and reached >= end:
        return _answer_moved(following, low, high)
    if following is not None and reached >= end:
        ext["nextBeginOffset"] = str(following.logic_offset)
    else:
        ext["nextBeginOffset"] = str(piece.logical(reached))
    ext["minOffset"] = str(piece.logical(int(ext["minOffset"])) if low is None else low)
    ext["maxOffset"] = str(piece.logical(int(ext["maxOffset"])) if following is None else high)
    ext["offsetDelta"] = str(piece.logic_offset - piece.start_offset)
    return response


def _check_change(known: StaticTopic, wanted: StaticTopic) -> None:
    """Raise Refusal for a mapping that is older than the known one or lacks queues."""
    problem = None
    if wanted.epoch < known.epoch:
        problem = f"its epoch {wanted.epoch} is older than {known.epoch}"
    elif wanted.epoch == known.epoch and not wanted.has_same_pieces(known):
        problem = f"its epoch {wanted.epoch} belongs to a different mapping"
    elif wanted.total < known.total:
        problem = f"it has {wanted.total} logical queues instead of {known.total}"
    elif set(known.queues) - set(wanted.queues):
        problem = "it lacks logical queues that have segments on this broker"
    if problem is not None:
        raise Refusal(f"the mapping of {wanted.topic} is refused: {problem}; force=true overrides")
