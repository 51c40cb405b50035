"""ThreadedBroker: a temporary broker in a thread of its own, for programs without an event loop.

Tests use it through the pytest plugin: synchronous ones and those of any event loop alike.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rockhopper.broker.app import Broker

_Result = TypeVar("_Result")

CALL_TIMEOUT_S = 30.0


class ThreadedBroker:
    """A temporary broker that runs from ``start`` to ``stop``, or in a ``with`` block.

    You may call its methods from any thread except the one of the broker's event loop.
    """

    nameserver: str
    """host:port of the name server."""
    address: str
    """host:port of the broker."""
    http_address: str
    """host:port of /healthz, /readyz and /metrics."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        """*settings* have RocketMQ's names: ``{"autoCreateTopic": "off"}``."""
        self._settings = dict(settings or {})
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: Broker | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> "ThreadedBroker":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> "ThreadedBroker":
        """Return when the broker serves requests. Raises the errors of the broker's start."""
        if self._thread is not None:
            raise RuntimeError("this broker was started before: create a new one")
        self._thread = threading.Thread(target=self._run, name="rockhopper-broker", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._broker is None:
            self._thread.join()
            assert self._failure is not None
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop the broker and remove its store; a second call does nothing.

        Raises errors of the shutdown.
        """
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        if thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
        thread.join()
        self._stopping = None
        if self._failure is not None:
            raise self._failure

    def purge(self) -> None:
        """Empty the broker; see ``Broker.purge``."""
        self.call(lambda broker: broker.purge())

    def call(self, function: "Callable[[Broker], _Result]") -> _Result:
        """Call *function* with the Broker in the broker's event loop, and return the result."""
        loop, broker = self._loop, self._broker
        if loop is None or broker is None or self._stopping is None:
            raise RuntimeError("this broker is not running")

        async def run() -> _Result:
            return function(broker)

        return asyncio.run_coroutine_threadsafe(run(), loop).result(CALL_TIMEOUT_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            # start or stop raises it for the waiting thread.
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        from rockhopper.broker.app import Broker

        async with Broker.temporary(self._settings) as broker:
            self.nameserver, self.address = broker.nameserver, broker.address
            self.http_address = broker.http_address
            self._loop = asyncio.get_running_loop()
            self._stopping = asyncio.Event()
            self._broker = broker
            self._started.set()
            await self._stopping.wait()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
