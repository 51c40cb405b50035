"""Asks for a failed message again: later, or never (dead letters).

The broker that holds the message is asked to deliver it again (36). When it cannot be asked, a copy
is sent to the group's retry topic, on any broker. When that fails too, the message stays here and
is handed out again after a while: it is never lost.
"""

from __future__ import annotations

import logging

from client.consuming.settings import ConsumerSettings
from client.errors import BrokerUnreachableError, ClientError
from client.received import ReceivedMessage
from client.routing import TopicRoute
from client.session import Session
from protocol.codes import RequestCode
from protocol.message import StoredMessage
from protocol.names import CLIENT_INNER_PRODUCER_GROUP
from protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT,
    encode_properties,
)
from protocol.requests import ConsumerSendMsgBackRequest, encode_fields

log = logging.getLogger(__name__)

BY_THE_LADDER = 0
DEAD_LETTER = -1
_FIRST_RETRY_LEVEL = 3
_RECONSUME_TIMES_MAX = 16
_SEND_BACK_TIMEOUT_S = 5.0


class RetryLater(Exception):
    """Raised by a handler to get its message again, after the delay of a level of the broker.

    Levels are the broker's messageDelayLevel, 1 to 18 (1s 5s 10s 30s 1m … 2h). Level 0 leaves it to
    the broker, which waits longer each time; -1 sends the message to the dead letters.
    """

    def __init__(self, delay_level: int = BY_THE_LADDER, reason: str = "") -> None:
        super().__init__(reason or f"delivery is asked for again at delay level {delay_level}")
        self.delay_level = delay_level


class Redelivery:
    """Sends the failed messages of one group back."""

    def __init__(self, session: Session, settings: ConsumerSettings) -> None:
        self._session = session
        self._settings = settings

    async def send_back(self, message: ReceivedMessage, delay_level: int = BY_THE_LADDER) -> bool:
        """Ask for the message again; False when nobody could be asked."""
        try:
            await self._ask_broker(message, delay_level)
        except ClientError as refusal:
            try:
                await self._send_copy(message, delay_level)
            except ClientError as error:
                log.warning(
                    "%r could not be sent back (%s) nor copied to the retry topic (%s): it will be "
                    "handed out again here",
                    message,
                    refusal,
                    error,
                )
                return False
            log.warning("a copy of %r went to the retry topic: %s", message, refusal)
        return True

    async def _ask_broker(self, message: ReceivedMessage, delay_level: int) -> None:
        route = await self._session.routes.route(message.queue.topic)
        address = route.master(message.queue.broker_name)
        if address is None:
            raise BrokerUnreachableError(f"{message.queue.broker_name!r} has no master now")
        fields = ConsumerSendMsgBackRequest(
            offset=message.stored.commit_log_offset,
            group=self._settings.group,
            delay_level=delay_level,
            origin_msg_id=message.offset_message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self._settings.max_reconsume_times,
            broker_name=message.queue.broker_name,
        )
        await self._session.request(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            encode_fields(fields),
            timeout_s=_SEND_BACK_TIMEOUT_S,
        )

    async def _send_copy(self, message: ReceivedMessage, delay_level: int) -> None:
        topic = self._settings.retry_topic
        assert topic is not None  # nothing is sent back in broadcast
        route = await self._session.routes.route(topic)
        failure: ClientError | None = None
        for queue in route.write_queues:
            ext = self._copy_fields(topic, queue.queue_id, message, delay_level)
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
        raise failure or BrokerUnreachableError(f"no broker has the topic {topic!r} now")

    def _copy_fields(
        self, topic: str, queue_id: int, message: ReceivedMessage, delay_level: int
    ) -> dict[str, str]:
        """The fields of SendMessageRequestV2 (protocol/requests), by their wire letters."""
        stored = message.stored
        times_max = self._settings.max_reconsume_times
        if times_max is None:
            times_max = _RECONSUME_TIMES_MAX
        times = stored.reconsume_times + 1
        if delay_level == DEAD_LETTER:
            times = max(times, times_max + 1)
        return {
            "a": CLIENT_INNER_PRODUCER_GROUP,
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": str(stored.sys_flag),
            "g": str(stored.born_time_ms),
            "h": str(stored.flag),
            "i": encode_properties(_copy_properties(stored, delay_level)),
            "j": str(times),
            "k": "false",
            "l": str(times_max),
            "m": "false",
        }


def _copy_properties(stored: StoredMessage, delay_level: int) -> dict[str, str]:
    properties = dict(stored.properties)
    properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
    properties.setdefault(PROPERTY_RETRY_TOPIC, stored.topic)
    properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, stored.offset_message_id)
    level = delay_level if delay_level > 0 else _FIRST_RETRY_LEVEL + stored.reconsume_times
    properties[PROPERTY_DELAY_LEVEL] = str(level)
    properties[PROPERTY_WAIT] = "true"
    return properties


def _master(route: TopicRoute, broker_name: str) -> str:
    address = route.master(broker_name)
    assert address is not None  # queues of brokers without a master are not in write_queues
    return address
