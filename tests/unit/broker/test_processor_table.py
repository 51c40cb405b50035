"""The table: what is served to whom."""

from pathlib import Path

import pytest

from rockhopper.broker.processor_table import build_table
from rockhopper.broker.server.remoting.dispatcher import Row
from rockhopper.broker.server.remoting.permissions import ADMINISTRATION
from rockhopper.broker.users.access import Action, Resource
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.features import needs
from tests.support.name_server import NameServer
from tests.support.peers import Clock, Peer
from tests.support.rules import Rules
from tests.support.served_broker import ServedBroker

# Codes that clients without special rights need; everything else is an administrator's.
FOR_EVERYBODY = {
    10,
    11,
    12,
    14,
    15,
    29,
    30,
    31,
    32,
    33,
    34,
    35,
    36,
    37,
    38,
    41,
    42,
    46,
    310,
    320,
    324,
    325,
    361,
    370,
}
POP = {200_050, 200_051, 200_052, 200_053, 200_054, 200_055, 200_151}
# Ours: jobs read in bulk and write in whole batches.
FOR_EVERYBODY |= {
    70_001,
    70_002,
    70_003,
    70_004,
    70_005,
    70_007,
    70_008,
    70_009,
    70_014,
    70_015,
    70_020,
}
FOR_EVERYBODY |= POP | {code & 0xFFFF for code in POP} | {400}

# A response to one of these says that something is stored, granted, or deleted.
PROMISING: set[int] = {
    Code.UPDATE_CONSUMER_OFFSET,
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.UPDATE_AND_CREATE_TOPIC_LIST,
    Code.UPDATE_BROKER_CONFIG,
    Code.CONSUMER_SEND_MSG_BACK,
    Code.END_TRANSACTION,
    Code.LOCK_BATCH_MQ,
    Code.UNLOCK_BATCH_MQ,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Code.DELETE_SUBSCRIPTIONGROUP,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.PURGE_TOPIC,
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.CLONE_GROUP_OFFSET,
    Code.RESUME_CHECK_HALF_MESSAGE,
    Code.SEND_REPLY_MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2,
    Code.DELETE_EXPIRED_COMMITLOG,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
    Code.RECALL_MESSAGE,
    Code.SET_MESSAGE_REQUEST_MODE,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC,
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    Code.SET_COMMITLOG_READ_MODE,
    Code.AUTH_CREATE_USER,
    Code.AUTH_UPDATE_USER,
    Code.AUTH_DELETE_USER,
    Code.AUTH_CREATE_ACL,
    Code.AUTH_UPDATE_ACL,
    Code.AUTH_DELETE_ACL,
    Code.SINK_STAGE,
    Code.SINK_PUBLISH,
    Code.SINK_ABORT,
    Code.SINK_PREPARE,
    Code.SINK_DECIDE,
}
PROMISING_OF_POP = {
    Code.ACK_MESSAGE,
    Code.BATCH_ACK_MESSAGE,
    Code.CHANGE_MESSAGE_INVISIBLETIME,
}
PROMISING |= PROMISING_OF_POP | {code & 0xFFFF for code in PROMISING_OF_POP}
WAITING_OF_POP = {Code.POP_MESSAGE, Code.NOTIFICATION}
WAITING = {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE} | {
    code & mask for code in WAITING_OF_POP for mask in (0xFFFF, 0xFFFFFFFF)
}
"""RocketMQ's binary headers have 16 bits for a code."""


async def test_clients_codes_are_for_everybody_and_all_others_for_administrators(
    broker: ServedBroker,
) -> None:
    table = build_table(broker)
    # A code of a feature that is not there is nobody's.
    expected = FOR_EVERYBODY & {int(code) for code in table}
    assert {int(code) for code, entry in table.items() if not entry.is_administration} == expected


async def test_no_response_that_promises_state_is_declared_as_one_that_promises_none(
    broker: ServedBroker,
) -> None:
    table = build_table(broker)
    assert [code for code in PROMISING & table.keys() if not table[code].promises_state] == []


async def test_requests_that_wait_for_messages_are_declared_so(broker: ServedBroker) -> None:
    table = build_table(broker)
    assert [code for code in WAITING & table.keys() if not table[code].may_wait] == []


@pytest.mark.parametrize(
    "code",
    [
        Code.UPDATE_BROKER_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.GET_ALL_CONSUMER_OFFSET,
    ],
)
async def test_administrators_codes_are_refused_to_others(broker: ServedBroker, code: Code) -> None:
    elsewhere = Peer("10.0.0.7")
    answer = await broker.ask(code, {"topic": "orders", "groupName": "billing"}, peer=elsewhere)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "remoteAdmin" in (answer.remark or "")


async def test_code_that_is_not_in_the_table_is_not_supported(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.SUSPEND_CONSUMER)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 209 not supported"


def all_rows(broker: ServedBroker, directory: Path) -> dict[str, Row]:
    name_service = NameServer(
        directory, broker.config, with_broker=False, clock=Clock()
    ).processors.table()
    return {f"broker {int(code)}": row for code, row in build_table(broker).items()} | {
        f"name server {int(code)}": row for code, row in name_service.items()
    }


async def test_every_row_names_an_action_and_what_it_is_about(
    broker: ServedBroker, tmp_path: Path
) -> None:
    without = [
        name
        for name, row in all_rows(broker, tmp_path).items()
        if not [
            permission
            for permission in row.permissions
            if permission is not ADMINISTRATION and permission.actions
        ]
    ]
    assert without == []


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        (Code.SEND_MESSAGE, [("Pub", "Topic:orders")]),
        (Code.SEND_MESSAGE_V2, [("Pub", "Topic:orders")]),
        (Code.SEND_BATCH_MESSAGE, [("Pub", "Topic:orders")]),
        (Code.PULL_MESSAGE, [("Sub", "Topic:orders"), ("Sub", "Group:billing")]),
        pytest.param(
            Code.POP_MESSAGE,
            [("Sub", "Topic:orders"), ("Sub", "Group:billing")],
            marks=needs("pop"),
        ),
        (
            Code.UPDATE_CONSUMER_OFFSET,
            [("Sub or Update", "Topic:orders"), ("Sub or Update", "Group:billing")],
        ),
        (Code.GET_CONSUMER_LIST_BY_GROUP, [("Sub or Get", "Group:billing")]),
        pytest.param(
            Code.POLLING_INFO,
            [("Get", "Topic:orders"), ("Get", "Group:billing")],
            marks=needs("pop"),
        ),
        (
            Code.QUERY_CONSUME_QUEUE,
            [("Administer", "Cluster:*"), ("Get", "Topic:orders"), ("Get", "Group:billing")],
        ),
        (
            Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            [("Administer", "Cluster:*"), ("Get", "Topic:orders")],
        ),
        (
            Code.QUERY_CORRECTION_OFFSET,
            [
                ("Administer", "Cluster:*"),
                ("Get", "Topic:orders"),
                ("Get", "Group:billing"),
                ("Get", "Group:audit"),
                ("Get", "Group:refunds"),
            ],
        ),
        (Code.CONSUMER_SEND_MSG_BACK, [("Sub", "Group:billing"), ("Sub", "Topic:orders")]),
        pytest.param(Code.END_TRANSACTION, [("Pub", "Topic:orders")], marks=needs("transactions")),
        (Code.GET_MAX_OFFSET, [("Sub or Get", "Topic:orders")]),
        (Code.UPDATE_AND_CREATE_TOPIC, [("Administer", "Cluster:*"), ("Create", "Topic:orders")]),
        (Code.DELETE_TOPIC_IN_BROKER, [("Administer", "Cluster:*"), ("Delete", "Topic:orders")]),
        (Code.DELETE_SUBSCRIPTIONGROUP, [("Administer", "Cluster:*"), ("Delete", "Group:billing")]),
        (Code.GET_ALL_TOPIC_CONFIG, [("Administer", "Cluster:*"), ("List", "Topic:*")]),
        (Code.UPDATE_BROKER_CONFIG, [("Administer", "Cluster:*"), ("Update", "Cluster:*")]),
        pytest.param(
            Code.BULK_PULL,
            [("Sub", "Topic:orders"), ("Sub", "Group:billing")],
            marks=needs("bulk_pull"),
        ),
        pytest.param(
            Code.BULK_PULL_QUEUES,
            [("Sub", "Topic:orders"), ("Sub", "Group:billing")],
            marks=needs("bulk_pull"),
        ),
    ],
)
async def test_what_is_asked_for_a_request(
    tmp_path: Path, code: Code, asked: list[tuple[str, str]]
) -> None:
    rules = AllowingRules()
    broker = ServedBroker(tmp_path, Clock(), {}, rules)
    ext = dict.fromkeys(("topic", "b", "originTopic"), "orders")
    ext |= dict.fromkeys(("consumerGroup", "group", "groupName", "compareGroup"), "billing")
    ext["filterGroups"] = "audit,refunds"
    await broker.ask(code, ext)
    assert [
        (" or ".join(action.value for action in actions), f"{resource.kind}:{resource.name}")
        for actions, resource in rules.questions
    ] == asked
    await broker.close()


class AllowingRules(Rules):
    def __init__(self) -> None:
        super().__init__()
        self.questions: list[tuple[tuple[Action, ...], Resource]] = []

    def may_any(
        self, principal: Principal, actions: tuple[Action, ...], resource: Resource
    ) -> bool:
        self.questions.append((actions, resource))
        return True
