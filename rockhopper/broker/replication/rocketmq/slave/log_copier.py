"""Copying a master's log: one connection to its haListenPort, reopened until it is stopped.

Each connection first requests the last local bytes again and compares them. This detects another
master, and a master whose log was truncated and written again, even if the ends match.

A copy that does not match is never truncated. The error is logged and the connection retried,
because the master may be a different one by then.

    the copy ends at 9000    the first request of a new connection is for 4904: 4,096 bytes back
    the bytes are equal      the copy continues at 9000
    the bytes differ         DivergedError is logged; the copy stays as it is
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rockhopper.broker.name_server.followed_master import DivergedError, FollowError, MasterFacts
from rockhopper.broker.server.listening.outgoing import PLAIN, Outgoing
from rockhopper.broker.store.files.errors import LogMismatchError, StoreError, StoreFailedError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.addresses import split_address
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.ha_frames import HaFrame, HaFrameDecoder, encode_report
from rockhopper.sockets import connect

log = structlog.get_logger("broker.following")

COMPARED_SIZE_BYTES = 4096
READ_SIZE_BYTES = 256 << 10
RECONNECT_PAUSES_S = (0.5, 1.0, 2.0, 5.0)


class LogCopier:
    """Appends the master's bytes to *store*. Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        ask: Callable[[], Awaitable[MasterFacts]],
        *,
        heartbeat_s: float,
        silence_s: float,
        pauses_s: tuple[float, ...] = RECONNECT_PAUSES_S,
        outgoing: Outgoing = PLAIN,
    ) -> None:
        """*ask* is called before each connection.

        *pauses_s* lie between attempts; the last one repeats.
        """
        self._store = store
        self._ask = ask
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._pauses_s = pauses_s
        self._outgoing = outgoing
        self.is_connected = False
        self.problem: str | None = None
        """Why nothing is being copied; None while it works."""
        self.connections = 0
        self._progress = 0
        self._came = asyncio.Event()

    async def caught_up(self, end: int) -> None:
        """Return once the copy reaches *end*."""
        while self._store.log.written_offset < end:
            self._came.clear()
            await self._came.wait()

    async def run(self) -> None:
        """Copy until cancelled, or until the store fails."""
        tries = 0
        while self._store.failure is None:
            before = self._progress
            try:
                await self._connect_and_copy()
            except StoreFailedError:
                return
            except (OSError, ProtocolError, FollowError, StoreError) as error:
                self._tell(str(error) or type(error).__name__)
            finally:
                self.is_connected = False
            tries = 0 if self._progress > before else tries + 1
            await asyncio.sleep(self._pauses_s[min(tries, len(self._pauses_s) - 1)])

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            log.error("the master's log cannot be copied", reason=problem)
        self.problem = problem

    async def _connect_and_copy(self) -> None:
        self._store.log.drop_torn()
        start, known = self._store.log.last_bytes(COMPARED_SIZE_BYTES)
        facts = await self._ask()
        check_fits(facts, start + len(known))
        if start == 0:
            # A first report of 0 requests only the newest file; byte 0 of a log is 0.
            if not known:
                self._store.append_raw(0, b"\0")
            start, known = 1, known[1:]
        host, port = split_address(facts.ha_address)
        if port is None:
            raise ConnectionError(f"the master's HA address {facts.ha_address!r} has no port")
        async with asyncio.timeout(self._silence_s):
            options = self._outgoing.options(host)
            connected = await connect(host, port, self._silence_s)
            reader, writer = await asyncio.open_connection(
                sock=connected, limit=READ_SIZE_BYTES, **options
            )
        try:
            await self._copy(reader, writer, _NextFrame(self._store, start, known))
        finally:
            writer.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, expected: "_NextFrame"
    ) -> None:
        loop = asyncio.get_running_loop()
        decoder = HaFrameDecoder()
        heard_s = reported_s = loop.time()
        writer.write(encode_report(expected.offset))
        while True:
            data = None
            due_s = min(heard_s + self._silence_s, reported_s + self._heartbeat_s)
            try:
                async with asyncio.timeout_at(due_s):
                    data = await reader.read(READ_SIZE_BYTES)
            except TimeoutError:
                if loop.time() >= heard_s + self._silence_s:
                    raise ConnectionResetError(
                        f"the master was silent for {self._silence_s:g} s"
                    ) from None
            if data == b"":
                raise ConnectionResetError("the master closed the connection")
            if data is not None:
                heard_s = loop.time()
                frames = decoder.feed(data)
                for frame in frames:
                    expected.append(frame)
                if frames:
                    self._is_copying()
                self._progress += len(data)
                if not any(frame.data for frame in frames):
                    continue
            reported_s = loop.time()
            writer.write(encode_report(self._store.log.received_offset))
            await writer.drain()

    def _is_copying(self) -> None:
        if not self.is_connected:
            self.connections += 1
            log.info("copying the master's log", from_offset=self._store.log.received_offset)
        self.is_connected, self.problem = True, None
        self._came.set()


class _NextFrame:
    """The expected beginning of the next frame."""

    def __init__(self, store: MessageStore, offset: int, known: bytes) -> None:
        """*known* are the last bytes of the copy, from *offset* on."""
        self._store = store
        self.offset = offset
        self._known = known

    def append(self, frame: HaFrame) -> None:
        """Compare the bytes that are already here, and append the rest.

        Raises:
            DivergedError: the bytes differ.
            LogMismatchError: the frame is not the requested one.
            StoreError: the store cannot append now.
        """
        if frame.offset != self.offset:
            raise LogMismatchError(
                f"the master sent offset {frame.offset} instead of {self.offset}"
            )
        both = min(len(self._known), len(frame.data))
        if self._known[:both] != frame.data[:both]:
            end = self._store.log.received_offset
            raise DivergedError(
                f"the copy that ends at offset {end} is not the master's "
                f"log: bytes from {self.offset} on differ. Nothing was changed; to copy that "
                "master, follow it with an empty directory"
            )
        self._known = self._known[both:]
        self.offset += len(frame.data)
        if len(frame.data) > both:
            self._store.append_raw(self._store.log.received_offset, frame.data[both:])


def check_fits(facts: MasterFacts, end: int) -> None:
    """Raise DivergedError if a copy that ends at *end* cannot continue the master's log."""
    if end > facts.log_max_offset:
        raise DivergedError(
            f"the copy ends at offset {end}, beyond the end of the master's log at "
            f"{facts.log_max_offset}: the master lost its end, or is another master. Nothing was "
            "cut. To keep the copy, stop that master and take over with --force; to copy the "
            "master as it is now, follow it with an empty directory"
        )
    if end < facts.log_min_offset:
        raise DivergedError(
            f"the copy ends at offset {end}, but the master's log starts at "
            f"{facts.log_min_offset}: the messages between them have expired there. Follow it "
            "with an empty directory"
        )
