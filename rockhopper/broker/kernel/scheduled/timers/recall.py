"""Recall: a producer cancels a timed message before its delivery.

RocketMQ answers success once it has stored a marker, whatever happens to the message. Here success
means that the message will not be delivered, and a message that is no longer pending is refused.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rockhopper.broker.kernel.scheduled.timers.recall_handle import (
    RecallHandle,
    decode_recall_handle,
)
from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.errors import IllegalOperation, NoPermission, TopicNotFound


class Recalled(NamedTuple):
    """A message that will not be delivered, once the log is safe up to *end_offset*."""

    unique_key: str
    end_offset: int


@dataclass(eq=False, repr=False)
class TimerRecall:
    """Recalls the timed messages of one broker."""

    _config: BrokerConfig
    _topics: TopicTable
    _timers: Timers

    def recall(self, topic: str, handle_text: str, born_host: bytes) -> Recalled:
        """Recall the message of *topic* that the handle identifies. Raises Refusal, StoreError."""
        if not self._config.live.recall_message_enable:
            raise NoPermission(
                "recall failed, operation is forbidden: recallMessageEnable is false"
            )
        if topic not in self._topics:
            raise TopicNotFound(f"recall failed, the topic[{topic}] not exist")
        handle = self._handle(topic, handle_text)
        end_offset = self._timers.recall(handle, born_host)
        if end_offset is None:
            raise _build_refusal("the message is not pending: it was delivered or recalled before")
        return Recalled(handle.unique_key, end_offset)

    def _handle(self, topic: str, text: str) -> RecallHandle:
        try:
            handle = decode_recall_handle(text)
        except ValueError as error:
            raise _build_refusal(f"the handle is invalid: {error}") from None
        if handle.topic != topic:
            raise _build_refusal(f"the handle is for topic {handle.topic}")
        if handle.broker_name != self._config.broker_name:
            raise _build_refusal(
                f"the handle is for broker {handle.broker_name}, and this is "
                f"{self._config.broker_name}"
            )
        return handle


def _build_refusal(reason: str) -> IllegalOperation:
    return IllegalOperation(f"recall failed, {reason}")
