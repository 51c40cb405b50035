"""Receipt handles."""

import pytest

from rockhopper.protocol.grpc_v2.receipt_handle import parse_receipt_handle

TEXT = "10 1700000000000 30000 3 1 broker-a 2 15 4096"


def test_a_handle_is_what_rocketmq_writes() -> None:
    handle = parse_receipt_handle(TEXT)
    assert handle[:5] == (10, 1_700_000_000_000, 30_000, 3, "1")
    assert handle[5:] == ("broker-a", 2, 15, 4096)
    assert handle.visible_ms == 1_700_000_030_000
    assert str(handle) == TEXT


def test_one_of_eight_parts_does_not_say_where_the_message_is() -> None:
    assert parse_receipt_handle(TEXT.rsplit(" ", 1)[0]).log_offset == -1


@pytest.mark.parametrize("text", ["", "x", TEXT + " 1", TEXT.replace("15", "x"), "1 " * 600])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a receipt handle"):
        parse_receipt_handle(text)
