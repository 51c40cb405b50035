"""What makes a half message, and how op messages are read."""

import pytest

from rockhopper.broker.features.transactions.half_messages import (
    finished_offsets,
    immunity_ms,
    is_half,
    make_half,
    op_body,
)


@pytest.mark.parametrize(
    ("sys_flag", "properties", "reconsume_times", "expected"),
    [
        (4, {"TRAN_MSG": "true"}, 0, True),
        (0, {"TRAN_MSG": "TRUE"}, 0, True),
        (4, {}, 0, True),
        (8, {}, 0, False),
        (12, {}, 0, False),
        (0, {"TRAN_MSG": "false"}, 0, False),
        (4, {"TRAN_MSG": "true", "DELAY": "3"}, 1, False),
        (4, {"TRAN_MSG": "true"}, 1, True),
        (4, {"TRAN_MSG": "true", "DELAY": "3"}, 0, True),
    ],
)
def test_half_messages_are_told_from_others(
    sys_flag: int, properties: dict[str, str], reconsume_times: int, expected: bool
) -> None:
    assert is_half(sys_flag, properties, reconsume_times) is expected


def test_what_a_client_claims_about_checks_is_dropped() -> None:
    properties = {
        "UNIQ_KEY": "K",
        "TRANSACTION_CHECK_TIMES": "14",
        "TRAN_PREPARED_QUEUE_OFFSET": "3",
        "REAL_TOPIC": "elsewhere",
    }
    make_half(properties, "orders", 2, "payers")
    assert properties == {
        "UNIQ_KEY": "K",
        "TRAN_MSG": "true",
        "PGROUP": "payers",
        "__transactionId__": "K",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [("60", 60_000), ("0", 0), ("-1", None), ("soon", None), ("", None), ("9" * 5000, 10**12)],
)
def test_immunity_is_a_number_of_seconds(text: str, expected: int | None) -> None:
    assert immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}) == expected


def test_op_messages_of_old_and_new_brokers_are_read() -> None:
    assert op_body((5, 9)) == b"5,9,"
    assert finished_offsets(b"5,9,") == [5, 9]
    assert finished_offsets(b"7") == [7]
    assert finished_offsets(b"7,x,,\xff,8") == [7, 8]
