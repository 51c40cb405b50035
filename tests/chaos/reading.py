"""Reads all messages of a broker after a fault, and waits for the pending ones."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.chaos import topics
from tests.chaos.ledger import LATER, Kind, Ledger
from tests.chaos.lives import living
from tests.chaos.popping import pop_everything
from tests.chaos.sinking import last_batch_id
from tests.chaos.verdict import Found, Sighting
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import RawPeer
from tests.support.wire import WireClient

PATIENCE_S = 60.0
POP_PATIENCE_S = 20.0
LOOK_AGAIN_S = 0.1
MARKER = b"marker "


class Reader:
    """Reads all queues on one connection, each from where it stopped."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._positions = defaultdict[tuple[str, int], int](int)
        self.found = Found()
        self.marked: set[bytes] = set()

    async def read(self, names: tuple[str, ...] = (*topics.READ_BACK, topics.PARCELS)) -> None:
        """Read the messages that arrived since the last call."""
        async with WireClient(self._address) as client:
            for topic in names:
                for queue_id in range(topics.queue_count(topic)):
                    await self._read_queue(client, topic, queue_id)

    async def _read_queue(self, client: WireClient, topic: str, queue_id: int) -> None:
        while True:
            offset = self._positions[topic, queue_id]
            fields = pull_fields(topic, offset, queue_id) | {"consumerGroup": topics.READERS}
            answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
            messages = decode_messages(answer.body)
            if answer.code == ResponseCode.SYSTEM_ERROR:
                self.found.problems.append(f"a pull of {topic} was refused: {answer.remark}")
            for message in messages:
                if message.body.startswith(MARKER):
                    self.marked.add(message.body)
                    continue
                self.found.messages.append(
                    Sighting(
                        topic,
                        message.body,
                        message.queue_id,
                        message.queue_offset,
                        message.store_time_ms,
                    )
                )
            following = int((answer.ext or {}).get("nextBeginOffset", offset))
            if following <= offset:
                return
            self._positions[topic, queue_id] = following


async def read_in_a_new_life(
    store: Path,
    ledger: Ledger,
    moment_s: float = float("inf"),
    *,
    environment: Mapping[str, str] | None = None,
    **settings: object,
) -> Found:
    """Start a broker on *store*, read everything back as ``read_back`` does, and kill it."""
    async with living(store, environment, **settings) as life:
        found = await read_back(life.address, ledger, moment_s)
        found.problems += life.complaints()
        found.start_s = life.start_s
    return found


async def read_back(
    address: str, ledger: Ledger, moment_s: float = float("inf"), *, marks: bool = True
) -> Found:
    """Return everything that the broker has, once the delayed messages are due.

    Only messages that were acknowledged before *moment_s* are waited for.
    """
    reader = Reader(address)
    if marks:
        await send_markers(address)
    await reader.read()
    await _wait_for_the_rest(reader, ledger, moment_s, marks=marks)
    owed = {
        fact.body
        for fact in ledger.facts.values()
        if fact.kind is Kind.POPPED and fact.is_owed(moment_s) and fact.settling_s is None
    }
    reader.found.popped = await pop_everything(address, owed, POP_PATIENCE_S)
    reader.found.offsets = await committed_offsets(address)
    async with RawPeer(address) as peer:
        reader.found.last_batch_id = await last_batch_id(peer)
    return reader.found


async def _wait_for_the_rest(
    reader: Reader, ledger: Ledger, moment_s: float, *, marks: bool
) -> None:
    """Wait until nothing is pending.

    Delay levels and timers deliver in order, so nothing is pending once the markers have arrived.
    """
    owed = {
        key for key, fact in ledger.facts.items() if fact.kind in LATER and fact.is_owed(moment_s)
    }
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    while asyncio.get_running_loop().time() < deadline_s:
        owed -= {(one.topic, one.body) for one in reader.found.messages}
        if len(reader.marked) == len(MARKERS) if marks else not owed:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
        await reader.read((topics.LATER, topics.TIMED, topics.RETRY))
    await reader.read((topics.LATER, topics.TIMED, topics.RETRY))


MARKERS = {
    MARKER + b"1": (topics.LATER, "DELAY\x011\x02"),
    MARKER + b"2": (topics.LATER, "DELAY\x012\x02"),
    MARKER + b"t": (topics.TIMED, "TIMER_DELAY_MS\x012500\x02"),
}


async def send_markers(address: str) -> None:
    """Send markers, which are delivered after all messages that are pending now."""
    async with WireClient(address) as client:
        for body, (topic, properties) in MARKERS.items():
            fields = send_fields(topic) | {"properties": properties}
            answer = await client.ask(RequestCode.SEND_MESSAGE, fields, body)
            if answer.code != ResponseCode.SUCCESS:
                raise OSError(f"a message was refused after the start: {answer.remark}")


async def committed_offsets(address: str) -> dict[int, int]:
    """Return queue id -> committed offset of the reading group."""
    found = {}
    async with WireClient(address) as client:
        for queue_id in range(topics.QUEUES):
            fields = {
                "consumerGroup": topics.READERS,
                "topic": topics.PLAIN,
                "queueId": str(queue_id),
            }
            answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            if answer.code == ResponseCode.SUCCESS:
                found[queue_id] = int((answer.ext or {})["offset"])
    return found
