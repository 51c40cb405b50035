"""What a pull is answered with, in any serialisation."""

import pytest

from rockhopper.broker.kernel.processors.pulls import PULL_CODES, pull_response
from rockhopper.broker.kernel.pull.puller import PullOutcome, outcome_of
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus


def test_each_outcome_has_a_code_that_no_other_has() -> None:
    assert set(PULL_CODES) == set(PullOutcome)
    assert sorted(map(int, PULL_CODES.values())) == [0, 19, 20, 21]


def test_an_answer_says_where_to_go_on() -> None:
    response = pull_response(PullOutcome.MOVED, GetResult(GetStatus.OFFSET_TOO_SMALL, 7, 7, 9))
    assert (response.code, response.remark) == (21, "OFFSET_TOO_SMALL")
    assert response.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "7",
        "minOffset": "7",
        "maxOffset": "9",
    }


@pytest.mark.parametrize(("offset", "outcome"), [(0, PullOutcome.NOT_YET), (1, PullOutcome.MOVED)])
def test_of_a_queue_without_messages_only_the_start_is_waited_for(
    offset: int, outcome: PullOutcome
) -> None:
    assert outcome_of(GetStatus.NO_MESSAGE_IN_QUEUE, offset) is outcome


@pytest.mark.parametrize("status", GetStatus)
def test_whatever_the_store_finds_has_an_outcome(status: GetStatus) -> None:
    assert outcome_of(status, 5) in PullOutcome
