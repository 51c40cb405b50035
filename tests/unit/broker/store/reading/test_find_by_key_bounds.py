"""A key whose hash belongs to many other messages is given up before the search takes long."""

from collections.abc import Iterator
from typing import cast

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.reading.record_search import MISSED_BYTES_MAX, KeySearch
from tests.support.records import encode_message

# Java's hash takes "Aa" for "BB".
BIG = encode_message(topic="orders", body=bytes(4 << 20), properties={"KEYS": "Aa"}, queue_id=0)


class Candidates:
    """An index that names one big message of another key again and again."""

    def candidates(self, *_: object) -> Iterator[int]:
        yield from range(1000)


def test_big_messages_of_another_key_are_not_read_without_end() -> None:
    read: list[int] = []

    def record_at(position: int) -> bytes:
        read.append(position)
        return BIG

    index = cast("MessageIndex", Candidates())
    search = KeySearch("orders", "BB", 32, 0, 2**62, record_at, lambda _: True)
    for _ in search.steps(index):
        pass
    assert search.newest_first == []
    assert len(read) * len(BIG) < 2 * MISSED_BYTES_MAX
