"""OrderedBatch: what blocks a queue, for how long, and where the queue goes on."""

import pytest

from rockhopper.broker.features.pop.ordered import OrderedBatch, decode_batch, encode_batch


def batch(**fields: object) -> OrderedBatch:
    """Offsets 5, 6 and 8, popped at 1,000 for 100 ms."""
    return OrderedBatch("a", 1000, 100, [5, 6, 8], **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "until"),
    [
        ({}, 1100),
        ({"visible_at": {6: 1500}}, 1500),
        ({"visible_at": {6: 1050}}, 1100),
        ({"visible_at": {6: 1500}, "acked": {6}}, 1100),
        ({"acked": {5, 6, 8}}, 0),
    ],
)
def test_a_queue_is_blocked_until_the_last_message_is_visible(
    fields: dict[str, object], until: int
) -> None:
    assert batch(**fields).compute_blocked_until() == until


@pytest.mark.parametrize(
    ("attempt_id", "now_ms", "blocks"),
    [("b", 1099, True), ("b", 1100, False), (None, 1099, True), ("a", 1099, False)],
)
def test_only_the_same_attempt_is_let_through(
    attempt_id: str | None, now_ms: int, blocks: bool
) -> None:
    assert batch().blocks(attempt_id, now_ms) is blocks


def test_two_attempts_without_an_id_are_not_the_same() -> None:
    assert OrderedBatch(None, 1000, 100, [5]).blocks(None, 1000)


@pytest.mark.parametrize(
    ("acked", "offset"), [(set(), 5), ({5}, 6), ({6, 8}, 5), ({5, 6}, 8), ({5, 6, 8}, 9)]
)
def test_the_queue_goes_on_at_the_first_that_is_not_acknowledged(
    acked: set[int], offset: int
) -> None:
    assert batch(acked=acked).next_offset() == offset


def test_the_next_batch_counts_what_was_handed_out_before() -> None:
    following = batch(counts={5: 2}).successor("b", 2000, 100, [5, 6, 9])
    assert following.counts == {5: 3, 6: 1}
    assert (following.attempt_id, following.pop_ms, following.offsets) == ("b", 2000, [5, 6, 9])
    assert (following.acked, following.visible_at) == (set(), {})


def test_what_was_suspended_counts_no_further_attempt() -> None:
    following = batch(counts={5: 2}, suspended={5}).successor("b", 2000, 100, [5, 6])
    assert following.counts == {5: 2, 6: 1}
    assert following.suspended == set()


def test_a_repeated_attempt_counts_nothing() -> None:
    first = batch(counts={5: 2})
    assert first.successor("a", 2000, 100, [5, 6]).counts == {5: 2}
    unnamed = OrderedBatch(None, 1000, 100, [5], counts={5: 2})
    assert unnamed.successor(None, 2000, 100, [5]).counts == {5: 3}


@pytest.mark.parametrize(
    "kept", [None, batch(), batch(acked={5}, visible_at={6: 9}, counts={8: 1})]
)
def test_a_batch_comes_back_from_the_journal(kept: OrderedBatch | None) -> None:
    assert decode_batch(encode_batch(kept)) == kept
