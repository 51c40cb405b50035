"""App: runs decorated functions as consumers, and provides a producer."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from rockhopper.client.app.handlers import HandlerCall, TextAsItIs
from rockhopper.client.arguments import takes
from rockhopper.client.consumer import Consumer
from rockhopper.client.consuming.options import SubscriberOptions
from rockhopper.client.consuming.subscriptions import Topics
from rockhopper.client.errors import ClientStateError
from rockhopper.client.middleware.hooks import Middleware, check_middleware
from rockhopper.client.network.closing import ClosedAtEnd
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.producer import Producer
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import JSON, Serializer, check_serializer

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Subscriber:
    topics: Topics
    group: str
    call: HandlerCall
    to: str | None
    options: dict[str, Any]


class App(ClosedAtEnd):
    """Runs decorated functions as consumers.

        app = App()

        @app.subscriber("orders", group="billing")
        async def bill(order: Order) -> None:
            ...

        app.run()

    `start`, `async with`, `lifespan` or `run` opens the connections. After `close` you may start
    the app again.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        serializer: Serializer | None = None,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`serializer` encodes the bodies of sends, by default as JSON; strings are sent unchanged.

        The whole app uses `connections`, shared with other clients, instead of `nameserver`, `tls`
        and `credentials`; they stay open when the app closes.
        """
        self.nameserver = nameserver
        """May be changed until the start, such as by a test; None: the environment decides."""
        check_serializer("serializer", serializer, "encode")
        self._serializer = TextAsItIs(serializer or JSON())
        self._common = {
            "middleware": check_middleware(middleware),
            "tls": tls,
            "credentials": credentials,
            "connections": connections,
        }
        if connections is not None:
            Producer(nameserver, **self._common)  # type: ignore[arg-type]  # or raises
        self._subscribers: list[_Subscriber] = []
        self._open: AsyncExitStack | None = None
        self._producer: Producer | None = None
        self._ended: asyncio.Future[None] | None = None

    @takes(SubscriberOptions)
    def subscriber(self, *args: Any, **kwargs: Any) -> Callable[[_Function], _Function]:
        """Register a function as a consumer; the function itself does not change.

        The annotation of its parameter decides what it receives: ReceivedMessage, bytes, str, a
        pydantic model, or any type that JSON can be decoded as (dict, a dataclass, a Struct …). A
        second parameter may be the ReceivedMessage. A return value other than None is sent to the
        topic `to`. The parameters are the fields of SubscriberOptions. Raises as Consumer does,
        ValueError for a second subscriber in a group, and ClientStateError after the start.
        """
        options = SubscriberOptions(*args, **kwargs)
        topics = options.topics
        if isinstance(topics, Iterator):
            topics = list(topics)
        for_consumer = {
            name: value for name, value in kwargs.items() if name not in ("topics", "group", "to")
        }

        def decorate(function: _Function) -> _Function:
            call = HandlerCall(function, options.concurrency)
            chosen = {"deserializer": call.deserializer, **for_consumer}
            self._add(_Subscriber(topics, options.group, call, options.to, chosen))
            return function

        return decorate

    def _add(self, added: _Subscriber) -> None:
        if self._producer is not None:
            raise ClientStateError(
                f"{_name(added)} subscribes after its app has started, so it would receive nothing",
                remedy="decorate it before the start: import its module there",
            )
        for each in self._subscribers:
            if each.group == added.group:
                raise ValueError(
                    f"group {added.group!r} has the subscriber {_name(each)} already, and each "
                    f"would get only a part of the messages: give {_name(added)} another group, "
                    "or give one of them all topics"
                )
        try:
            Consumer(added.group, added.topics, handler=self._handler(added), **added.options)
        except ClientStateError:
            pass  # the environment may change until the start
        except Exception as error:
            error.add_note(f"in the decorator of the subscriber {_name(added)}")
            raise
        self._subscribers.append(added)

    @property
    def producer(self) -> Producer:
        """The producer, while the app is open: `await app.producer.send("orders", order)`."""
        if self._producer is None:
            raise ClientStateError("this app is not running: use `async with app`, or app.run()")
        return self._producer

    async def start(self) -> Self:
        """Connect and start to consume. Raises as Consumer and Producer do."""
        if self._open is not None:
            raise ClientStateError("this app is running already")
        async with AsyncExitStack() as stack:
            stack.callback(self._forget_producer)
            producer = Producer(self.nameserver, serializer=self._serializer, **self._common)  # type: ignore[arg-type]
            self._producer = await stack.enter_async_context(producer)
            for each in self._subscribers:
                consumer = Consumer(
                    each.group,
                    each.topics,
                    nameserver=self.nameserver,
                    handler=self._handler(each),
                    **{**self._common, **each.options},
                )
                consumer.on_failure = self._has_failed
                stack.callback(each.call.threads.stop)
                await stack.enter_async_context(consumer)
            self._open = stack.pop_all()
        return self

    async def close(self) -> None:
        """Let running handlers finish, leave the groups, close the connections; `serve` ends."""
        stack, self._open = self._open, None
        try:
            if stack is not None:
                await stack.aclose()
        finally:
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)

    def _forget_producer(self) -> None:
        self._producer = None

    async def __aenter__(self) -> Self:
        return await self.start()

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncGenerator[None]:
        """For web frameworks: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    async def serve(self) -> None:
        """Consume until SIGTERM, SIGINT, `close` or a cancellation, then close.

        A second signal ends the process at once. Raises errors that waiting cannot fix: a group or
        topic without permission, an invalid filter.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._ended = ended
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

        def stop() -> None:
            for each in before:  # the next signal ends the process, whatever a handler does
                loop.remove_signal_handler(each)
                signal.signal(each, signal.SIG_DFL)
            if not ended.done():
                ended.set_result(None)

        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            for each in before:  # only in the main thread, and not on Windows
                loop.add_signal_handler(each, stop)
        try:
            async with self:
                await ended
        finally:
            self._ended = None
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                for each, handler in before.items():
                    loop.remove_signal_handler(each)
                    signal.signal(each, signal.SIG_DFL if handler is None else handler)

    def _has_failed(self, error: BaseException) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def run(self, *, log_level: int | str = logging.INFO) -> None:
        """Call `serve` in a new event loop; use it at the end of your main module.

        If the program has not configured `logging`, messages from `log_level` on go to standard
        error.
        """
        logging.basicConfig(  # does nothing if the program has a handler
            level=log_level,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        asyncio.run(self.serve())

    def _handler(self, subscriber: _Subscriber) -> Callable[[ReceivedMessage], Any]:
        async def handle(message: ReceivedMessage) -> None:
            result = await subscriber.call(message)
            if subscriber.to is not None and result is not None:
                await self.producer.send(subscriber.to, result)

        return handle


def _name(subscriber: _Subscriber) -> str:
    function = subscriber.call.function
    return getattr(function, "__qualname__", repr(function))
