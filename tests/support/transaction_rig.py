"""A broker without sockets that handles transactions, with a clock that tests advance."""

from pathlib import Path

from rockhopper.broker.kernel.members.consumer_groups import Client
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.features import transactions_of
from tests.support.killed_store import copy_killed
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker
from tests.support.stepped_loop import SteppedLoop
from tests.support.transactions import GROUP, Half, end_fields, half_fields, half_of

CHECK = int(RequestCode.CHECK_TRANSACTION_STATE)


class TransactionRig:
    """Both clocks, the wall clock and the loop's, stand still unless a test advances them."""

    def __init__(self, root: Path, settings: dict[str, str] | None = None) -> None:
        self.root = root
        self.settings = settings or {}
        self.loop = SteppedLoop()
        self.clock = Clock()
        self.open()

    def open(self) -> None:
        """Open the store and begin."""
        self.broker = ServedBroker(self.root, self.clock, self.settings)
        self.broker.tables.offsets.load()
        self.broker.create_topic("orders")

        async def start() -> None:
            transactions_of(self.broker).counts.start_saving()
            transactions_of(self.broker).start()

        self.loop.run(start())

    def flush(self) -> None:
        """Flush everything to disk."""
        self.broker.store.flush_now()

    def restart(self) -> None:
        """Stop cleanly and open the same store again."""

        async def stop() -> None:
            transactions_of(self.broker).settle()
            self.flush()
            await transactions_of(self.broker).close()
            await transactions_of(self.broker).counts.on_disk()
            self.broker.tables.offsets.save()
            await self.broker.store.close()

        self.loop.run(stop())
        self.open()

    def reopen(self) -> None:
        """Open the current store, as if another broker had written it."""
        self.drop()
        self.open()

    def crash(self, copy: Path) -> None:
        """Continue with the files as the operating system has them now, as after a kill."""
        copy_killed(self.root, copy)
        self.drop()
        self.root = copy
        self.open()

    def drop(self) -> None:
        """Close the store without saving."""

        async def stop() -> None:
            await transactions_of(self.broker).counts.saved()
            await self.broker.close()

        self.loop.run(stop())

    def close(self) -> None:
        """Close store and loop."""
        self.drop()
        self.loop.close()

    def ask(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> Command:
        """Send a request and return its answer."""
        return self.loop.run(self.broker.ask(code, fields, body))

    def send(self, key: str = "K1", topic: str = "orders", **properties: str) -> Half:
        """Send a half message."""
        fields = half_fields(topic, key, born_ms=self.clock.now_ms, **properties)
        return half_of(self.ask(RequestCode.SEND_MESSAGE_V2, fields, b"pay " + key.encode()))

    def end(self, half: Half, how: int, **changes: object) -> int:
        """End a transaction; return the code of the answer."""
        return self.ask(RequestCode.END_TRANSACTION, end_fields(half, how, **changes)).code

    def producer(self, name: str = "p1", group: str = GROUP) -> Peer:
        """Bring a producer online."""
        peer = Peer()

        async def register() -> None:
            client = Client(peer.connection, name, 0, 479)
            self.broker.kernel.producers.register(group, client)

        self.loop.run(register())
        return peer

    def pass_time(self, seconds: float, step_s: float = 1.0) -> None:
        """Advance both clocks."""
        while seconds > 0:
            step = min(step_s, seconds)
            self.clock.advance(round(step * 1000))
            self.loop.advance(step)
            seconds -= step

    def messages(self, topic: str = "orders", queue_id: int = 0) -> list[StoredMessage]:
        """Return the messages of a queue."""
        found: list[StoredMessage] = []
        offset, end = self.broker.store.reading.queue_range(topic, queue_id)
        while offset < end:
            result = self.broker.store.reading.get_message(topic, queue_id, offset, 32)
            found += decode_messages(result.body)
            offset = max(result.next_offset, offset + 1)
        return found

    def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        """Return the bodies of a queue's messages."""
        return [message.body for message in self.messages(topic, queue_id)]

    @property
    def open_count(self) -> int:
        """The number of open half messages."""
        return len(transactions_of(self.broker).halves)


def checks(peer: Peer) -> list[int]:
    """Return and forget the half queue offsets that a producer was asked about."""
    asked = [int(ext["tranStateTableOffset"]) for code, ext in peer.requests if code == CHECK]
    peer.requests.clear()
    return asked
