"""What a message must be to be stored."""

from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.sending_rules import (
    check_body,
    check_properties,
    check_times,
    check_type,
    get_accepted_types,
    type_of,
)
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import MessageType
from tests.support.grpc_client import sending

NOW_MS = 1_700_000_000_000


def system_of(**fields: Any) -> Any:
    return sending("t", **fields).messages[0].system_properties


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, MessageType.NORMAL),
        ({"__SHARDINGKEY": "a"}, MessageType.FIFO),
        ({"TIMER_DELIVER_MS": "1", "__SHARDINGKEY": "a"}, MessageType.DELAY),
        ({"DELAY": "3"}, MessageType.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, MessageType.TRANSACTION),
        ({"_SYS_MSG_PRIORITY_": "1"}, MessageType.PRIORITY),
        ({"__LITE_TOPIC": "x"}, MessageType.LITE),
    ],
)
def test_properties_say_what_a_message_is(properties: dict[str, str], kind: int) -> None:
    assert type_of(properties) == kind


def test_a_topic_takes_its_own_type_alone() -> None:
    assert get_accepted_types(None) == [MessageType.NORMAL]
    check_type("t", "PRIORITY", MessageType.PRIORITY)
    check_type("t", "MIXED", MessageType.FIFO)
    for declared in (None, "DELAY", "UNSPECIFIED"):
        with pytest.raises(GrpcStatusError, match=r"\+message.type=FIFO") as failure:
            check_type("t", declared, MessageType.FIFO)
        assert failure.value.code is Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_body_is_neither_empty_nor_too_large() -> None:
    check_body(b"x" * 10, 10)
    for body, code in ((b"", Code.MESSAGE_BODY_EMPTY), (b"x" * 11, Code.MESSAGE_BODY_TOO_LARGE)):
        with pytest.raises(GrpcStatusError) as failure:
            check_body(body, 10)
        assert failure.value.code is code


@pytest.mark.parametrize(
    ("user", "fields", "code"),
    [
        ({f"n{n}": "v" for n in range(129)}, {}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"n": "v" * 16_384}, {}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"n": "v" * 16_300}, {"tag": "t" * 100}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"UNIQ_KEY": "v"}, {}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"a\x01b": "v"}, {}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"a": "v\x02w"}, {}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"": "v"}, {}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({}, {"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
        ({}, {"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({}, {"tag": "a\x02b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({}, {"keys": ["a", " "]}, Code.ILLEGAL_MESSAGE_KEY),
        ({}, {"keys": ["a\x00"]}, Code.ILLEGAL_MESSAGE_KEY),
        ({}, {"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        ({}, {"message_id": "a\x01"}, Code.ILLEGAL_MESSAGE_ID),
        ({}, {"message_group": ""}, Code.ILLEGAL_MESSAGE_GROUP),
        ({}, {"message_group": "x" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ({}, {"message_group": "é" * 32}, Code.ILLEGAL_MESSAGE_GROUP),
        ({}, {"trace_context": "a\x01"}, Code.BAD_REQUEST),
        ({}, {"born_host": "me\x02DELAY\x013"}, Code.BAD_REQUEST),
        ({}, {"lite_topic": "a\x02b"}, Code.BAD_REQUEST),
    ],
)
def test_what_cannot_be_a_property_is_refused(
    user: dict[str, str], fields: dict[str, Any], code: Code
) -> None:
    with pytest.raises(GrpcStatusError) as failure:
        check_properties(user, system_of(**fields))
    assert failure.value.code is code


def test_ordinary_properties_pass() -> None:
    user = {f"n{n}": "Wert ✓" for n in range(128)}
    check_properties(user, system_of(tag="rot", keys=["k"], message_group="x" * 63))
    check_properties({}, system_of(tag="", keys=[""]))


def test_times_lie_within_bounds() -> None:
    check_times(system_of(delivery_timestamp_ms=NOW_MS - 5), NOW_MS, 1000)
    check_times(system_of(delivery_timestamp_ms=NOW_MS + 1000), NOW_MS, 1000)
    check_times(system_of(orphaned_transaction_recovery_duration_ms=3_600_000), NOW_MS, 1000)
    for fields, code in (
        ({"delivery_timestamp_ms": NOW_MS + 1001}, Code.ILLEGAL_DELIVERY_TIME),
        ({"orphaned_transaction_recovery_duration_ms": 3_600_001}, Code.BAD_REQUEST),
    ):
        with pytest.raises(GrpcStatusError) as failure:
            check_times(system_of(**fields), NOW_MS, 1000)
        assert failure.value.code is code
