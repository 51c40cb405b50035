"""Brokers for the pipeline's Remote, without a network: plain tables to fill in."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rockhopper.client.errors import RequestRefusedError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.access import Access
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import LogPasts
from rockhopper.pipeline.sink.choice import SinkState
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.requests import encode_fields
from rockhopper.protocol.requests.extensions import SinkStatusResponse


@dataclass
class ToldBrokers:
    """Replaces ``pipeline.remote.connect``, and the Remote that it returns."""

    held: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    """The range of each queue; the queues define the brokers and topics that exist."""
    ids: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """By topic and broker; the default, blank, means a broker without ids."""
    times: dict[tuple[MessageQueue, int], int] = field(default_factory=dict)
    """The store time of the message at an offset."""
    past: LogPasts = field(default_factory=lambda: LogPasts({}, {}))
    """The answer about the histories of the logs."""
    read_in: list[Mapping[str, Sequence[str]]] = field(default_factory=list)
    """The epochs in the requests."""
    unserved: dict[MessageQueue, int] = field(default_factory=dict)
    """The ends of queues that a topic of an Apache broker no longer has."""
    sinks: dict[str, SinkState | None] = field(default_factory=dict)
    """By broker; None for an Apache broker."""
    departed: list[str] = field(default_factory=list)

    def __call__(
        self, nameserver: str, *, timeout_s: float = 30.0, access: Access | None = None
    ) -> "ToldBrokers":
        return self

    def topics(self) -> list[str]:
        """See Remote."""
        return sorted({queue.topic for queue in self.held})

    def queues(self, topic: str) -> list[MessageQueue]:
        """See Remote."""
        return [queue for queue in sorted(self.held) if queue.topic == topic]

    def queues_of(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        """See Remote."""
        return {topic: self.queues(topic) for topic in topics}

    def route(self, topic: str) -> TopicRoute | None:
        """See Remote."""
        queues = tuple(self.queues(topic))
        return TopicRoute(topic, queues, queues, {}) if queues else None

    def brokers(self) -> list[BrokerAddress]:
        """See Remote."""
        names = sorted({queue.broker_name for queue in self.held} | self.sinks.keys())
        return [BrokerAddress("cluster", name, 0, f"{name}:10911") for name in names]

    def away(self, wanted: Iterable[str] = ()) -> list[str]:
        """See Remote."""
        return sorted({*wanted, *self.departed} - {each.name for each in self.brokers()})

    def topic_ids(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str | None]:
        """See Remote."""
        return {place: self.ids.get(place, "") for place in places}

    def log_pasts(
        self, queues: Iterable[MessageQueue], known: Mapping[str, Sequence[str]]
    ) -> LogPasts:
        """See Remote."""
        self.read_in.append(dict(known))
        return self.past

    def gone(self, places: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """See Remote."""
        return {place for place in places if self.ids.get(place, "") is None}

    def ranges(
        self, queues: list[MessageQueue], *, with_left: bool = False
    ) -> dict[MessageQueue, tuple[int, int]]:
        """See Remote."""
        return {queue: self.held[queue] for queue in queues}

    def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """See Remote."""
        return {queue: self.unserved.get(queue, 0) for queue in queues}

    def store_times(self, offsets: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """See Remote."""
        return {
            queue: self.times[queue, at]
            for queue, at in offsets.items()
            if (queue, at) in self.times
        }

    def request(self, broker: str, code: RequestCode, ext: dict[str, str]) -> Command:
        """Return a broker's state of a sink."""
        assert code == RequestCode.SINK_STATUS
        state = self.sinks.get(broker)
        if state is None:
            refused = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            raise PipelineError("refused") from RequestRefusedError(code, refused, "", broker)
        status = SinkStatusResponse(
            last_batch_id=state.last_batch, staged_bytes=0, owner=state.owner, home=state.home
        )
        return Command(code=0, ext=encode_fields(status))


def queues_of(topic: str, broker: str, count: int, high: int = 0) -> dict[MessageQueue, Any]:
    """Return queues of a topic on a broker, each with messages [0, high)."""
    return {MessageQueue(topic, broker, number): (0, high) for number in range(count)}


def told(monkeypatch: pytest.MonkeyPatch, brokers: ToldBrokers, *modules: str) -> ToldBrokers:
    """Make these modules of the pipeline connect to *brokers*."""
    for module in modules:
        monkeypatch.setattr(f"rockhopper.pipeline.{module}.connect", brokers)
    return brokers
