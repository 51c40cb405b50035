"""A broker in a thread of its own, for tests of blocking code: Spark's sources and sinks."""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, Self, TypeVar

from rockhopper.broker import Broker
from rockhopper.client import Admin, Message, Producer
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.tls import Tls
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import AUTO_CREATE_TOPIC
from rockhopper.protocol.requests import CreateTopicRequest, encode_fields
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE
from tests.support.hang import HANG_S

_Value = TypeVar("_Value")


class PipelineBroker:
    """A temporary broker; ``with`` starts it."""

    def __init__(
        self, *, tls: Tls = None, credentials: CredentialsChoice = None, **settings: object
    ) -> None:
        """*tls* and *credentials* are those of its own clients."""
        self._access: dict[str, Any] = {"tls": tls, "credentials": credentials}
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _make(self) -> Broker:
        return Broker.temporary(self._settings)

    async def _start(self) -> None:
        self.broker = self._make()
        await self.broker.start()
        self.nameserver = self.broker.nameserver
        self.producer = await Producer(self.nameserver, **self._access).start()
        self.admin = await Admin(self.nameserver, **self._access).__aenter__()
        name = self.broker.config.broker_name
        async with asyncio.timeout(HANG_S):
            while name not in {each.name for each in await self.admin.brokers()}:
                pass

    async def _stop(self) -> None:
        await self.producer.close()
        await self.admin.close()
        await self.broker.stop()

    def beside(self, name: str = "broker-b") -> "PipelineBroker":
        """Return another broker for the same name server; ``with`` starts it."""
        return PipelineBroker(
            role="broker", namesrvAddr=self.nameserver, brokerName=name, remoteAdmin="true"
        )

    def run(self, coroutine: Coroutine[Any, Any, _Value]) -> _Value:
        """Run *coroutine* in the broker's thread, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(HANG_S)

    def create(self, topic: str, queues: int = 4, **options: Any) -> None:
        """Create or change a topic."""
        self.run(self._create(topic, queues, options))

    async def _create(self, topic: str, queues: int, options: dict[str, Any]) -> None:
        await self.admin.create_topic(topic, queues=queues, **options)
        # A broker with a remote name server registers changes a moment later.
        count = queues * len(await self.admin.masters())
        async with asyncio.timeout(HANG_S):
            while len((await self.admin.route(topic)).write_queues) != count:
                pass
        self.producer.session.routes.forget(topic)

    def shrink(self, topic: str, queues: int) -> None:
        """Reduce a topic's queues even if they hold messages, like RocketMQ's tools."""
        self.run(self._shrink(topic, queues))

    async def _shrink(self, topic: str, queues: int) -> None:
        fields = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ | PERM_WRITE,
            topic_sys_flag=0,
        )
        (master,) = await self.admin.masters()
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await self.admin.request(master.address, code, encode_fields(fields))
        async with asyncio.timeout(HANG_S):
            while len((await self.admin.route(topic)).read_queues) != queues:
                pass

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.run(self.admin.delete_topic(topic))

    def send(
        self,
        topic: str,
        bodies: Iterable[str],
        queue: MessageQueue | int | None = None,
        **parts: Any,
    ) -> None:
        """Send a batch of messages."""
        messages = [Message(topic, body.encode(), **parts) for body in bodies]
        self.run(self.producer.send_batch(messages, queue=queue))

    def stored(self, topic: str) -> list[StoredMessage]:
        """Return all messages of a topic, by queue and offset."""
        return self.run(self._stored(topic))

    async def _stored(self, topic: str) -> list[StoredMessage]:
        store = self.broker.store
        found: list[StoredMessage] = []
        for queue_id in range(16):
            offset, end = store.reading.queue_range(topic, queue_id)
            while offset < end:
                read = store.reading.get_bulk(topic, queue_id, offset, 16_384, 8 << 20)
                found += decode_messages(read.body)
                offset = read.next_offset
        return found

    def bodies(self, topic: str) -> list[str]:
        """Return the bodies of all messages of a topic, sorted."""
        return sorted(message.decompressed_body().decode() for message in self.stored(topic))
