"""HalfSends: which messages are stored as half messages, and which are refused."""

import pytest

from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.users.errors import IllegalMessage, NoPermission
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_PREPARED
from tests.support.served_broker import BORN_HOST, ServedBroker
from tests.support.transactions import HALF_TOPIC


def half(group: str = "senders", **properties: str) -> Send:
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


@pytest.fixture(autouse=True)
def topic(broker: ServedBroker) -> None:
    broker.create_topic("orders")


async def test_a_half_message_is_hidden_and_opens_a_transaction(broker: ServedBroker) -> None:
    placed, _ = broker.sender.send(half(CHECK_IMMUNITY_TIME_IN_SECONDS="60"))
    (message,) = decode_messages(broker.store.get_message(HALF_TOPIC, 0, 0, 32).body)
    (opened,) = broker.transactions.halves
    assert (opened.offset, opened.log_offset) == (0, message.commit_log_offset)
    assert opened.group == "senders"
    assert opened.due_ms - opened.stored_ms == 60_000
    assert (placed.queue_id, placed.transaction_id) == (2, "H")
    assert message.sys_flag == 0
    assert message.properties["PGROUP"] == "senders"
    assert broker.stats.put(HALF_TOPIC).messages == 1
    assert broker.stats.put("orders").messages == 0


async def test_transactions_may_be_forbidden(broker: ServedBroker) -> None:
    broker.config.live.reject_transaction_message = True
    with pytest.raises(NoPermission, match="broker-a"):
        broker.sender.send(half())
    broker.sender.send(half()._replace(sys_flag=0, properties=""))


async def test_a_group_that_would_end_a_property_is_refused(broker: ServedBroker) -> None:
    with pytest.raises(IllegalMessage, match="characters that end a property"):
        broker.sender.send(half("a\x01b"))
