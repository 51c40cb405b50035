"""Middleware: code of an application around each send, receive and call of a handler.

The first middleware of a sequence is the outermost. A hook continues by awaiting `call_next` once;
its result or error goes to the enclosing hook. Hooks that a middleware does not implement are never
called, and without middleware no code of this module runs.
"""

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from rockhopper.client.errors import ClientStateError
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import Message

SendOperation = Literal[
    "send", "send_batch", "send_many", "send_oneway", "request", "reply", "transaction"
]

_HOOKS = ("on_send", "on_receive", "on_process")

ConsumptionModel = Literal["clustering", "broadcasting"]


@dataclass(slots=True)
class Sending:
    """A send that is about to start. A hook may change or replace its messages."""

    messages: list[Message]
    """Copies of the application's messages: changes do not affect the originals."""
    operation: SendOperation
    group: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Receiving:
    """A loop, a batch or a pull that waits for messages."""

    group: str | None
    client_id: str
    consumption_model: ConsumptionModel | None = None
    """None for a PullConsumer."""


@dataclass(frozen=True, slots=True)
class Processing:
    """A message that is about to be passed to a handler."""

    message: ReceivedMessage
    group: str
    client_id: str
    consumption_model: ConsumptionModel = "clustering"


SendNext = Callable[[Sending], Awaitable[Sequence[SendReceipt]]]
ReceiveNext = Callable[[Receiving], Awaitable[Sequence[ReceivedMessage]]]
ProcessNext = Callable[[Processing], Awaitable[object]]


class Middleware(Protocol):
    """Subclass it and implement the hooks you need; the others do nothing.

        class Timing(Middleware):
            async def on_process(self, processing, call_next):
                began_s = time.monotonic()
                try:
                    return await call_next(processing)
                finally:
                    print(processing.message.topic, time.monotonic() - began_s)

    This one prints the duration of every handler call.
    """

    async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
        """Wraps a send of a producer, including its retries: one message or several.

        Returns a receipt for each message; none for `send_oneway` and `reply`.
        """
        return await call_next(sending)

    async def on_receive(
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        """Wraps waiting for the next message of a loop, the next batch, or a pull.

        The list is empty if no message arrives in time, or when the consumer stops. A message that
        the hook omits is not delivered and counts as consumed. It does not run for handlers.
        """
        return await call_next(receiving)

    async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
        """Wraps a handler call: raising requests redelivery, returning acknowledges."""
        return await call_next(processing)


_Event = TypeVar("_Event")
_Outcome = TypeVar("_Outcome")
_Next = Callable[[_Event], Awaitable[_Outcome]]
_Hook = Callable[[_Event, _Next[_Event, _Outcome]], Awaitable[_Outcome]]


class Hooks:
    """The middleware of one client, by hook; a hook without middleware costs one check."""

    def __init__(self, middleware: Iterable[Middleware]) -> None:
        """Raises TypeError for an object that is not a Middleware."""
        chosen = check_middleware(middleware)
        self.send, self.receive, self.process = (_list_hooks(chosen, name) for name in _HOOKS)

    async def sent(self, sending: Sending, last: SendNext) -> Sequence[SendReceipt]:
        """Send through the hooks. Raises ClientStateError if they return too few receipts.

        The messages are copied first.
        """
        sending.messages = [_copy_message(message) for message in sending.messages]
        receipts: Sequence[SendReceipt] = await wrap_in_hooks(self.send, last)(sending)
        expected = 0 if sending.operation in ("send_oneway", "reply") else len(sending.messages)
        if len(receipts) != expected:
            raise ClientStateError(
                f"the middleware answered a {sending.operation} of {len(sending.messages)} "
                f"messages with {len(receipts)} receipts",
                remedy="on_send must return the result of `await call_next(sending)`",
            )
        return receipts


def wrap_in_hooks(
    hooks: Sequence[_Hook[_Event, _Outcome]], last: _Next[_Event, _Outcome]
) -> _Next[_Event, _Outcome]:
    """Return `last` wrapped in the hooks, the first one outermost."""
    call = last
    for hook in reversed(hooks):
        call = functools.partial(_call, hook, call)
    return call


def _call(
    hook: _Hook[_Event, _Outcome], call_next: _Next[_Event, _Outcome], event: _Event
) -> Awaitable[_Outcome]:
    return hook(event, call_next)


def check_middleware(middleware: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """Return the middleware of a client. Raises TypeError for a single one or a misspelt hook."""
    if not isinstance(middleware, Iterable):
        raise TypeError(f"middleware is {middleware!r}: pass a sequence, as in middleware=[…]")
    chosen = tuple(middleware)
    for each in chosen:
        for name in dir(kind := type(each)):
            if not name.startswith("on_") or name in _HOOKS:
                continue
            if inspect.iscoroutinefunction(getattr(kind, name)):
                raise TypeError(
                    f"{kind.__qualname__}.{name} is not a hook, and would never be called: the "
                    f"hooks are {', '.join(_HOOKS)}; rename it if it is not meant to be a hook"
                )
    return chosen


def _check_answer(hook: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a hook whose result is checked: without one, messages would count as consumed."""

    @functools.wraps(hook)
    async def answering(event: Any, call_next: Any) -> Any:
        answer = await hook(event, call_next)
        if not isinstance(answer, Sequence):
            raise TypeError(
                f"{hook.__qualname__} returned {answer!r} instead of a sequence: return the "
                "result of `await call_next(…)`"
            )
        return answer

    return answering


def _list_hooks(middleware: Sequence[Middleware], name: str) -> tuple[Any, ...]:
    found = []
    for each in middleware:
        if isinstance(each, type) or not hasattr(each, name):
            raise TypeError(
                f"{each!r} is not a middleware: pass an object of a subclass of "
                "rockhopper.Middleware"
            )
        if getattr(type(each), name, None) is not getattr(Middleware, name):
            hook = getattr(each, name)
            found.append(hook if name == "on_process" else _check_answer(hook))
    return tuple(found)


def _copy_message(message: Message) -> Message:
    own = copy.copy(message)
    own.properties = dict(message.properties)
    return own
