"""A broker without sockets: all its parts over a real store, called through its real table.

Requests are commands, and answers are decoded frames, so a test sees what a client would get.
"""

import asyncio
from pathlib import Path

from rockhopper.broker.app import FEATURES
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.kernel.send.sender import Placed
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.processor_table import build_table
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import apply_live, build_config
from rockhopper.broker.store.put import MessageToStore, PutResult
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.addresses import host_bytes
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, FrameDecoder
from tests.support.hang import HANG_S
from tests.support.peers import Clock, Peer

STORE_HOST = host_bytes("127.0.0.1", 10_911)
BORN_HOST = host_bytes("10.1.2.3", 4567)
SETTINGS = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 500),
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


class ServedBroker(BrokerCore):
    """The parts of a broker under their names in Broker, and how to send requests to it."""

    feature_list = FEATURES

    def __init__(
        self, root: Path, clock: Clock, settings: dict[str, str], access: AccessRules | None = None
    ) -> None:
        self.config: BrokerConfig = build_config(
            SETTINGS | settings | {"storePathRootDir": str(root)}
        )
        self.clock = BrokerClock(clock, clock.monotonic_ns)
        self.access = access or AccessRules(remote_admin=False)
        self.stats = BrokerStats(now_ms=clock)
        self.announced = 0
        self.load_tables()
        self.open_store(STORE_HOST)
        # A machine that stalls uses no budget: time passes only when a test advances it.
        budget = self.store.reading.reader.budget
        began_s = budget.clock()
        budget.clock = lambda: began_s + clock.monotonic_ns() / 1e9
        self.build(STORE_HOST)
        if (pop := self.features.get("pop")) is not None:
            pop.open()
        self.dispatcher = Dispatcher(build_table(self), self.access)

    async def announce(self) -> None:
        """Count the notifications of name servers."""
        self.announced += 1

    def change_config(self, config: BrokerConfig) -> None:
        """Apply other run-time settings."""
        apply_live(self.config, config)

    def create_topic(self, name: str, queues: int = 4, perm: int = 6) -> None:
        """Create a topic."""
        self.tables.topics.put(
            TopicConfig(name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        )

    def put(
        self,
        topic: str,
        body: bytes = b"hello",
        *,
        queue_id: int = 0,
        properties: str = "",
        reconsume_times: int = 0,
    ) -> PutResult:
        """Store one message."""
        return self.store.put(
            MessageToStore(
                topic,
                queue_id,
                body,
                properties,
                born_time_ms=1234,
                born_host=BORN_HOST,
                reconsume_times=reconsume_times,
            )
        )

    def send(self, send: Send) -> tuple[Placed, int]:
        """Store one message, or one batch; return its place and the end of the log."""
        placed = self.kernel.sender.stage(send)
        end, error = self.kernel.sender.commit([placed])
        if error is not None:
            raise error
        return placed, end

    async def ask(
        self,
        code: RequestCode,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        peer: Peer | None = None,
        version: int = 479,
    ) -> Command:
        """Send a request and return its answer."""
        peer = peer or Peer()
        peer.written.clear()
        peer.answered.clear()
        answer = self.begin(peer, Command(code=code, opaque=7, ext=ext, body=body, version=version))
        if not answer:
            async with asyncio.timeout(HANG_S):
                await peer.answered.wait()
            (answer,) = peer.written
        decoder = FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE)
        ((serialize_type, header, answer_body),) = decoder.feed(answer)
        response = decode_header(serialize_type, header, answer_body)
        assert response.opaque == 7
        return response

    def begin(self, peer: Peer, command: Command) -> bytes:
        """Submit a request; return its immediate answer."""
        return self.dispatcher.dispatch(peer.connection, command)

    async def close(self) -> None:
        """Close the store."""
        self.kernel.scheduled.delayed.stop()
        for part in self.features.values():
            part.stop()
        if (pop := self.features.get("pop")) is not None:
            await pop.close()  # type: ignore[misc]
        await self.store.close()
