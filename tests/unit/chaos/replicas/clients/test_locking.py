"""A member holds a queue from the answer until it unlocks it, or notices that it is alone."""

import asyncio
import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.protocol.codes import RequestCode
from tests.chaos.ledger import Ledger
from tests.chaos.replicas.clients import locking
from tests.chaos.replicas.clients.locking import MEMBERS, NOTICED_WITHIN_S, Lockers


class Peer:
    """A broker's side of one connection, whose clock goes on by a second with each request."""

    def __init__(self, *, grants: bool = True, is_closed: bool = False) -> None:
        self.now_s, self.asked = 0.0, list[int]()
        self._grants, self._is_closed = grants, is_closed

    async def ask(self, code: int, _ext: object = None, body: bytes = b"") -> Any:
        self.asked.append(code)
        self.now_s += 1
        queues = json.loads(body)["mqSet"] if self._grants else []
        return SimpleNamespace(code=0, body=json.dumps({"lockOKMQSet": queues}).encode())

    async def answer(self) -> None:
        if self._is_closed:
            raise EOFError
        await asyncio.Event().wait()


async def turn(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> Lockers:
    monkeypatch.setattr(locking, "HELD_S", (0.0, 0.01))
    ledger = Ledger(now_s=lambda: peer.now_s)
    lockers = Lockers(lambda: "", ledger, random.Random(1))
    await lockers.take_a_turn(peer, MEMBERS[0])  # type: ignore[arg-type]
    return lockers


async def test_a_lock_is_held_until_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer()
    (holding,) = (await turn(peer, monkeypatch)).holdings
    assert (holding.member, holding.from_s, holding.until_s) == (MEMBERS[0], 1, 1)
    assert peer.asked == [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ]


async def test_what_is_not_granted_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(grants=False)
    assert (await turn(peer, monkeypatch)).holdings == []
    assert peer.asked == [RequestCode.LOCK_BATCH_MQ]


async def test_a_lock_goes_with_its_connection() -> None:
    peer = Peer(is_closed=True)
    lockers = Lockers(lambda: "", Ledger(now_s=lambda: peer.now_s), random.Random(1))
    with pytest.raises(EOFError):
        await lockers.take_a_turn(peer, MEMBERS[0])  # type: ignore[arg-type]
    (holding,) = lockers.holdings
    assert holding.until_s == 1 - NOTICED_WITHIN_S
