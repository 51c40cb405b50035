"""Answers that promise state leave only while nobody else can lead the set."""

from pathlib import Path
from typing import cast

from rockhopper.broker.grpc import service
from rockhopper.broker.processors.table import build_table
from rockhopper.broker.remoting.lease_gate import PROMISES_NOTHING, LeaseGate
from rockhopper.broker.remoting.server import Connection
from rockhopper.broker.store.files.errors import NotReplicatedError
from rockhopper.protocol.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.grpc_v2.messages import METHODS
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

COMMIT, READ = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET
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
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_DELETE_ACL,
    RequestCode.SINK_STAGE,
    RequestCode.SINK_PUBLISH,
    RequestCode.SINK_DECIDE,
}


class Held:
    """A gate that a test opens, and a client behind it."""

    def __init__(self) -> None:
        self.is_open = False
        self.gate = LeaseGate(lambda: self.is_open, 3000)
        self.peer = Peer()

    def write(self, code: int, opaque: int) -> None:
        self.gate.write(cast(Connection, self.peer), code, frame(opaque))

    def answers(self) -> list[tuple[int, int]]:
        frames = FrameDecoder().feed(b"".join(self.peer.written))
        found = [decode_header(*each) for each in frames]
        return [(command.opaque, command.code) for command in found]


def frame(opaque: int, code: int = 0) -> bytes:
    return encode_command(Command(code=code, opaque=opaque, flag=FLAG_RESPONSE))


def test_what_is_not_known_to_promise_nothing_is_guarded(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path, Clock(), {})
    table = build_table(broker)
    broker.store.abandon()
    assert set(table) >= PROMISES
    assert not PROMISES & PROMISES_NOTHING
    gate = LeaseGate(lambda: True, 3000)
    assert all(gate.guards(code) for code in PROMISES)
    assert gate.guards(RequestCode.ACK_MESSAGE & 0xFFFF)
    assert gate.guards(123_456)


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


async def test_a_promise_leaves_when_the_gate_opens() -> None:
    held = Held()
    held.write(COMMIT, 1)
    held.write(READ, 2)
    held.gate.look()
    assert held.answers() == [(2, 0)]
    held.is_open = True
    held.gate.look()
    held.write(COMMIT, 3)
    assert held.answers() == [(2, 0), (1, 0), (3, 0)]
    held.gate.close()


async def test_a_master_that_resigns_takes_back_what_it_has_not_said_yet() -> None:
    held = Held()
    held.write(COMMIT, 1)
    held.gate.refuse(NotReplicatedError("another one leads"))
    held.write(COMMIT, 2)
    assert [code for _, code in held.answers()] == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
    held.gate.begin()
    held.write(COMMIT, 3)
    assert len(held.answers()) == 2
    held.gate.close()


async def test_a_refusal_stays_what_it_is() -> None:
    held = Held()
    held.gate.write(held.peer, COMMIT, frame(1, ResponseCode.TOPIC_NOT_EXIST))
    held.gate.refuse(NotReplicatedError("another one leads"))
    assert held.answers() == [(1, ResponseCode.TOPIC_NOT_EXIST)]
    held.gate.close()


async def test_of_one_pass_only_promises_are_held_back() -> None:
    held = Held()
    answers = [frame(1), frame(2), frame(3)]
    held.gate.hold_back(held.peer, answers, [0, 2])
    assert answers == [b"", frame(2), b""]
    held.is_open = True
    held.gate.look()
    assert held.answers() == [(1, 0), (3, 0)]
    held.gate.close()
