"""Answers from the past are noticed."""

import pytest

from rockhopper.broker.replication.engines.etcd.forms import Header
from rockhopper.broker.replication.engines.etcd.horizon import FromThePastError, Horizon

CLUSTER = 7


def header(revision: int, raft_term: int, cluster_id: int = CLUSTER) -> Header:
    return Header(cluster_id=cluster_id, revision=revision, raft_term=raft_term)


def test_an_answer_may_be_older_than_one_that_came_while_it_was_on_its_way() -> None:
    horizon = Horizon()
    horizon.record(header(10, 2), horizon.seen)
    departed = horizon.seen
    horizon.record(header(12, 3), departed)
    horizon.record(header(11, 2), departed)
    assert horizon.seen == header(12, 3)


@pytest.mark.parametrize("answer", [header(9, 2), header(10, 1)])
def test_an_answer_from_before_its_request_is_refused(answer: Header) -> None:
    horizon = Horizon()
    horizon.record(header(10, 2), horizon.seen)
    with pytest.raises(FromThePastError, match="restored from a backup"):
        horizon.record(answer, horizon.seen)
    assert horizon.seen == header(10, 2)


def test_another_cluster_is_refused() -> None:
    horizon = Horizon()
    horizon.record(header(10, 2), horizon.seen)
    with pytest.raises(FromThePastError, match="cluster 8, not to 7"):
        horizon.record(header(20, 3, 8), horizon.seen)
