"""What the hot pass knows of the kernel and of the features: these parts, and no others."""

from collections.abc import Callable
from typing import Protocol

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.pull.long_polling import LongPolling
from rockhopper.broker.kernel.pull.puller import Puller
from rockhopper.broker.kernel.pull.reader_positions import ReaderPositions
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.latencies import RequestTimes
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.message_ids import UniqueIds


class FastPath(Protocol):
    """The fast path of a feature: the hot pass serves consecutive plain requests of one kind."""

    code: int
    """The code of these requests."""

    def serve(self, batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Serve requests from frame *first* on, and hand their answers to *batch*.

        Returns how many were served; 0, with nothing done, if the first must take the general path.
        """


HalvesOpened = Callable[[list[tuple[int, int, str]]], None]
"""Called with half messages: queue offset, log offset and producer group of each."""


class HotTables(Protocol):
    """The tables that the hot pass reads."""

    @property
    def topics(self) -> TopicTable: ...

    @property
    def groups(self) -> SubscriptionGroupTable: ...

    @property
    def offsets(self) -> ConsumerOffsetTable: ...


class HotKernel(Protocol):
    """What the hot pass uses of the Kernel."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def clock(self) -> BrokerClock: ...

    @property
    def stats(self) -> BrokerStats: ...

    @property
    def store(self) -> MessageStore: ...

    @property
    def store_host(self) -> bytes: ...

    @property
    def tables(self) -> HotTables: ...

    @property
    def consumers(self) -> ConsumerGroups: ...

    @property
    def positions(self) -> ReaderPositions: ...

    @property
    def puller(self) -> Puller: ...

    @property
    def long_polling(self) -> LongPolling: ...

    @property
    def delay_levels(self) -> DelayLevels: ...

    @property
    def unique_ids(self) -> UniqueIds: ...

    @property
    def listeners(self) -> list[KernelListener]: ...

    @property
    def request_times(self) -> RequestTimes: ...


class HotFeature(Protocol):
    """What the hot pass uses of a FeaturePart, which describes both."""

    fast: FastPath | None
    halves_opened: HalvesOpened | None
