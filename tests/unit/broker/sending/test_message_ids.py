"""Unique keys made by the broker: RocketMQ's form, and no two alike."""

import os

from rockhopper.broker.sending.message_ids import UniqueIds

from tests.support.peers import Clock


def test_no_two_keys_are_alike() -> None:
    ids = UniqueIds(b"\x0a\0\0\1", Clock())
    assert len({ids.next() for _ in range(1000)}) == 1000


def test_a_key_names_host_and_process_and_another_maker_makes_others() -> None:
    one, other = (UniqueIds(b"\x0a\0\0\1", Clock()) for _ in range(2))
    first, second = one.next(), other.next()
    assert first.startswith("0A000001" + f"{os.getpid() & 0xFFFF:04X}")
    assert len(first) == 32
    assert first != second
