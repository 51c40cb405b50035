"""The queue of a message group; the numbers come from Guava's Hashing.consistentHash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.gateways.grpc.activities.producing import consistent_hash
from rockhopper.protocol.java_hash import java_string_hash

BUCKETS = (1, 2, 3, 8, 16, 100, 1024)


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ("order-1", (0, 0, 0, 3, 3, 3, 489)),
        ("order-2", (0, 0, 2, 2, 11, 46, 184)),
        ("a", (0, 0, 0, 0, 0, 29, 346)),
        ("user#17", (0, 1, 1, 6, 14, 43, 745)),
        ("Ünïcode", (0, 1, 1, 6, 15, 69, 227)),
        ("zzzzzz", (0, 1, 1, 3, 14, 64, 901)),
    ],
)
def test_groups_go_where_rocketmq_sends_them(group: str, found: tuple[int, ...]) -> None:
    value = java_string_hash(group)
    assert tuple(consistent_hash(value, count) for count in BUCKETS) == found


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 64))
def test_another_queue_moves_groups_to_itself_alone(value: int, buckets: int) -> None:
    before, after = consistent_hash(value, buckets), consistent_hash(value, buckets + 1)
    assert after in (before, buckets)
