"""What makes a half message, and how op messages are read."""

import pytest

from rockhopper.broker.features.transactions.half_messages import (
    immunity_ms,
    make_half,
    op_body,
    parse_finished_offsets,
)
from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.users.errors import IllegalMessage, NoPermission
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_PREPARED
from tests.support.features import transactions_of
from tests.support.served_broker import BORN_HOST, ServedBroker
from tests.support.transactions import HALF_TOPIC


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
    assert parse_finished_offsets(b"5,9,") == [5, 9]
    assert parse_finished_offsets(b"7") == [7]
    assert parse_finished_offsets(b"7,x,,\xff,8") == [7, 8]


def half_send(group: str = "senders", **properties: str) -> Send:
    return Send(
        group=group,
        topic="orders",
        default_topic="TBW102",
        default_queue_nums=4,
        queue_id=2,
        sys_flag=SYS_FLAG_TRANSACTION_PREPARED,
        born_time_ms=1234,
        flag=7,
        properties=encode_properties({"TRAN_MSG": "true", "UNIQ_KEY": "H"} | properties),
        reconsume_times=0,
        reconsume_times_max=None,
        is_batch=False,
        unit_mode=False,
        body=b"one",
        born_host=BORN_HOST,
        version=479,
    )


async def test_a_half_message_is_hidden_and_opens_a_transaction(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    placed, _ = broker.send(half_send(CHECK_IMMUNITY_TIME_IN_SECONDS="60"))
    (message,) = decode_messages(broker.store.reading.get_message(HALF_TOPIC, 0, 0, 32).body)
    (opened,) = transactions_of(broker).halves
    assert (opened.offset, opened.log_offset) == (0, message.commit_log_offset)
    assert opened.group == "senders"
    assert opened.due_ms - opened.stored_ms == 60_000
    assert (placed.queue_id, placed.transaction_id) == (2, "H")
    assert message.sys_flag == 0
    assert message.properties["PGROUP"] == "senders"
    assert broker.stats.get_send_traffic(HALF_TOPIC).messages == 1
    assert broker.stats.get_send_traffic("orders").messages == 0


async def test_transactions_may_be_forbidden(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.config.transactions.reject_transaction_message = True
    with pytest.raises(NoPermission, match="broker-a"):
        broker.send(half_send())
    broker.send(half_send()._replace(sys_flag=0, properties=""))


async def test_a_group_that_would_end_a_property_is_refused(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    with pytest.raises(IllegalMessage, match="a character that ends a property"):
        broker.send(half_send("a\x01b"))
