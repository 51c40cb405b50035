"""A client of RocketMQ 5 in memory: HTTP/2 by the library h2, without a socket.

Its requests and answers pass through a real connection object of the broker.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from rockhopper.broker.gateways.grpc.activities.routes import BrokerQueues
from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.connection import GrpcConnection
from rockhopper.broker.gateways.grpc.gateway import GrpcGateway
from rockhopper.protocol.grpc_v2.framing import MessageSplitter, encode_frame
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE, Method
from tests.support.hang import HANG_S
from tests.support.served_broker import ServedBroker

GRPC_ADDRESS = "127.0.0.1:8081"
CLIENT_ID = "host@1@0@abc"
FRAME_BYTES = 16_384


class Pipe:
    """A transport that passes on the written data."""

    def __init__(self, peer_host: str) -> None:
        self._names = {"peername": (peer_host, 40_000), "sockname": ("127.0.0.1", 8081)}
        self.written = bytearray()
        self.is_closed = False
        self.is_paused = False
        self.unread_bytes = 0
        self.on_written: Any = lambda: None
        self.on_closed: Any = lambda: None

    def get_extra_info(self, name: str) -> object:
        return self._names.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        del high

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes) -> None:
        if not self.is_closed and data:
            self.written += data
            self.on_written()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.on_closed()

    abort = close


class Answer:
    """The received part of the answer to one call."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply
        self._reader = MessageSplitter("identity", 1 << 26)
        self.fields: dict[str, str] = {}
        self.messages: list[Any] = []
        self.body = b""
        self.is_ended = False
        self.was_reset: int | None = None
        self._changed = asyncio.Event()

    @property
    def status(self) -> str:
        """The status of gRPC."""
        return self.fields.get("grpc-status", "")

    def took(self, event: Any) -> None:
        if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            self.fields |= {_text(name): _text(value) for name, value in event.headers}
        elif isinstance(event, h2.events.DataReceived):
            self.body += event.data
            if self.fields[":status"] == "200":
                self.messages += map(self._reply.FromString, self._reader.feed(event.data))
        elif isinstance(event, h2.events.StreamEnded):
            self.is_ended = True
        elif isinstance(event, h2.events.StreamReset):
            self.is_ended, self.was_reset = True, event.error_code
        self._changed.set()

    async def until(self, count: int) -> list[Any]:
        """Return when *count* messages have arrived, or the call has ended."""
        async with asyncio.timeout(HANG_S):
            while len(self.messages) < count and not self.is_ended:
                self._changed.clear()
                await self._changed.wait()
        return self.messages

    async def ended(self) -> "Answer":
        """Return when the call has ended."""
        await self.until(1 << 30)
        return self


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class GrpcClient:
    """One connection, and the calls on it."""

    def __init__(
        self, gateway: GrpcGateway, peer_host: str = "127.0.0.1", window: int = 1 << 24
    ) -> None:
        self.pipe = Pipe(peer_host)
        self.connection = GrpcConnection(gateway.server)
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self._h2.initiate_connection()
        self._h2.update_settings({4: window})
        self._h2.increment_flow_control_window(1 << 24)
        self._answers: dict[int, Answer] = {}
        self.goaway = False
        self.takes = True
        """Whether it opens its flow-control window again after receiving data."""
        self._received = 0
        self._is_lost = False
        self._holds_back = False
        self.pipe.on_written = self._take
        self.pipe.on_closed = lambda: asyncio.get_running_loop().call_soon(self._lost)
        self.connection.connection_made(cast("asyncio.Transport", self.pipe))
        self._flush()

    @contextlib.contextmanager
    def in_one_read(self) -> Iterator[None]:
        """Make all requests inside the block arrive together."""
        self._holds_back = True
        yield
        self._holds_back = False
        self._flush()

    def _flush(self) -> None:
        data = b"" if self._holds_back else self._h2.data_to_send()
        if data and not self.connection.closed:
            self.connection.data_received(data)

    def _take(self) -> None:
        data = bytes(self.pipe.written)
        self.pipe.written.clear()
        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = True
            if isinstance(event, h2.events.DataReceived) and self.takes:
                self._received += event.flow_controlled_length
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            answer = self._answers.get(getattr(event, "stream_id", None) or 0)
            if answer is not None:
                answer.took(event)
        asyncio.get_running_loop().call_soon(self._flush)

    def begin(
        self, rpc: str, client_id: str | None = CLIENT_ID, **fields: str
    ) -> tuple[int, Answer]:
        """Open a call; return its stream, and the answer."""
        method = METHODS.get(rpc) or Method(rpc, None, None, False, False)
        return self.begin_other(SERVICE, method, client_id, **fields)

    def begin_other(
        self, service: str, method: Method, client_id: str | None = None, **fields: str
    ) -> tuple[int, Answer]:
        """Open a call to any service."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        stream_id = self._h2.get_next_available_stream_id()
        answer = self._answers[stream_id] = Answer(method.reply)
        head = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/{service}/{method.name}",
            ":authority": GRPC_ADDRESS,
            "te": "trailers",
            "content-type": "application/grpc",
            **({} if client_id is None else {"x-mq-client-id": client_id}),
            **named,
        }
        self._h2.send_headers(stream_id, list(head.items()))
        self._flush()
        return stream_id, answer

    def send(self, stream_id: int, message: Any, *, is_end: bool = False) -> None:
        """Send one message of a call."""
        self._h2.send_data(stream_id, encode_frame(message.SerializeToString()), end_stream=is_end)
        self._flush()

    def send_raw(self, stream_id: int, data: bytes) -> None:
        """Send *data* as the whole request of a call."""
        self._h2.send_data(stream_id, data, end_stream=True)
        self._flush()

    def send_part(self, stream_id: int, size_bytes: int, whole_bytes: int) -> None:
        """Send the first *size_bytes* of a message of *whole_bytes*, until the stream is closed."""
        data = (b"\0" + whole_bytes.to_bytes(4, "big")).ljust(size_bytes, b"x")
        for begin in range(0, size_bytes, FRAME_BYTES):
            with contextlib.suppress(h2.exceptions.StreamClosedError):
                self._h2.send_data(stream_id, data[begin : begin + FRAME_BYTES])
            self._flush()
            # The next frame needs the windows that the broker opened.
            self.connection.flush()

    def end(self, stream_id: int) -> None:
        """End the sending side of a call."""
        self._h2.end_stream(stream_id)
        self._flush()

    def cancel(self, stream_id: int) -> None:
        """Cancel a call."""
        self._h2.reset_stream(stream_id, 8)
        self._flush()

    def make_room(self, stream_id: int, size_bytes: int) -> None:
        """Accept *size_bytes* more of an answer."""
        self._h2.increment_flow_control_window(size_bytes, stream_id)
        self._flush()

    def ask_for(self, rpc: str, request: Any, **fields: str) -> Answer:
        """Begin a call with one request."""
        stream_id, answer = self.begin(rpc, **fields)
        self.send(stream_id, request, is_end=True)
        return answer

    async def ask(self, rpc: str, request: Any, **fields: str) -> Any:
        """Return the reply to one request."""
        answer = await self.ask_for(rpc, request, **fields).ended()
        assert answer.status == "0", answer.fields
        (reply,) = answer.messages
        return reply

    def lose(self) -> None:
        """Lose the connection."""
        self.pipe.close()
        self._lost()

    def _lost(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self.connection.connection_lost(None)


class GrpcBroker(ServedBroker):
    """A broker without sockets, and the gateway in front of it."""

    others: list[BrokerQueues]
    own_address = GRPC_ADDRESS
    """The address that it sends to clients in its settings."""

    def open_gateway(self) -> None:
        """Create the gateway; ``close`` closes it."""
        self.others = []
        self.gateway = GrpcGateway(
            self.kernel, self.features, self.dispatcher.access, self._brokers_of, 100
        )

    async def _brokers_of(self, topic: str, _call: Call) -> list[BrokerQueues]:
        config = self.tables.topics.get(topic)
        if config is None:
            return []
        name, reads, writes = (
            self.config.broker_name,
            config.read_queue_nums,
            config.write_queue_nums,
        )
        own = BrokerQueues(name, reads, writes, config.perm, self.own_address, True)
        return [own, *self.others]

    async def close(self) -> None:
        """Close the gateway and the store."""
        await self.gateway.close()
        await super().close()


def request(rpc: str, **fields: Any) -> Any:
    """Return a request; names of topics and groups may stand for their resources."""
    made = METHODS[rpc].request()
    for name, value in fields.items():
        if name in ("topic", "group"):
            getattr(made, name).name = value
        elif name.endswith("_ms"):
            getattr(made, name.removesuffix("_ms")).FromMilliseconds(value)
        else:
            setattr(made, name, value)
    return made


def sending(topic: str, body: bytes = b"hello", message_id: str = "ID1", **system: Any) -> Any:
    """Return a request to send one message."""
    made = METHODS["SendMessage"].request()
    add_message(made, topic, body, message_id, **system)
    return made


def add_message(made: Any, topic: str, body: bytes, message_id: str, **system: Any) -> Any:
    """Add a message to a request to send."""
    message = made.messages.add(body=body)
    message.topic.name = topic
    properties = message.system_properties
    properties.message_id = message_id
    for name, value in system.items():
        if name == "keys":
            properties.keys.extend(value)
        elif name.endswith("_ms"):
            getattr(properties, name.removesuffix("_ms")).FromMilliseconds(value)
        else:
            setattr(properties, name, value)
    return message


def receiving(topic: str, group: str = "g", invisible_ms: int = 30_000, **fields: Any) -> Any:
    """Return a request to receive up to 32 messages."""
    made = METHODS["ReceiveMessage"].request(batch_size=32)
    made.group.name, made.message_queue.topic.name = group, topic
    made.filter_expression.type = 1
    made.filter_expression.expression = "*"
    if invisible_ms:
        made.invisible_duration.FromMilliseconds(invisible_ms)
    for name, value in fields.items():
        if name.endswith("_ms"):
            getattr(made, name.removesuffix("_ms")).FromMilliseconds(value)
        else:
            setattr(made, name, value)
    return made


def settings_of_consumer(group: str = "g", *topics: str, client_type: int = 3) -> Any:
    """Return the settings that a consumer sends on its Telemetry stream."""
    command = METHODS["Telemetry"].request()
    command.settings.client_type = client_type
    command.settings.subscription.group.name = group
    for topic in topics:
        entry = command.settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.type, entry.expression.expression = topic, 1, "*"
    return command


def settings_of_producer(*topics: str) -> Any:
    """Return the settings that a producer sends on its Telemetry stream."""
    command = METHODS["Telemetry"].request()
    command.settings.client_type = 1
    command.settings.publishing.SetInParent()
    for topic in topics:
        command.settings.publishing.topics.add(name=topic)
    return command
