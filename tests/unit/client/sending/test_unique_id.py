"""Unique ids of a client: RocketMQ's form, no two alike, two makers apart."""

import os

from rockhopper.client.sending.unique_id import UniqueIds


def test_no_two_ids_are_alike() -> None:
    one, other = (UniqueIds(lambda: 1_700_000_000_000) for _ in range(2))
    ids = [maker.next() for _ in range(1000) for maker in (one, other)]
    assert len(set(ids)) == 2000
    assert {len(each) for each in ids} == {32}
    assert {each[8:12] for each in ids} == {f"{os.getpid() & 0xFFFF:04X}"}


def test_the_counter_turns_over_without_a_longer_id() -> None:
    now_ms = 1_700_000_000_000
    ids = UniqueIds(lambda: now_ms)
    first = ids.next()
    for _ in range(0xFFFF):
        last = ids.next()
    assert len(last) == 32
    assert ids.next() == first
    now_ms += 1
    assert ids.next() != last
