"""A code is guarded unless it is known to promise nothing."""

from pathlib import Path

from rockhopper.broker.gateways.grpc import service
from rockhopper.broker.processor_table import build_table
from rockhopper.broker.server.remoting.promises import PROMISES_NOTHING
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.grpc_v2.messages import METHODS
from tests.support.features import NAMES
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker

PROMISES = {
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_DELETE_ACL,
}
OF_FEATURES = {
    "static_topics": {RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC},
    "sinks": {RequestCode.SINK_STAGE, RequestCode.SINK_PUBLISH, RequestCode.SINK_DECIDE},
}
for name, codes in OF_FEATURES.items():
    PROMISES |= codes if name in NAMES else set()


def test_what_promises_state_is_not_among_those_that_promise_nothing(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path, Clock(), {})
    table = build_table(broker)
    broker.store.abandon()
    assert set(table) >= PROMISES
    assert not PROMISES & PROMISES_NOTHING
    assert RequestCode.ACK_MESSAGE & 0xFFFF not in PROMISES_NOTHING


def test_every_rpc_that_promises_nothing_is_one() -> None:
    assert set(METHODS) >= service.PROMISES_NOTHING
    assert set(METHODS) - service.PROMISES_NOTHING == {
        "AckMessage",
        "ChangeInvisibleDuration",
        "EndTransaction",
        "ForwardMessageToDeadLetterQueue",
        "RecallMessage",
        "SyncLiteSubscription",
        "UpdateOffset",
    }
