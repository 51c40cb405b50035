"""Bodies of LOG_HISTORY."""

import pytest

from rockhopper.protocol.bodies.log_history import (
    HistoryAnswer,
    HistoryQuestion,
    decode_history_answer,
    decode_history_question,
    encode_history,
)
from rockhopper.protocol.errors import MalformedBodyError

QUESTION = b"\x93\xa1g\x91\xa2id\x91\x92\xa1t\x03"
ANSWER = b"\x93\x91\xa2id\xc0\x92\x05\xc0"


def test_a_question_names_the_group_epochs_and_queues() -> None:
    question = HistoryQuestion("g", ["id"], [("t", 3)])
    assert encode_history(question) == QUESTION
    assert decode_history_question(QUESTION) == question


def test_an_answer_has_an_end_or_nil_for_each_queue() -> None:
    answer = HistoryAnswer(["id"], None, [5, None])
    assert encode_history(answer) == ANSWER
    assert decode_history_answer(ANSWER) == answer


@pytest.mark.parametrize("body", [b"", b"\xc0", b"\x93\x07\x90\x90", b"\x91" * 5000, b"{}"])
def test_what_is_neither_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="does not decode"):
        decode_history_question(body)
    with pytest.raises(MalformedBodyError, match="does not decode"):
        decode_history_answer(body)
