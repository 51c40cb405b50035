"""A broker that delivers timer messages in a test's own time; it can be killed at any point."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from rockhopper.broker.kernel.scheduled.timers.recall_handle import decode_recall_handle
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TIMER_TOPIC
from rockhopper.protocol.properties import encode_properties, join_properties
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.killed_store import copy_killed
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker
from tests.support.stepped_loop import SteppedLoop

START_MS = 1_700_000_000_000


class TimerRig:
    """A served broker with running timers; time passes on both clocks only on request."""

    def __init__(
        self,
        root: Path,
        settings: Mapping[str, str] | None = None,
        start_ms: int = START_MS,
    ) -> None:
        self.root = root
        self.settings = dict(settings or {})
        self.clock = Clock(start_ms)
        self.loop = SteppedLoop()
        self.broker = self._make()
        self._kills = 0

    def _make(self) -> ServedBroker:
        broker = ServedBroker(self.root, self.clock, self.settings)
        broker.create_topic("orders")
        return broker

    def start(self) -> None:
        """Open the timers and start to deliver."""

        async def start() -> None:
            self.broker.kernel.scheduled.timers.open()
            self.broker.kernel.scheduled.timers.start()

        self.loop.run(start())

    def restart(self) -> None:
        """Stop cleanly and start on the same store."""

        async def stop() -> None:
            self.flush()
            await self.broker.kernel.scheduled.timers.close()
            await self.broker.store.close()

        self.loop.run(stop())
        self.broker = self._make()
        self.start()

    def kill(self, *, start: bool = True) -> None:
        """Continue with the current files, as after kill -9; the old broker is dropped."""
        self._kills += 1
        copy = self.root.with_name(f"{self.root.name}-{self._kills}")
        copy_killed(self.root, copy)
        self._forget()
        self.root = copy
        self.broker = self._make()
        if start:
            self.start()

    def _forget(self) -> None:
        broker = self.broker

        async def close() -> None:
            broker.kernel.scheduled.timers.stop()
            if broker.kernel.scheduled.timers.saver.running is not None:
                await broker.kernel.scheduled.timers.saver.running
            broker.kernel.scheduled.timers.index.close()
            await broker.store.close()

        self.loop.run(close())
        shutil.rmtree(self.root)

    def flush(self) -> None:
        """Flush the commit log, like the flush service every half second."""
        self.broker.store.flush_now()

    def save(self) -> None:
        """Save the checkpoint, as happens every few seconds."""

        async def save() -> None:
            if self.broker.kernel.scheduled.timers.saver.running is not None:
                await self.broker.kernel.scheduled.timers.saver.running
            self.flush()
            self.broker.kernel.scheduled.timers.saver.save_now()

        self.loop.run(save())

    def send(
        self,
        properties: Mapping[str, str],
        body: bytes = b"hello",
        topic: str = "orders",
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    ) -> Command:
        """Send a message to queue 1; return the answer."""
        fields = {
            "a": "producers",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": "1",
            "f": "0",
            "g": "1234",
            "h": "0",
            "i": join_properties(dict(properties)),
            "j": "0",
        }

        async def ask() -> Command:
            return await self.broker.ask(code, fields, body)

        return self.loop.run(ask())

    def put_waiting(self, messages: Iterable[tuple[bytes, int]]) -> None:
        """Store bodies with their times like ``send``, but without requests."""

        async def put() -> None:
            for body, due_ms in messages:
                properties = {"UNIQ_KEY": body.decode()}
                place = self.broker.kernel.scheduled.timers.redirect(
                    "orders", 1, properties, due_ms
                )
                text = encode_properties(properties)
                self.broker.put(place[0], body, queue_id=place[1], properties=text)

        self.loop.run(put())

    def recall(self, handle: str, topic: str = "orders") -> Command:
        """Recall a message."""

        async def ask() -> Command:
            fields = {"producerGroup": "producers", "topic": topic, "recallHandle": handle}
            return await self.broker.ask(RequestCode.RECALL_MESSAGE, fields)

        return self.loop.run(ask())

    def wait(self, seconds: float) -> None:
        """Advance both clocks in one step."""
        self.clock.advance(round(seconds * 1000))
        self.loop.advance(seconds)

    def delivered(self, topic: str = "orders", queue_id: int = 1) -> list[StoredMessage]:
        """Return all delivered messages."""
        messages: list[StoredMessage] = []
        offset, high = self.broker.store.reading.queue_range(topic, queue_id)
        while offset < high:
            result = self.broker.store.reading.get_message(topic, queue_id, offset, 32)
            messages += decode_messages(result.body)
            offset = result.next_offset
        return messages

    def bodies(self) -> list[bytes]:
        """Return the delivered bodies."""
        return [message.body for message in self.delivered()]

    def waiting_messages(self) -> list[StoredMessage]:
        """Return the messages in the timer topic, whatever their state."""
        return self.delivered(TIMER_TOPIC, 0)

    @property
    def pending(self) -> int:
        """The number of messages that the broker reports as waiting."""
        return self.broker.kernel.scheduled.timers.pending_count

    def close(self) -> None:
        """Close store and loop."""

        async def close() -> None:
            self.flush()
            await self.broker.kernel.scheduled.timers.close()
            await self.broker.store.close()

        self.loop.run(close())
        self.loop.close()


def handle_of(answer: Command) -> str:
    """Return the recall handle of an answer, after a check of its content."""
    text = (answer.ext or {})["recallHandle"]
    assert decode_recall_handle(text).topic
    return text
