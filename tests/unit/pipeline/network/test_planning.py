"""How much of a backlog a batch takes, and how it is shared out over tasks."""

import os

from hypothesis import given
from hypothesis import strategies as st

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.network.planning import Range, limited, limited_by_bytes, plan

Q = [MessageQueue("T", "a", number) for number in range(4)]


def test_a_limit_is_shared_out_by_backlog() -> None:
    begin = {Q[0]: 0, Q[1]: 100, Q[2]: 7}
    end = {Q[0]: 900, Q[1]: 200, Q[2]: 7}
    assert limited(begin, end, 100) == {Q[0]: 90, Q[1]: 110, Q[2]: 7}
    assert limited(begin, end, 1000) == end


def test_no_queue_starves() -> None:
    begin = {Q[0]: 0, Q[1]: 0}
    end = {Q[0]: 1_000_000, Q[1]: 1}
    assert limited(begin, end, 10) == {Q[0]: 9, Q[1]: 1}
    assert limited_by_bytes(begin, end, 1000, {Q[0]: 100.0, Q[1]: 100.0}) == {Q[0]: 9, Q[1]: 1}


def test_a_queue_whose_records_are_large_gets_fewer_of_them() -> None:
    begin = {Q[0]: 0, Q[1]: 0}
    end = {Q[0]: 1000, Q[1]: 1000}
    taken = limited_by_bytes(begin, end, 110_000, {Q[0]: 1000.0, Q[1]: 100.0})
    size = sum(taken[queue] * each for queue, each in ((Q[0], 1000), (Q[1], 100)))
    assert 100_000 < size <= 110_000


def test_a_queue_that_was_not_sampled_counts_like_the_others() -> None:
    begin = {Q[0]: 0, Q[1]: 0}
    end = {Q[0]: 1000, Q[1]: 1000}
    taken = limited_by_bytes(begin, end, 100_000, {Q[0]: 1000.0})
    assert taken == {Q[0]: 50, Q[1]: 50}


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=4),
    st.integers(1, 2000),
)
def test_every_backlog_is_worked_off(queues: list[tuple[int, int]], count_max: int) -> None:
    begin = {Q[number]: start for number, (start, _) in enumerate(queues)}
    end = {Q[number]: start + more for number, (start, more) in enumerate(queues)}
    rounds = 0
    while begin != end:
        taken = limited(begin, end, count_max)
        total = sum(taken[queue] - begin[queue] for queue in begin)
        assert 0 < total <= max(count_max, len(queues)) + len(queues)
        for queue in end:
            assert begin[queue] <= taken[queue] <= end[queue]
            if begin[queue] < end[queue]:
                assert taken[queue] > begin[queue]
        begin = taken
        rounds += 1
    assert rounds <= 2 + sum(more for _, more in queues)


def test_small_ranges_share_a_task_and_long_ones_are_cut() -> None:
    ranges = [Range(Q[0], 0, 10), Range(Q[1], 5, 105), Range(Q[2], 3, 3)]
    assert len(plan(ranges, None, None)) == 1
    parts = plan(ranges, 4, None)
    assert [sum(each.count for each in part.ranges) for part in parts] == [28, 28, 28, 26]
    assert [part.ranges[-1].end for part in parts] == [23, 51, 79, 105]
    capped = plan(ranges, None, 40)
    assert max(sum(each.count for each in part.ranges) for part in capped) <= 40
    assert plan([Range(Q[2], 3, 3)], 4, None) == []


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60_000)), min_size=1, max_size=4),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(500, 30_000),
)
def test_tasks_cover_everything_once(
    queues: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [Range(Q[n], start, start + more) for n, (start, more) in enumerate(queues)]
    parts = plan(ranges, min_partitions, max_records)
    for wanted in ranges:
        pieces = [each for part in parts for each in part.ranges if each.queue == wanted.queue]
        at = wanted.begin
        for piece in pieces:
            assert piece.begin == at
            at = piece.end
        assert not pieces or at == wanted.end
        assert bool(pieces) == (wanted.count > 0)
    if max_records is not None:
        for part in parts:
            assert sum(each.count for each in part.ranges) <= max_records
    if min_partitions is None and max_records is None:
        assert len(parts) <= (os.cpu_count() or 1)
