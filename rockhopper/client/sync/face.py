"""The base of the synchronous clients: wraps an asynchronous one, which the first call opens.

The methods are wrapped one by one (`waits`), so that names, parameters, types and docstrings come
from the asynchronous client and are written only once.
"""

import functools
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from rockhopper.client.errors import ClientStateError
from rockhopper.client.network.connection import FORKS
from rockhopper.client.sync.loop_thread import LoopThread, get_loop_thread, is_exiting

_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")


class Opened(Protocol):
    """An asynchronous client."""

    async def __aenter__(self) -> Self:
        """Open the client."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""


_Client = TypeVar("_Client", bound=Opened)


class Face(Generic[_Client]):
    """A synchronous client; any number of threads may use it.

    Use it in a `with` block, or call it: the first call opens it. The interpreter closes open
    clients when it exits.
    """

    _reopens_in_child = False
    closes_last = False

    def __init__(self, make: Callable[..., _Client], *args: Any, **kwargs: Any) -> None:
        self._make = functools.partial(make, *args, **kwargs)
        self._client = self._make()  # raises errors in the arguments now
        self._is_open = False
        self._is_closed = False
        self._forks = FORKS.count
        self._thread: LoopThread | None = None
        self._opening = threading.RLock()
        self._is_opening = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(exc_type, exc, traceback)

    def start(self) -> Self:
        """Open it now; a second call does nothing."""
        self._opened()
        return self

    def close(self) -> None:
        """Close it; a second call does nothing. A forked child leaves the parent's client open."""
        self._end(None, None, None)

    def _of_this_process(self) -> _Client:
        if self._forks != FORKS.count:
            self._take_over()
        return self._client

    def _opened(self) -> _Client:
        """Return the client of this process, open unless it was closed."""
        if self._is_open and self._forks == FORKS.count:
            return self._client
        self._of_this_process()
        with self._opening:
            if self._is_opening:
                raise ClientStateError(
                    "a signal handler called this client while the same thread opens it, which "
                    "would deadlock: only `stop` may be called then"
                )
            if not (self._is_open or self._is_closed):
                self._is_opening = True
                try:
                    self._open()
                finally:
                    self._is_opening = False
        return self._client

    def _open(self) -> None:
        if isinstance(shared := self._make.keywords.get("connections"), Face):
            shared.start()  # so that they are closed at exit
        self._thread = thread = get_loop_thread()
        thread.call(self._client.__aenter__())
        thread.open_clients.add(self)
        thread.log_records.watch()  # modules may have been imported since
        self._is_open = True

    @property
    def _serving(self) -> LoopThread:
        thread = self._thread
        return get_loop_thread() if thread is None or thread.is_inherited else thread

    def close_at_exit(self) -> None:
        """Close the client; `atexit` functions that run later may open a producer again."""
        with self._opening:
            self.close()
            if self._reopens_in_child:
                self._client = self._make()
                self._is_closed = False

    def _take_over(self) -> None:
        """Create a new client in a forked child, unless its state belongs to the parent alone."""
        if self._reopens_in_child or not self._is_open:
            self._forks = FORKS.count
            self._opening = threading.RLock()
            self._is_opening = False
            self._client = self._make()
            self._is_open = False

    def _end(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        was_open, self._is_open, self._is_closed = self._is_open, False, True
        if not was_open or self._forks != FORKS.count:
            return
        thread = self._serving
        thread.open_clients.discard(self)
        thread.call(self._client.__aexit__(exc_type, exc, traceback))

    def _look(self, function: Callable[[_Client], _Result]) -> _Result:
        client = self._opened()
        return self._serving.look(lambda: function(client))


class FacePart(Generic[_Item]):
    """A part of a client with its own methods, such as Admin's groups."""

    def __init__(self, face: Face[Any], pick: Callable[[Any], _Item]) -> None:
        self._face = face
        self._pick = pick

    def _opened(self) -> _Item:
        return self._pick(self._face._opened())

    @property
    def _serving(self) -> LoopThread:
        return self._face._serving


def wrap_waiting(
    method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Any, _P], _Result]:
    """Return a method that calls the asynchronous one and waits for its result."""
    name = method.__name__

    @functools.wraps(method)
    def waiting(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        try:
            bound = getattr(self._opened(), name)
            return self._serving.call(bound(*args, **kwargs))  # type: ignore[no-any-return]
        except ClientStateError:
            if not is_exiting():
                raise
        # The client was closed between the two lines, and is opened again.
        bound = getattr(self._opened(), name)
        return self._serving.call(bound(*args, **kwargs))  # type: ignore[no-any-return]

    return waiting


def wrap_looking(
    method: Callable[Concatenate[Any, _P], _Result],
) -> Callable[Concatenate[Any, _P], _Result]:
    """Return a method that calls a plain method of the asynchronous client in its loop."""
    name = method.__name__

    @functools.wraps(method)
    def looking(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        bound = getattr(self._opened(), name)
        return self._serving.look(lambda: bound(*args, **kwargs))  # type: ignore[no-any-return]

    return looking


def wrap_iterating(
    method: Callable[Concatenate[Any, _P], AsyncIterator[_Item]],
) -> Callable[Concatenate[Any, _P], Iterator[_Item]]:
    """Return a method that starts the asynchronous client's loop and waits for each item."""
    name = method.__name__

    @functools.wraps(method)
    def iterating(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_Item]:
        bound = getattr(self._opened(), name)
        thread: LoopThread = self._serving
        return _iterate_items(thread, thread.look(lambda: bound(*args, **kwargs)))

    return iterating


def _iterate_items(thread: LoopThread, items: AsyncIterator[_Item]) -> Iterator[_Item]:
    try:
        while (found := thread.call(_take_next(items))) is not None:
            yield found[0]
    finally:
        if isinstance(items, AsyncGenerator):
            thread.call(items.aclose())


async def _take_next(items: AsyncIterator[_Item]) -> tuple[_Item] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


def show_options_of(
    model: Callable[..., Any],
) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Make `inspect` show the asynchronous client's options instead of `**options`."""

    def decorate(init: Callable[_P, None]) -> Callable[_P, None]:
        own = inspect.signature(init)
        parameters = inspect.signature(model.__init__).parameters
        shown = [own.parameters.get(name, each) for name, each in parameters.items()]
        init.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return init

    return decorate
