"""Refusals: each has a code in remoting, and its words reach the client as they are."""

import pytest

from rockhopper.broker.server.remoting.dispatcher import REFUSAL_CODES, error_response
from rockhopper.broker.users import errors
from rockhopper.broker.users.errors import Forbidden, NoPermission, Refusal, TopicNotFound
from rockhopper.protocol.codes import ResponseCode


def test_each_refusal_has_a_row_in_remoting_s_table() -> None:
    classes = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Refusal)
    }
    assert classes == set(REFUSAL_CODES)
    assert [each.__name__ for each in classes if each.__name__ not in str(errors.__doc__)] == []


@pytest.mark.parametrize("error", [Refusal, TopicNotFound])
def test_the_words_of_a_refusal_are_the_remark(error: type[Refusal]) -> None:
    response = error_response(error("topic[T] not exist"))
    assert response is not None
    assert (response.code, response.remark) == (REFUSAL_CODES[error], "topic[T] not exist")
    assert response.ext is None


def test_who_forbids_a_pull_is_told_by_number() -> None:
    response = error_response(NoPermission("closed", Forbidden.TOPIC))
    assert response is not None
    assert (response.code, response.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "3"})
