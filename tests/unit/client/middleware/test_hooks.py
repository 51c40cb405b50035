"""Middleware: which hooks are called, in which order, and what they may not do."""

from collections.abc import Sequence

import pytest

from rockhopper.client import ClientStateError, Message, Middleware, Sending
from rockhopper.client.middleware.hooks import Hooks, SendNext
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt

RECEIPT = SendReceipt("id", "offset-id", MessageQueue("orders", "a", 0), 7)


class Noting(Middleware):
    def __init__(self, name: str, notes: list[str]) -> None:
        self._name = name
        self._notes = notes

    async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
        self._notes.append(f"{self._name} before")
        sending.messages[0].properties[self._name] = "was here"
        receipts = await call_next(sending)
        self._notes.append(f"{self._name} after")
        return receipts


class Silent(Middleware):
    async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
        return []


async def test_the_first_middleware_is_the_outermost() -> None:
    notes: list[str] = []
    hooks = Hooks([Noting("outer", notes), Noting("inner", notes)])
    original = Message("orders", properties={"own": "1"})

    async def last(sending: Sending) -> Sequence[SendReceipt]:
        notes.extend(sending.messages[0].properties)
        return [RECEIPT]

    receipts = await hooks.sent(Sending([original], "send", "shop", "me"), last)
    assert receipts == [RECEIPT]
    assert notes == [
        *("outer before", "inner before"),
        *("own", "outer", "inner"),
        *("inner after", "outer after"),
    ]
    assert original.properties == {"own": "1"}  # what hooks add goes with this sending only


def test_hooks_that_are_not_written_are_never_called() -> None:
    class Nothing(Middleware):
        """Has none."""

    hooks = Hooks([Nothing(), Noting("a", [])])
    assert (len(hooks.send), hooks.receive, hooks.process) == (1, (), ())


def test_a_misspelt_hook_is_refused() -> None:
    class Misspelt(Middleware):
        async def on_sent(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
            return await call_next(sending)

    with pytest.raises(
        TypeError, match=r"Misspelt\.on_sent is not a hook, .* hooks are on_send, on_r"
    ):
        Hooks([Misspelt()])


async def test_a_hook_that_answers_without_receipts_is_named() -> None:
    async def last(_sending: Sending) -> Sequence[SendReceipt]:
        raise AssertionError("not called")

    with pytest.raises(ClientStateError, match="a send of 1 messages with 0 receipts"):
        await Hooks([Silent()]).sent(Sending([Message("orders")], "send", "shop", "me"), last)


class Forgetful(Middleware):
    async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:  # type: ignore[return]
        await call_next(sending)


async def test_a_hook_without_return_is_named() -> None:
    async def last(_sending: Sending) -> Sequence[SendReceipt]:
        return [RECEIPT]

    hooks = Hooks([Noting("outer", []), Forgetful()])
    with pytest.raises(TypeError, match=r"Forgetful\.on_send returned None .* call_next"):
        await hooks.sent(Sending([Message("orders")], "send", "shop", "me"), last)


def test_a_single_middleware_is_refused() -> None:
    with pytest.raises(TypeError, match="pass a sequence"):
        Hooks(Silent())  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [Silent, print, None])
def test_what_is_no_middleware_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"pass an object of a subclass of rockhopper\.Middleware"):
        Hooks([wrong])  # type: ignore[list-item]
