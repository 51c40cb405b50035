"""The tail of a queue, and a run of messages that goes to it."""

from rockhopper.broker.store.log.encoding import queue_constants
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run


def test_a_tail_is_of_one_queue_that_nobody_has_opened_yet() -> None:
    tail = QueueTail("orders", 3, 17, is_batch=True)
    assert (tail.topic, tail.queue_id, tail.next_offset, tail.is_batch) == ("orders", 3, 17, True)
    assert tail.constants == queue_constants("orders", 3)
    assert tail.consume_queue is None
    assert tail.waiters is None
    assert not tail.is_deleted


def test_a_run_begins_where_its_tail_is() -> None:
    tail = QueueTail("orders", 3, 17, is_batch=False)
    run = Run(tail, 4096)
    assert (run.first_offset, run.start, run.end, run.count) == (17, 4096, 4096, 0)
    tail.next_offset += 5
    assert run.first_offset == 17


def test_runs_share_nothing() -> None:
    tail = QueueTail("orders", 3, 17, is_batch=False)
    first, second = Run(tail, 0), Run(tail, 0)
    first.units.append(b"x")
    first.packed_keys += b"y"
    assert (second.units, second.packed_keys) == ([], bytearray())
