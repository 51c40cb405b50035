"""Requests redelivery of failed messages, or moves them to the dead letters.

The client asks the broker that holds the message to deliver it again (request code 36). If that
broker is unreachable, or now has another message at that offset (its log was truncated), the client
sends a copy to the group's retry topic on any broker. If that fails too, the message stays in this
consumer and is delivered again after a pause: it is never lost.

Request code 36 supports delay levels only. For a delay in seconds the client sends a copy to the
retry topic at once, as a timer message. If the broker refuses timer messages, the client asks for
the next longer level.
"""

import logging
import math
from bisect import bisect_left
from dataclasses import dataclass

from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import BrokerUnreachableError, ClientError, RequestRefusedError
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.errors import restore_error
from rockhopper.protocol.message import StoredMessage, check_delay_level
from rockhopper.protocol.names import AUTO_CREATE_TOPIC, CLIENT_INNER_PRODUCER_GROUP
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT,
    fit_properties,
    join_properties,
)
from rockhopper.protocol.requests import ConsumerSendMsgBackRequest, encode_fields
from rockhopper.tasks import ApplicationCodeError

log = logging.getLogger(__name__)

_FIRST_RETRY_LEVEL = 3
_RECONSUME_TIMES_MAX = 16
_SEND_BACK_TIMEOUT_S = 5.0
# RocketMQ's default messageDelayLevel; a broker may be configured with others.
_LEVELS_S = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)
_TIMER_MAX_S = 3.0 * 24 * 3600
"""RocketMQ's default timerMaxDelaySec: the longest delay that a broker accepts."""
# Properties that would delay or prepare the copy as they did the original message.
_NOT_COPIED = (
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_DELAY_LEVEL,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)


@dataclass(frozen=True)
class Delay:
    """When to redeliver a failed message."""

    level: int = 0
    """A delay level of the broker; 0 lets the broker choose, -1 sends to the dead letters."""
    after_s: float | None = None
    """The delay in seconds; replaces the level if set."""

    def __post_init__(self) -> None:
        if isinstance(self.level, int) and self.level > len(_LEVELS_S):
            raise ValueError(
                f"delay_level is {self.level}: brokers have {len(_LEVELS_S)} levels, the last of "
                "2 h; delay_s accepts any delay"
            )
        check_delay_level(self.level, least=-1)
        if self.after_s is None:
            return
        if self.level:
            raise ValueError("delay_level and delay_s exclude each other: give one")
        if isinstance(self.after_s, bool) or not isinstance(self.after_s, int | float):
            raise TypeError(f"delay_s is {self.after_s!r}: it must be a number of seconds")
        if not 0 <= self.after_s < math.inf:
            raise ValueError(f"delay_s is {self.after_s}: it must be 0 or above")

    def __str__(self) -> str:
        return f"level {self.level}" if self.after_s is None else f"{self.after_s:g} s"

    @property
    def least_ms(self) -> int:
        """The minimum delay."""
        if self.after_s is not None:
            return int(self.after_s * 1000)
        # With level 0 the broker starts at its third level.
        return 0 if self.level < 0 else _LEVELS_S[(self.level or 3) - 1] * 1000

    @property
    def level_above(self) -> int:
        """The first of RocketMQ's levels that is at least as long, else the last level."""
        if self.after_s is None:
            return self.level
        return min(bisect_left(_LEVELS_S, self.after_s) + 1, len(_LEVELS_S))


BY_THE_LADDER = Delay()
DEAD_LETTER = Delay(level=-1)


class RetryLater(Exception):
    """Raise it in a handler to retry the message after some seconds or at a delay level.

    Levels are the broker's messageDelayLevel, by default 1 to 18 (1s 5s 10s 30s 1m … 2h). A level
    above 18 is refused, because the broker would use its last one: give seconds instead. Level 0
    lets the broker choose, which waits longer each time; -1 sends the message to the dead letters.
    Seconds need Rockhopper or RocketMQ 5, and may be at most timerMaxDelaySec there.
    """

    def __init__(
        self, delay_level: int = 0, reason: str = "", *, delay_s: float | None = None
    ) -> None:
        self.delay = Delay(delay_level, delay_s)
        super().__init__(reason or f"redelivery requested: {self.delay}")

    def __reduce__(self) -> tuple[object, ...]:
        return (restore_error, (type(self), self.args), self.__dict__)


def find_retry_later(error: BaseException) -> RetryLater | None:
    """Return the RetryLater that an error is or contains: a TaskGroup raises it in a group."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(find_retry_later, error.exceptions)), None)
    if isinstance(error, ApplicationCodeError) and error.__cause__ is not None:
        return find_retry_later(error.__cause__)
    return error if isinstance(error, RetryLater) else None


class Redelivery:
    """Sends failed messages of one group back to the brokers."""

    def __init__(self, session: Session, settings: ConsumerSettings) -> None:
        self._session = session
        self._settings = settings

    async def send_back(self, message: ReceivedMessage, delay: Delay = BY_THE_LADDER) -> bool:
        """Request redelivery of the message; False if no broker could be reached."""
        if delay.after_s is not None:
            try:
                await self._send_copy(message, delay)
                return True
            except ClientError as refusal:
                if delay.after_s > _TIMER_MAX_S:
                    log.warning("%r is redelivered after 3 days already: %s", message, refusal)
                    return await self.send_back(message, Delay(after_s=_TIMER_MAX_S))
                if delay.after_s > _LEVELS_S[-1] and not isinstance(refusal, RequestRefusedError):
                    self._session.outages.warn(
                        log,
                        f"back {refusal.address}",
                        "%r could not be sent back (%s): it is delivered again locally",
                        message,
                        refusal,
                    )
                    return False  # no level is this long
                delay = Delay(delay.level_above)
                log.warning(
                    "%r is sent back with a delay of %s instead: %s", message, delay, refusal
                )
        try:
            await self._ask_broker(message, delay)
        except ClientError as refusal:
            try:
                await self._send_copy(message, delay)
            except ClientError as error:
                self._session.outages.warn(
                    log,
                    f"back {error.address}",
                    "%r could not be sent back (%s) or copied to the retry topic (%s): it is "
                    "delivered again locally",
                    message,
                    refusal,
                    error,
                )
                return False
            log.warning("a copy of %r was sent to the retry topic: %s", message, refusal)
        return True

    async def _ask_broker(self, message: ReceivedMessage, delay: Delay) -> None:
        route = await self._session.routes.route(message.queue.topic)
        address = route.master(message.queue.broker_name)
        if address is None:
            raise BrokerUnreachableError(f"{message.queue.broker_name!r} has no master now")
        fields = ConsumerSendMsgBackRequest(
            offset=message.stored.commit_log_offset,
            group=self._settings.group,
            delay_level=delay.level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self._settings.max_reconsume_times,
            broker_name=message.queue.broker_name,
            store_timestamp=message.store_time_ms,
        )
        await self._session.request(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            encode_fields(fields),
            timeout_s=_SEND_BACK_TIMEOUT_S,
        )

    async def _send_copy(self, message: ReceivedMessage, delay: Delay) -> None:
        topic = self._settings.retry_topic
        assert topic is not None  # broadcast never sends a message back
        route = await self._session.routes.route(topic)
        failure: ClientError | None = None
        for queue in route.write_queues:
            ext = self._copy_fields(topic, queue.queue_id, message, delay)
            try:
                await self._session.request(
                    _master(route, queue.broker_name),
                    RequestCode.SEND_MESSAGE_V2,
                    ext,
                    message.stored.body,
                )
                return
            except ClientError as error:
                failure = error
        raise failure or BrokerUnreachableError(f"no broker has topic {topic!r} now")

    def _copy_fields(
        self, topic: str, queue_id: int, message: ReceivedMessage, delay: Delay
    ) -> dict[str, str]:
        """Return the fields of SendMessageRequestV2 (protocol/requests) under their wire names."""
        stored = message.stored
        times_max = self._settings.max_reconsume_times
        if times_max is None:
            times_max = _RECONSUME_TIMES_MAX
        times = stored.reconsume_times + 1
        if delay == DEAD_LETTER:
            times = max(times, times_max + 1)
        return {
            "a": CLIENT_INNER_PRODUCER_GROUP,
            "b": topic,
            "c": AUTO_CREATE_TOPIC,
            "d": "4",
            "e": str(queue_id),
            "f": str(stored.sys_flag),
            "g": str(stored.born_time_ms),
            "h": str(stored.flag),
            "i": join_properties(fit_properties(_copy_properties(stored, delay))),
            "j": str(times),
            "k": "false",
            "l": str(times_max),
            "m": "false",
        }


def _copy_properties(stored: StoredMessage, delay: Delay) -> dict[str, str]:
    properties = dict(stored.properties)
    for name in _NOT_COPIED:
        properties.pop(name, None)
    properties.setdefault(PROPERTY_RETRY_TOPIC, stored.topic)
    properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, stored.offset_message_id)
    if delay.after_s is not None:
        properties[PROPERTY_TIMER_DELAY_MS] = str(math.ceil(delay.after_s * 1000))
    else:
        level = delay.level if delay.level > 0 else _FIRST_RETRY_LEVEL + stored.reconsume_times
        properties[PROPERTY_DELAY_LEVEL] = str(level)
    properties[PROPERTY_WAIT] = "true"
    return properties


def _master(route: TopicRoute, broker_name: str) -> str:
    address = route.master(broker_name)
    assert address is not None  # write_queues has no queue of a broker without a master
    return address
