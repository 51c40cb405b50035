"""Messages from and to the store."""

import zlib
from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.converting import (
    SendLimits,
    build_properties,
    fill_message,
    send_of,
)
from rockhopper.protocol.grpc_v2.messages import Encoding, Message, MessageType
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED_ZLIB,
    SYS_FLAG_TRANSACTION_PREPARED,
)
from tests.support.grpc_client import sending

LIMITS = SendLimits(1000, 86_400_000, 1_700_000_000_000)


def properties_of(made: Any) -> dict[str, str]:
    return build_properties(made.messages[0], "t", "10.0.0.9", LIMITS)


def stored(body: bytes = b"hello", sys_flag: int = 0, **properties: str) -> StoredMessage:
    return StoredMessage(
        "t", 2, 7, 4096, body, sys_flag=sys_flag, born_time_ms=5, properties=properties
    )


def test_what_a_producer_says_stands_under_rocketmqs_names() -> None:
    made = sending(
        "t",
        tag="red",
        keys=["a", "b"],
        message_group="m",
        priority=4,
        delivery_timestamp_ms=1_700_000_001_000,
    )
    found = properties_of(made)
    assert (found["TAGS"], found["KEYS"], found["__SHARDINGKEY"]) == ("red", "a b", "m")
    assert (found["_SYS_MSG_PRIORITY_"], found["TIMER_DELIVER_MS"]) == ("4", "1700000001000")
    assert (found["PGROUP"], found["__BORNHOST"], found["UNIQ_KEY"]) == ("t", "10.0.0.9", "ID1")


def test_a_transaction_is_marked_and_says_when_to_ask() -> None:
    made = sending(
        "t", message_type=4, orphaned_transaction_recovery_duration_ms=30_000, born_host="me"
    )
    found = properties_of(made)
    assert (found["TRAN_MSG"], found["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")
    assert found["__BORNHOST"] == "me"
    send = send_of(made.messages[0], "t", 3, found, b"\0" * 8)
    assert send.sys_flag == SYS_FLAG_TRANSACTION_PREPARED
    assert (send.group, send.queue_id) == ("t", 3)
    assert send.apart == found


def test_a_message_that_failed_before_says_how_often() -> None:
    made = sending("t", delivery_attempt=3)
    assert send_of(made.messages[0], "t", -1, properties_of(made), b"\0" * 8).reconsume_times == 2


def test_a_delivered_message_says_all_that_is_known() -> None:
    message = stored(
        TAGS="red",
        KEYS="a b",
        UNIQ_KEY="U",
        TRACE_CONTEXT="00",
        DLQ_ORIGIN_TOPIC="from",
        DLQ_ORIGIN_MESSAGE_ID="M",
        mine="x",
        _SYS_MSG_PRIORITY_="3",
        TIMER_DELIVER_MS="1700000000000",
    )
    found = fill_message(Message(), message, "t", "")
    system = found.system_properties
    assert dict(found.user_properties) == {"mine": "x"}
    assert (system.tag, list(system.keys), system.message_id) == ("red", ["a", "b"], "U")
    assert (system.queue_id, system.queue_offset, system.priority) == (2, 7, 3)
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("from", "M")
    assert system.message_type == MessageType.DELAY
    assert system.delivery_timestamp.ToMilliseconds() == 1_700_000_000_000
    assert system.trace_context == "00"


def test_a_time_beyond_all_calendars_is_the_last_one() -> None:
    system = fill_message(Message(), stored(TIMER_DELIVER_MS="9" * 18), "t", "").system_properties
    assert system.delivery_timestamp.ToDatetime().year == 9999


@pytest.mark.parametrize("born_ms", [0, -1, 1_795_899_578_414_000, 2**63 - 1, -(2**63)])
def test_a_birth_that_no_calendar_has_keeps_no_message_back(born_ms: int) -> None:
    message = stored()
    message.born_time_ms = born_ms
    system = fill_message(Message(), message, "t", "").system_properties
    assert 1900 <= system.born_timestamp.ToDatetime().year <= 9999


def test_a_body_compressed_by_a_client_of_4_is_delivered_as_it_was() -> None:
    body = zlib.compress(b"text " * 100)
    found = fill_message(Message(), stored(body, SYS_FLAG_COMPRESSED_ZLIB), "t", "")
    assert found.body == b"text " * 100
    assert found.system_properties.body_encoding == Encoding.IDENTITY


def test_one_that_nobody_can_read_is_handed_on() -> None:
    found = fill_message(Message(), stored(b"not zlib", SYS_FLAG_COMPRESSED_ZLIB), "t", "")
    assert found.body == b"not zlib"
    assert found.system_properties.body_encoding == Encoding.GZIP


@pytest.mark.parametrize(("topic", "name"), [("ns%t", "t"), ("t", "t")])
def test_a_namespace_is_told_apart_from_the_name(topic: str, name: str) -> None:
    found = fill_message(Message(), stored(), topic, "ns")
    assert (found.topic.name, found.topic.resource_namespace) == (name, "ns")
