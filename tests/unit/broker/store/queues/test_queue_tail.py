"""The tail of a queue, and a run of messages that goes to it."""

from rockhopper.broker.store.log.encoding import INDEX_KEY, queue_constants
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run, StagedMessages


def test_a_tail_is_of_one_queue_that_nobody_has_opened_yet() -> None:
    tail = QueueTail("orders", 3, 17, is_batch=True)
    assert (tail.topic, tail.queue_id, tail.next_offset, tail.is_batch) == ("orders", 3, 17, True)
    assert tail.constants == queue_constants("orders", 3)
    assert tail.consume_queue is None
    assert tail.waiters is None
    assert not tail.is_deleted


def test_a_run_begins_where_its_tail_is() -> None:
    tail = QueueTail("orders", 3, 17, is_batch=False)
    run = Run.empty_at(tail, 4096)
    assert (run.first_offset, run.start, run.end, run.count) == (17, 4096, 4096, 0)
    tail.next_offset += 5
    assert run.first_offset == 17


def test_runs_share_nothing() -> None:
    tail = QueueTail("orders", 3, 17, is_batch=False)
    first, second = Run.empty_at(tail, 0), Run.empty_at(tail, 0)
    first.units.append(b"x")
    assert second.units == []


def staged_at(*offsets: int, size_bytes: int = 100) -> StagedMessages:
    """What a pass staged that put a record with one key at each of *offsets*."""
    staged = StagedMessages(offsets[0])
    for offset in offsets:
        run = Run.empty_at(QueueTail("orders", 0, offset, is_batch=False), offset)
        run.end = staged.end = offset + size_bytes
        staged.runs.append(run)
        staged.packed_keys += INDEX_KEY.pack(7, offset)
    return staged


def test_what_was_staged_is_split_with_its_keys() -> None:
    front = staged_at(0, 100, 200)
    behind = front.split_at(100)
    assert (front.start, front.end, behind.start, behind.end) == (0, 100, 100, 300)
    assert [run.start for run in front.runs + behind.runs] == [0, 100, 200]
    assert front.packed_keys == INDEX_KEY.pack(7, 0)
    assert behind.packed_keys == INDEX_KEY.pack(7, 100) + INDEX_KEY.pack(7, 200)


def test_all_or_nothing_may_stand_behind_the_split() -> None:
    everything, nothing = staged_at(100, 200), staged_at(100, 200)
    behind = everything.split_at(50)
    assert (len(behind.runs), behind.start, behind.end, everything.end) == (2, 100, 300, 100)
    assert (everything.runs, everything.packed_keys) == ([], bytearray())
    behind = nothing.split_at(300)
    assert (behind.runs, behind.packed_keys, nothing.end) == ([], bytearray(), 300)
