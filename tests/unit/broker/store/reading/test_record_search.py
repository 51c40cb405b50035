"""RecordSearch: which records it takes, and when a step is full."""

import pytest

from rockhopper.broker.store.reading.record_search import (
    BYTES_PER_STEP,
    RECORDS_PER_STEP,
    RecordSearch,
)
from rockhopper.protocol.message import StoredMessage
from tests.support.records import encode_message


class Search(RecordSearch):
    def is_carried(self, message: StoredMessage) -> bool:
        return message.body.startswith(self._wanted.encode())


def search(
    record: bytes, *, begin_ms: int = 0, end_ms: int = 1 << 62, is_visible: bool = True
) -> Search:
    return Search("orders", "a", 32, begin_ms, end_ms, lambda _: record, lambda _: is_visible)


RECORD = encode_message(topic="orders", body=b"abc", store_time_ms=1000)


@pytest.mark.parametrize("times", [(0, 1000), (1000, 1000), (1000, 2000)])
def test_what_is_wanted_is_taken(times: tuple[int, int]) -> None:
    assert search(RECORD, begin_ms=times[0], end_ms=times[1]).look_at(7) == RECORD


@pytest.mark.parametrize(
    "looked_at",
    [
        search(b""),
        search(encode_message(topic="other", body=b"abc")),
        search(encode_message(topic="orders", body=b"bca")),
        search(RECORD, end_ms=999),
        search(RECORD, begin_ms=1001),
        search(RECORD, is_visible=False),
    ],
)
def test_nothing_else_is(looked_at: Search) -> None:
    assert looked_at.look_at(7) == b""


@pytest.mark.parametrize(
    ("size", "count"), [(10, RECORDS_PER_STEP), (BYTES_PER_STEP // 4, 4), (4 << 20, 1)]
)
def test_a_step_is_full_after_so_many_records_or_bytes(size: int, count: int) -> None:
    looked_at = search(encode_message(topic="orders", body=bytes(size)))
    for _ in range(2):
        for _ in range(count):
            assert not looked_at.is_step_full()
            looked_at.look_at(7)
        assert looked_at.is_step_full()
        looked_at.next_step()
