"""Ids of messages: those of two producers differ, and name the host that made them."""

import socket

import pytest

from rockhopper.client.sending import unique_id
from rockhopper.client.sending.unique_id import make_unique_ids


def test_ids_hold_the_address_that_others_reach_this_host_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unique_id, "find_own_host", lambda: "10.1.2.3")
    first = make_unique_ids().next()
    assert bytes.fromhex(first)[:4] == socket.inet_aton("10.1.2.3")
    assert len(first) == 32


def test_no_two_are_alike_of_one_producer_or_of_two() -> None:
    one, other = make_unique_ids(), make_unique_ids()
    assert len({ids.next() for ids in (one, other) for _ in range(1000)}) == 2000
